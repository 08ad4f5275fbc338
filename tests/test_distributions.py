"""The wall between the distributions: what judges somebody's function imports nothing of the library of ops."""

from __future__ import annotations

import importlib.metadata
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from opassay.reference.distributions import PACKAGE, PARTS, AbsentError, AbsentFinder, part_of
from tests import distributions
from tests.import_graph import FOLDERS, modules
from workshop.distributions import DISTRIBUTIONS, build, files_of

REPOSITORY = Path(__file__).resolve().parents[1]
_KERNEL = """
import torch

def reference(x):
    return torch.softmax(x, -1)

def kernel(x):
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)

def inputs():
    return (torch.randn(3, 5),)
"""
_TEST = """
import torch
from mine import kernel, reference
from opassay import assert_conforms

def test_kernel():
    x = torch.ones(2, 3)
    assert_conforms(kernel(x), reference, x)
"""


def test_nothing_that_judges_imports_the_library() -> None:
    assert distributions.breaches(REPOSITORY) == []
    assert distributions.unknown_names(REPOSITORY) == set()


def test_every_file_is_of_one_distribution() -> None:
    files = [files_of(REPOSITORY, name) for name in DISTRIBUTIONS]
    assert sum(map(len, files)) == len({name for each in files for name in each})
    assert {path for each in files for path in each.values()} >= {*modules(REPOSITORY).values()}
    first, second = files[:2]
    assert "opassay/impl/softmax/public.py" in second
    assert "opassay/pytest.py" in second
    assert "opassay/__init__.py" in first
    assert "opassay/reports/pytest_plugin.py" in first


@pytest.mark.parametrize(
    ("name", "text", "breach"),
    [
        ("properties/candidates/judging.py", "from ...impl import softmax", "properties.candidates.judging:1"),
        ("properties/candidates/judging.py", "def f():\n    from ..verification import run", "judging:2"),
        ("properties/candidates/judging.py", "PROGRAM = 'opassay.properties.verification:run'", "judging:1"),
        ("reports/pytest_plugin.py", "from .pytest_cells import cell_items", "pytest_plugin:1"),
        ("reports/pytest_plugin.py", "def f():\n    from .pytest_cells import cell_items", ""),
        ("reports/pytest_cells.py", "from ..properties.verification import run", ""),
        ("properties/verification.py", "from .candidates import judging", ""),
    ],
)
def test_a_breach_of_the_wall_is_found(tmp_path: Path, name: str, text: str, breach: str) -> None:
    files = (
        "impl/softmax.py",
        "properties/verification.py",
        "properties/candidates/judging.py",
        "reports/pytest_cells.py",
    )
    for each in (*files, *(f"{folder}/__init__.py" for folder in FOLDERS), name):
        (tmp_path / each).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / each).write_text(text if each == name else "")
    texts = distributions.breaches(tmp_path)
    assert len(texts) == bool(breach)
    assert breach in "".join(texts)


def test_an_absent_module_says_what_installs_it() -> None:
    with pytest.raises(
        ModuleNotFoundError, match=r'opassay\.impl\.norms is in .*pip install "opassay\[ops\]"'
    ) as absent:
        AbsentFinder.find_spec("opassay.impl.norms")
    assert isinstance(absent.value, AbsentError)
    for name in ("opassay.implement", "opassay.properties.verification_of", "other.impl", "impl", "opassay"):
        AbsentFinder.find_spec(name)
    assert [part_of(f"reports.cli.{name}") for name in ("run", "running")] == ["ops", ""]


