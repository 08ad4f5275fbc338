"""The distributions that the one tree makes: which files each of them has, and a project of each, to build it from.

A checkout is one project with all files, so that `pip install .` and an editable installation bring everything. What is
published is laid out here: each distribution gets a folder with its files alone, and the metadata of pyproject.toml.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

from opassay.reference.distributions import PACKAGE, PARTS, part_of

#: The folders of a checkout that are installed; the last is the package itself.
FOLDERS = ("reference", "impl", "oracles", "properties", "reports", "api")
DISTRIBUTIONS = (PACKAGE, *(f"{PACKAGE}-{part}" for part in PARTS))
_SETUP = '"""Made by `python -m workshop wheels`."""\n\nfrom setuptools import setup\n\nsetup(**{options!r})\n'


def distribution_of(path: Path) -> str:
    """The distribution of a file, by its path in the repository."""
    name = ".".join(path.with_suffix("").parts).removesuffix(".__init__").removeprefix("api.")
    return "-".join(filter(None, [PACKAGE, part_of(name)]))


def files_of(root: Path, distribution: str) -> dict[str, Path]:
    """The files of a distribution: their paths as installed -> where they stand in a checkout."""
    paths = (path for folder in FOLDERS for path in sorted((root / folder).rglob("*")))
    files = [path for path in paths if path.is_file() and "__pycache__" not in path.parts]
    own = [path.relative_to(root) for path in files if distribution_of(path.relative_to(root)) == distribution]
    return {str(Path(PACKAGE, *path.parts[path.parts[0] == "api" :])): root / path for path in own}


def lay_out(root: Path, distribution: str, folder: Path) -> None:
    """Write a project of one distribution into an empty folder.

    Args:
        root: a checkout. distribution: one of `DISTRIBUTIONS`.
    """
    files = files_of(root, distribution)
    for name, source in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(source.read_bytes())
    (folder / "LICENSE").write_bytes((root / "LICENSE").read_bytes())
    table = tomllib.loads((root / "pyproject.toml").read_text())
    options = _options(table["project"], distribution, _version(root))
    options["long_description"] = (root / "README.md").read_text()
    # Folders without `__init__.py` here have it in another distribution, so they are named and not searched for.
    options["packages"] = sorted({".".join(Path(name).parent.parts) for name in files})
    options["package_data"] = {"": ["*"]}
    (folder / "setup.py").write_text(_SETUP.format(options=options))
    (folder / "pyproject.toml").write_text("[build-system]\n" + "\n".join(
        f"{key} = {value!r}".replace("'", '"') for key, value in table["build-system"].items()
    ) + "\n")  # fmt: skip


def build(root: Path, out: Path, *options: str) -> list[Path]:
    """Build a wheel of every distribution into a folder, with options of `pip wheel`; return these in order.

    Raises:
        subprocess.CalledProcessError: pip refuses one; it says why on the terminal.
    """
    with tempfile.TemporaryDirectory() as there:
        for name in DISTRIBUTIONS:
            lay_out(root, name, Path(there, name))
        command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--wheel-dir", str(out), *options]
        subprocess.run([*command, *(str(Path(there, name)) for name in DISTRIBUTIONS)], check=True)
    version = _version(root)
    return [path for name in DISTRIBUTIONS for path in out.glob(f"{name.replace('-', '_')}-{version}-*.whl")]


def _version(root: Path) -> str:
    """The version, which stands in one place."""
    lines = (root / "api/__init__.py").read_text().splitlines()
    return next(line.split('"')[1] for line in lines if line.startswith("__version__"))


def _options(project: dict[str, Any], distribution: str, version: str) -> dict[str, Any]:
    """The metadata of a distribution, as arguments of `setup`; the commands and doors are those of `opassay`."""
    common = {
        "name": distribution, "version": version, "description": project["description"], "license": project["license"],
        "python_requires": project["requires-python"], "classifiers": project["classifiers"],
        "long_description_content_type": "text/markdown",
    }  # fmt: skip
    if distribution != PACKAGE:
        needs = (PACKAGE, *(f"{PACKAGE}-{part}" for part in PARTS[distribution.removeprefix(f"{PACKAGE}-")].needs))
        return {**common, "install_requires": [f"{name}=={version}" for name in needs]}
    extras = {**project["optional-dependencies"], **{part: [f"{PACKAGE}-{part}=={version}"] for part in PARTS}}
    doors = {"console_scripts": project["scripts"], **project["entry-points"]}
    return {
        **common, "install_requires": project["dependencies"], "extras_require": extras,
        "entry_points": {group: [f"{k} = {v}" for k, v in points.items()] for group, points in doors.items()},
    }  # fmt: skip
