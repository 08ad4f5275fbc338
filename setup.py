"""The packages of the distribution, read from the folders; everything else stands in pyproject.toml."""

import tomllib
from pathlib import Path

from setuptools import find_packages, setup

TABLE = tomllib.loads((Path(__file__).parent / "pyproject.toml").read_text())["tool"]["setuptools"]

setup(
    packages=[
        package
        for name, folder in TABLE["package-dir"].items()
        for package in (name, *(f"{name}.{inner}" for inner in find_packages(folder)))
    ]
)