class Alone:
    """A folder with files of ours, in which programs run that see no others."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "mine.py").write_text(_KERNEL)
        (folder / "test_mine.py").write_text(_TEST)

    def run(self, *words: str) -> tuple[int, str]:
        # Without the site module, which would add the finder of an editable installation, where all files are found.
        paths = [str(self.folder / "site"), sysconfig.get_path("purelib")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
        done = subprocess.run(
            [sys.executable, "-S", *words],
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Alone:
    program = Alone(tmp_path_factory.mktemp("alone"))
    for name, path in files_of(REPOSITORY, PACKAGE).items():
        (program.folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
        (program.folder / "site" / name).symlink_to(path)
    return program


@pytest.mark.parametrize("words", ["run layer_norm", "list", "run --op mine:OP"])
def test_a_command_of_the_library_says_what_installs_it(alone: Alone, words: str) -> None:
    code, text = alone.run("-m", "opassay", *words.split())
    assert (code, text.count("\n")) == (2, 1)
    assert text.startswith("opassay: ")
    assert text.endswith('which is not installed; pip install "opassay[ops]"\n')


_LINES = (
    "from opassay.impl import layer_norm",
    "from opassay import impl, verify",
    "import opassay; opassay.custom_kernel",
    "import opassay; opassay.cuda_kernel",
    "import torch, opassay; opassay.assert_conforms(torch.exp, torch.exp, torch.ones(3), compiled='sm_90')",
)


@pytest.mark.parametrize("line", _LINES)
def test_a_name_of_the_library_says_what_installs_it(alone: Alone, line: str) -> None:
    code, text = alone.run("-c", line)
    assert code == 1
    assert re.search(r'is not installed; pip install "opassay\[(ops|machine)\]"\n$', text), text
    assert "AbsentError: " in text


@pytest.mark.parametrize("words", ["--compiled", "--interpret", "--device rehearsal"])
def test_a_way_without_a_gpu_says_what_installs_it(alone: Alone, words: str) -> None:
    code, text = alone.run("-m", "opassay", "judge", "mine.py", *words.split())
    assert (code, text.count("\n")) == (2, 1), text
    assert text.endswith(
        'the machine that executes kernels without a GPU is not installed; pip install "opassay[machine]"\n'
    )


def test_a_kernel_is_judged_without_the_library(alone: Alone) -> None:
    code, text = alone.run("-m", "opassay", "judge", "mine.py", "--seed", "0", "-k", "FWD:offset", "-k", "FWD:given")
    assert code == 1, text
    assert "rejected: FWD:offset" in text
    code, text = alone.run("-m", "opassay", "judge", "mine.py:reference", "--spec", "mine.py:reference", "-k", "VJP")
    assert code == 0, text


def test_a_session_of_tests_is_recorded_without_the_library(alone: Alone) -> None:
    code, text = alone.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--opassay-report", "report", "test_mine.py")
    assert code == 0, text
    assert "1 verified" in text
    code, text = alone.run("-m", "opassay", "gate", "report/run.json")
    assert code == 0, text
    code, text = alone.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--opassay", "test_mine.py")
    assert code == 4
    assert "ERROR: --opassay: opassay.reports.pytest_cells is in the library of ops" in text


def _has_setuptools() -> bool:
    try:
        return int(importlib.metadata.version("setuptools").partition(".")[0]) >= 77
    except importlib.metadata.PackageNotFoundError:
        return False


@pytest.mark.skipif(not _has_setuptools(), reason="wheels are built by setuptools 77 or newer, which is not installed")
def test_wheels_of_all_distributions_make_the_whole(tmp_path: Path) -> None:
    program = Alone(tmp_path)
    names: list[str] = []
    for path, distribution in zip(build(REPOSITORY, tmp_path, "--no-build-isolation"), DISTRIBUTIONS, strict=True):
        with zipfile.ZipFile(path) as wheel:
            wheel.extractall(tmp_path / "site")
            here = [name for name in wheel.namelist() if ".dist-info/" not in name]
            (metadata,) = (wheel.read(n).decode() for n in wheel.namelist() if n.endswith("/METADATA"))
        assert sorted(here) == sorted(files_of(REPOSITORY, distribution))
        version = metadata.partition("\nVersion: ")[2].partition("\n")[0]
        requirements = {line.split(": ")[1] for line in metadata.splitlines() if line.startswith("Requires-Dist: ")}
        if distribution == PACKAGE:
            assert {f'opassay-{part}=={version}; extra == "{part}"' for part in PARTS} <= requirements
        else:
            assert f"opassay=={version}" in requirements
            assert len(requirements) == 1 + len(PARTS[distribution.removeprefix("opassay-")].needs)
        names += here
    assert len(names) == len(set(names))
    code, text = program.run("-c", "from opassay.impl import layer_norm; import opassay; print(opassay.verify)")
    assert code == 0, text
    code, text = program.run("-m", "opassay", "list")
    assert (code, "layer_norm" in text) == (0, True), text
