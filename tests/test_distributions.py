"""The wall between the distributions: what judges somebody's function imports nothing of the library of ops."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from opassay.reference.distributions import OPS_NAME, PACKAGE, AbsentFinder, is_of_ops
from tests import distributions
from tests.import_graph import FOLDERS, modules

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
    first, second = (distributions.files_of(REPOSITORY, name) for name in (PACKAGE, OPS_NAME))
    assert not first.keys() & second.keys()
    assert len({*first.values(), *second.values()} & {*modules(REPOSITORY).values()}) == len(modules(REPOSITORY))
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
    assert absent.value.name == OPS_NAME
    for name in ("opassay.implement", "opassay.properties.verification_of", "other.impl", "impl", "opassay"):
        AbsentFinder.find_spec(name)
    assert is_of_ops("reports.cli.run")
    assert not is_of_ops("reports.cli.running")


class Alone:
    """The files of `opassay` alone, by which programs run that see no other file of ours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name, path in distributions.files_of(REPOSITORY, PACKAGE).items():
            (folder / "site" / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / "site" / name).symlink_to(path)
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
    return Alone(tmp_path_factory.mktemp("alone"))


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
)


@pytest.mark.parametrize("line", _LINES)
def test_a_name_of_the_library_says_what_installs_it(alone: Alone, line: str) -> None:
    code, text = alone.run("-c", line)
    assert code == 1
    assert text.endswith('which is not installed; pip install "opassay[ops]"\n')
    assert "ModuleNotFoundError: opassay." in text


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
