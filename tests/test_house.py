"""The figures count what they say: planted examples, and each of what must not be counted."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests import house
from tests.house import Module

REPOSITORY = Path(__file__).resolve().parents[1]
WORDS = "words of ARCHITECTURE.md"
#: The largest number that a figure may have here; `test_imports.py` refuses cycles. Whoever sees the code for the first
#: time reads the page of words whole.
LIMITS = {
    WORDS: 1200,
    "classes of one name": 0,
    "file names in three rooms or more": 0,
    "records of more than twelve fields": 0,
    "names in three modules or more outside families": 40,
    "functions of more than eight parameters, outside families": 0,
}


def _module(text: str, name: str = "impl.planted") -> Module:
    return Module(name, Path(f"{name.replace('.', '/')}.py"), text)


@pytest.mark.parametrize(
    ("counted", "text", "count"),
    [
        (house.positional_accesses, "def f(needs):\n    return needs[0], needs[-1], lambda: needs[2]", 3),
        (house.positional_accesses, "def f(*args, **named):\n    return args[1]", 1),
        (house.positional_accesses, "def f(needs, i):\n    return needs[i], needs[1:], needs['weight']", 0),
        (house.positional_accesses, "def f(shape, x):\n    rows = x\n    return shape[0], x.shape[0], rows[0]", 0),
        (house.positional_accesses, "needs = (True,)\nneeds[0]", 0),
        (house.any_types, "from typing import Any\ndef f(x: Any) -> list[Any]: ...", 3),
        (house.any_types, "'''Any tensor.'''  # Any\nfrom typing import AnyStr", 0),
        (house.ignored_types, "x = f()  # type: ignore[no-any-return]\ny = g()  # type: ignore\n", 2),
        (house.ignored_types, "'type: ignore'  # a type that we ignore", 0),
        (house.undescribed_parameters, "def f(a, b, c, /, d, *, e):\n    'Says.'", 1),
        (house.undescribed_parameters, "class A:\n    def f(self, a, b, c, d, e):\n        'Says.'", 1),
        (house.undescribed_parameters, "class A:\n    def f(self, a, b, c, d, *e):\n        'Says.'", 0),
        (
            house.undescribed_parameters,
            "def f(a, b, c, d, e):\n    '''Says.\n\n    Args:\n        a: first.\n    '''",
            0,
        ),
        (house.undescribed_parameters, "def _f(a, b, c, d, e):\n    'Says.'", 0),
        (house.one_letter_parameters, "def f(j, x, n, *, i): ...\nlambda q: q", 4),
        (house.one_letter_parameters, "def f(x, g, N, judge): ...", 0),
        (house.comment_lines, "# Why.\n#: What.\nx = 1  # behind code\n# ------- a heading\n'# text'", 2),
        (house.section_headings, "# Why.\nx = 1  # behind code\n# ------- a heading\n", 1),
        (house.code_lines, "'''Says.\n\nMore.\n'''\n\n# Why.\ndef f():\n    'Says.'\n    return '''\n\n'''\n", 4),
    ],
)
def test_planted_examples_are_counted(counted: Callable[[Module], Iterator[str]], text: str, count: int) -> None:
    assert len(list(counted(_module(text)))) == count


def test_a_function_is_as_long_as_its_body_without_the_docstring() -> None:
    module = _module(
        "def f():\n    '''Says.\n\n    More.\n    '''\n    a = 1\n\n    return a\n\n\nasync def g(): ...\n"
    )
    assert sorted(house.function_lengths(module)) == [(1, "impl.planted.g"), (3, "impl.planted.f")]


def test_names_of_three_modules_are_counted_and_methods_are_not() -> None:
    texts = ("def f(): ...\ndef g(): ...", "class f: ...\nclass A:\n    def g(self): ...", "def f(): ...\ng = 1")
    results = [_module(text, f"oracles.m{number}") for number, text in enumerate(texts)]
    assert house.homonyms(results) == ["f: oracles.m0, oracles.m1, oracles.m2"]
    assert house.homonyms([_module(text, f"impl.m{number}") for number, text in enumerate(texts)]) == []


_SIX = "\n".join(f"line{number} = {number}" for number in range(6))


@pytest.mark.parametrize(
    ("first", "second", "count"),
    [
        (_SIX, _SIX, 1),
        (f"{_SIX}\nline6 = 6", f"first = 1\n{_SIX}\nline6 = 6", 1),  # a longer run is one pair
        (_SIX, _SIX.replace("\n", "  # why\n\n# Why.\n"), 1),
        (_SIX, f"def f():\n    {_SIX.replace(chr(10), chr(10) + '    ')}", 1),
        (_SIX, _SIX.replace("line5", "line6"), 0),
        ("import a\n" * 6, "import a\n" * 6, 0),
        (f"{_SIX}\nelse0 = 0\n{_SIX}", "", 0),
    ],
)
def test_equal_lines_in_two_modules_are_pairs(first: str, second: str, count: int) -> None:
    assert len(house.duplicates([_module(first, "impl.a"), _module(second, "impl.b")], within=False)) == count


def test_equal_lines_in_one_module_are_pairs() -> None:
    assert house.duplicates([_module(f"{_SIX}\nother = 0\n{_SIX}", "impl.a")], within=True) == ["impl.a:1 = impl.a:8"]


def test_classes_and_files_of_one_name_are_counted() -> None:
    names = ("oracles.op.files", "reports.files", "impl.norms.files", "reference.norms.files")
    results = [_module("class A: ...", name) for name in names]
    assert house.class_homonyms(results) == [f"A: {', '.join(names)}"]
    assert house.file_homonyms(results) == ["files.py: oracles.op.files, reports.files, families, families"]
    assert house.file_homonyms(results[1:]) == []
    assert house.class_homonyms(results[:1]) == []


def test_records_and_signatures_are_measured() -> None:
    fields = "".join(f"    f{i}: int\n" for i in range(13))
    assert list(house.large_records(_module(f"class A:\n{fields}"))) == ["1: A, 13 fields"]
    assert list(house.large_records(_module(f"class A:\n{fields[:-12]}"))) == []
    set_in_init = "".join(f"        self.g{i} = i\n" for i in range(3))
    text = f"class A:\n{fields[:-39]}    def __init__(self, i):\n{set_in_init}"
    assert list(house.large_records(_module(text))) == ["1: A, 13 fields"]
    assert list(house.large_records(_module(text.replace("        self.g0 = i\n", "")))) == []
    letters = ", ".join("abcdefghi")
    assert list(house.long_signatures(_module(f"def f({letters}): ..."))) == ["1: f, 9 parameters"]
    assert list(house.long_signatures(_module(f"def f(self, {letters[3:]}): ..."))) == []


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("@click.command('f', cls=A)\n@click.option('-a')\ndef f({nine}): ...", []),
        ("@group.command\ndef f({nine}): ...", []),
        ("@click.option('-a')\ndef f({nine}): ...", ["2: f, 9 parameters"]),
        ("@command\ndef f({nine}): ...", ["2: f, 9 parameters"]),
        ("def declare({nine}, j, k, l): ...", []),
        ("def declare({nine}, j, k, l, m): ...", ["1: declare, 13 parameters"]),
    ],
)
def test_the_signature_of_a_command_may_be_long(text: str, lines: list[str]) -> None:
    assert list(house.long_signatures(_module(text.format(nine=", ".join("abcdefghi"))))) == lines


def test_the_fullest_folder_is_counted_without_its_init() -> None:
    names = ("impl/__init__.py", "impl/a.py", "impl/b.py", "reports/__init__.py", "reports/a.py")
    assert house.largest_folder([Module(name, Path(name), "") for name in names]) == (2, "impl")


def _beyond(figures: Mapping[str, int]) -> dict[str, int]:
    """The figures that are larger than they may be."""
    return {name: figures[name] for name, most in LIMITS.items() if figures[name] > most}


def test_no_figure_is_beyond_its_limit() -> None:
    sizes, counts = house.sizes(REPOSITORY), house.counts(REPOSITORY)
    figures = {name: int(sizes[name]) if name in sizes else len(counts[name]()) for name in LIMITS}
    assert _beyond(figures) == {}
    assert _beyond({**figures, WORDS: 1201}) == {WORDS: 1201}


@pytest.mark.slow
def test_the_table_is_printed_and_the_places_of_a_figure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["house"])
    house.main()
    lines = capsys.readouterr().out.splitlines()
    for name in (*house.counts(REPOSITORY), *LIMITS):
        assert any(line.startswith(name) for line in lines)
    figure = "type: ignore, product"
    monkeypatch.setattr(sys, "argv", ["house", str(REPOSITORY), figure])
    house.main()
    assert capsys.readouterr().out.splitlines() == house.counts(REPOSITORY)[figure]()


def test_the_program_counts_in_the_root_that_it_is_given(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "ARCHITECTURE.md").write_text("Three words here.\n")
    for folder in house.FOLDERS:
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "only.py").write_text("from typing import Any\n\n\ndef f(x: Any): ...\n")
    command = [sys.executable, "-m", "tests.house", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert any(line.split() == ["Any,", "impl", "2"] for line in done.stdout.splitlines())
    assert f"{WORDS} 3" in {" ".join(line.split()) for line in done.stdout.splitlines()}
    done = subprocess.run([*command, "Any, impl"], cwd=REPOSITORY, capture_output=True, text=True, check=True)
    assert done.stdout == "impl.only:1: Any\nimpl.only:4: Any\n"
