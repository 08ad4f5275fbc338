"""The map in pyproject.toml and the folders agree, and what is installed is `opassay` alone."""

from __future__ import annotations

import importlib.metadata
import json
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

import opassay

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDERS = {"api", "reference", "impl", "oracles", "properties", "reports"}
NOT_PACKAGED = {"tests", "benchmarks", "build", "corpus", "workshop"}


def _setuptools() -> dict[str, Any]:
    tables = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    table = tables["tool"]["setuptools"]
    assert isinstance(table, dict)
    return table


def _python_folders(top: str) -> set[Path]:
    """Folders of modules; Python imports sitecustomize from a folder of its path, which is no package."""
    files = (path for path in (REPOSITORY / top).rglob("*.py") if path.name != "sitecustomize.py")
    return {path.parent for path in files if "__pycache__" not in path.parts}


def test_every_top_level_package_is_in_the_map() -> None:
    result = {path.parent.name for path in REPOSITORY.glob("*/__init__.py")} - NOT_PACKAGED
    assert result == FOLDERS == set(_setuptools()["package-dir"].values())


def test_every_python_folder_is_a_package() -> None:
    folders = set().union(*map(_python_folders, FOLDERS))
    assert [folder for folder in folders if not (folder / "__init__.py").is_file()] == []


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "opassay.__version__"}
    expand = pytest.importorskip("setuptools.config.expand", reason="setuptools is not installed here")
    read = expand.read_attr("opassay.__version__", _setuptools()["package-dir"], REPOSITORY)
    assert read == opassay.__version__
    assert f": {read}\n" in (REPOSITORY / "CHANGELOG.md").read_text()


def test_no_folder_shadows_the_package() -> None:
    assert not (REPOSITORY / "opassay").exists()
    assert not (REPOSITORY / "src").exists()


def test_importing_opassay_does_not_bring_the_folders_as_modules(tmp_path: Path) -> None:
    code = "import json, sys, opassay; print(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert "opassay" in loaded
    assert loaded & FOLDERS == set()


def test_every_public_name_is_where_the_package_says() -> None:
    assert [name for name in dir(opassay) if not hasattr(opassay, name)] == []


def test_the_installed_distribution_has_no_other_top_level() -> None:
    # Only an installation has a RECORD; a checkout on sys.path has an egg-info that lists the sources.
    records = [result.read_text("RECORD") for result in importlib.metadata.distributions(name="opassay")]
    names = [line.split(",")[0] for record in records if record for line in record.splitlines()]
    assert names
    modules = [name for name in names if name.endswith(".py") and not name.startswith("__editable__")]
    assert {Path(name).parts[0] for name in modules} <= {"opassay"}


def test_a_wheel_holds_opassay_alone_and_every_source_file(tmp_path: Path) -> None:
    """Lists what setuptools would copy, without the isolated build: that takes the network and half a minute."""
    pytest.importorskip("setuptools", reason="setuptools is not installed here")
    copy = tmp_path / "copy"
    ignored = shutil.ignore_patterns("__pycache__")
    for folder in FOLDERS:
        shutil.copytree(REPOSITORY / folder, copy / folder, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, copy)
    command = [sys.executable, "setup.py", "-q", "build_py", "--build-lib", str(tmp_path / "built")]
    subprocess.run(command, cwd=copy, check=True, capture_output=True)
    built = {path.relative_to(tmp_path / "built") for path in (tmp_path / "built").rglob("*") if path.is_file()}
    assert {path.parts[0] for path in built} == {"opassay"}
    sources = [path for top in FOLDERS for path in (REPOSITORY / top).rglob("*") if path.is_file()]
    shipped = [path for path in sources if path.suffix != ".pyc"]
    assert len(built) == len(shipped)
    assert Path("opassay/py.typed") in built
