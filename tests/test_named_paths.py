"""What pages and docstrings name is there: files, folders and modules of the repository."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.building.build import ROOT, pages
from tests.import_graph import FOLDERS, modules
from tests.test_imports import MAY_IMPORT

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PAGES = [*pages(), ROOT / "tests" / "README.md"]
TOP = "|".join(("benchmarks", "corpus", "docs", "tests", "workshop", *FOLDERS))
#: Files that pages name and a reader, or opassay, writes.
EXAMPLES = {"cases", "cases/ID.py", "file.py", "mine.py", "mypackage/__init__.py", "opassay_example.py", "reference.py"}
EXAMPLES |= {"tabulate.py", "test_norm.py", "specs.py", "train.py"}
#: Files of public suites of problems.
EXAMPLES |= {"NAME.py", "NAME/submission.py", "submission.py", "main.py", "func_forward.py", "func_backward.py"}
_PATH = re.compile(rf"(?<![\w./-])(?:(?:{TOP})/[\w./*]*|[\w/]+\.py|[a-z_]+/)(?![\w/-])")
_MODULE = re.compile(rf"^(?:opassay\.)?((?:{'|'.join(FOLDERS)})(?:\.\w+)+)$")


def _words(text: str) -> list[str]:
    """What stands between backticks, without blocks of programs."""
    return re.findall(r"(?<!`)`([^`\n]+)`", re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE))


def stale_paths(text: str) -> Iterator[str]:
    """Files and folders that a page names and that are not there.

    A path begins at the top of the repository. One that does not begins at a folder that the page names in full, as
    itself or as the folder of a file.
    """
    paths = {path.rstrip("/.") for word in _words(text) for path in _PATH.findall(word)} - EXAMPLES
    whole = {path for path in paths if re.match(rf"({TOP})\b", path)}
    yield from sorted(path for path in whole if not any(ROOT.glob(path)))
    folders = {ROOT / path for path in whole} | {(ROOT / path).parent for path in whole}
    yield from sorted(path for path in paths - whole if not any((folder / path).exists() for folder in folders))


def stale_names(path: Path, text: str) -> Iterator[str]:
    """Files and modules that a source file names between backticks and that are not there.

    Args:
        path: of the source file. A file that it names stands below the same folder at the top, or is named in full.
        text: of the source file: mostly its docstrings and comments, for code has no backticks.
    """
    top = ROOT / path.relative_to(ROOT).parts[0]
    for word in _words(text):
        for name in set(_PATH.findall(word)) - EXAMPLES:
            if not any(ROOT.glob(name.rstrip("."))) and not any(top.rglob(name.rstrip("."))):
                yield f"{path.relative_to(ROOT)}: {name}"
        if (result := _MODULE.match(word)) and not _is_there(result[1]):
            yield f"{path.relative_to(ROOT)}: {word}"


@functools.cache
def _modules() -> dict[str, Path]:
    return modules(ROOT)


def _is_there(name: str) -> bool:
    """Whether a dotted name is a module, or a module and a name that its text has."""
    known, outer = _modules(), name
    while outer not in known:
        outer = outer.rpartition(".")[0]
    rest = name[len(outer) + 1 :].split(".")[0]
    return re.search(rf"\b{rest}\b", known[outer].read_text(encoding="utf-8")) is not None


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_paths_that_a_page_names_exist(page: Path) -> None:
    assert list(stale_paths(page.read_text(encoding="utf-8"))) == []


def test_a_stale_path_is_found() -> None:
    text = "`oracles/bound/accept.py`, `terms.py`, `rounding/`, `python benchmarks/run.py`, `impl/*/rules.py`, `a/b`"
    assert list(stale_paths(text)) == []
    assert list(stale_paths("`oracles/accept.py` and `terms.py`")) == ["oracles/accept.py", "terms.py"]
    assert list(stale_paths("`python workshop/gone.py`\n```\n`tests/gone.py`\n```\n")) == ["workshop/gone.py"]


def test_files_and_modules_that_docstrings_name_exist() -> None:
    files = [path for folder in (*FOLDERS, "workshop") for path in sorted((ROOT / folder).rglob("*.py"))]
    assert [stale for path in files for stale in stale_names(path, path.read_text(encoding="utf-8"))] == []


def test_a_stale_name_in_a_docstring_is_found() -> None:
    text = "`accept.py` `gone.py` `oracles.bound.accept` `oracles.gone` `oracles.bound.terms.Terms` `api.Gone`"
    results = list(stale_names(ROOT / "oracles" / "here.py", text))
    assert [line.partition(": ")[2] for line in results] == ["gone.py", "oracles.gone", "api.Gone"]


def test_the_picture_shows_the_folders_that_are_there() -> None:
    (picture,) = re.findall(r"^```\n(reference/.*?)^```", ARCHITECTURE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    listed: dict[str, set[str]] = {}
    top = ""
    for line in picture.splitlines():
        names = [word.strip("/") for word in re.split(r"\s{2,}", line.strip())[0].split()]
        if line.startswith("  "):
            listed[top] |= set(names)
        else:
            top = names[0]
            listed |= {name: set() for name in names}
    rooms = {top: {path.parent.name for path in (ROOT / top).glob("*/__init__.py")} for top in (*FOLDERS, "workshop")}
    assert {top: listed[top] for top in rooms} == rooms
    assert [name for name in listed if not (ROOT / name).is_dir()] == []


def test_the_table_of_imports_is_that_of_the_test() -> None:
    rows = re.findall(r"^\| `(\w+)/` \| ([^|;]+)[^|]*\|", ARCHITECTURE.read_text("utf-8"), re.MULTILINE)
    assert {folder: set(re.findall(r"`([\w.]+)`", allowed)) for folder, allowed in rows} == MAY_IMPORT
