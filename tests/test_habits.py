"""Habits that reviews forget: no chosen tolerances, reasons for skips, short functions, telling names."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.syntax import nodes, parse

REPOSITORY = Path(__file__).resolve().parents[1]
CODE = ("api", "reference", "impl", "oracles", "properties", "reports", "tests", "benchmarks", "workshop", "corpus")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".ini", ".txt", ".html", ".css", ".js", ".j2", ".cfg", ".yml", ".yaml"}

LONGEST_FUNCTION = 60  # lines, without the docstring; kernels in a language of their own are exempt
LONGEST_FILE = 400

#: Comparisons with a tolerance that somebody chose; benchmarks may call them, to be compared with.
TOLERANCES = {"rtol", "atol", "rel_tol", "abs_tol"}
COMPARATORS = {"allclose", "isclose", "assert_close", "assert_allclose", "assert_almost_equal", "approx"}
#: Packages whose business is to pickle objects, or that do so on the way to another process.
PICKLERS = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "multiprocessing"}
PICKLERS |= {"torch.multiprocessing", "concurrent.futures.process"}
#: Functions of torch.distributed and others that pickle what they are given.
SENDERS_OF_OBJECTS = {"all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list"}
SENDERS_OF_OBJECTS |= {"send_object_list", "recv_object_list", "ProcessPoolExecutor", "__reduce__", "__reduce_ex__"}
#: Words about how the repository came to be; its text speaks of the product.
FOREIGN_WORDS = re.compile(
    r"shared/|\bprototypes?\b|\bseed 0\d\d\b|\b(design|error_model|style|report_and_gate)\.md\b"
    r"|\bclaude\b|\banthropic\b|\bchatgpt\b|\bopenai\b|\bLLMs?\b|\bAI[- ](agent|assistant|generated)"
    r"|\b(sub)?agents?\b|\b(coding|work) session\b|\bTODO\b|\bFIXME\b",
    re.IGNORECASE,
)

#: Past participles, which do not say what a name stands for: a name is a noun, that of a function begins with a verb.
PARTICIPLES = {
    "asked", "caught", "chosen", "drawn", "forgotten", "found", "given", "gone", "heard", "held", "kept", "made", "met",
    "planted", "refused", "said", "seen", "shown", "sought", "spared", "taken", "thrown", "told", "tried", "written",
}  # fmt: skip
#: Keys of files that users have, and words of the command line, which are fields and parameters of the same name.
PUBLISHED_NAMES = {
    "oracles/judge/tally.py: refused",
    "oracles/verdicts/verdict.py: refused",
    "properties/candidates/cases.py: given",
    "properties/candidates/judgement.py: kept",
    "reports/cli/serving/queue.py: given",
}


def _sources() -> list[Path]:
    return sorted(path for folder in CODE for path in (REPOSITORY / folder).rglob("*.py"))


def _texts() -> list[Path]:
    top = [path for path in REPOSITORY.iterdir() if path.is_file() and path.suffix in TEXT_SUFFIXES]
    below = [path for folder in (*CODE, ".ci") for path in (REPOSITORY / folder).rglob("*")]
    return sorted(top + [path for path in below if path.suffix in TEXT_SUFFIXES or path.parent.name == ".ci"])


def _name(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


# ------------------------------------------------------------------------------------------------- the habits


def participles(tree: ast.Module) -> Iterator[str]:
    """Participles that are names of functions, classes, parameters, variables or fields; names of states are exempt."""
    for node in nodes(tree):
        match node:
            case ast.FunctionDef(name=str(name)) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                pass
            case _:
                continue
        if name.strip("_").lower() in PARTICIPLES and not name.isupper():
            yield f"{node.lineno}: {name}"


def chosen_tolerances(tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree):
        match node:
            case ast.keyword(arg=str(name)) | ast.arg(arg=name) if name in TOLERANCES:
                yield f"{node.lineno}: {name}="
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in COMPARATORS:
                yield f"{node.lineno}: {name}"
            case ast.ImportFrom(names=aliases):
                yield from (f"{node.lineno}: {alias.name}" for alias in aliases if alias.name in COMPARATORS)


def skips_without_reason(tree: ast.Module) -> Iterator[str]:
    calls = {id(node.func): node for node in nodes(tree) if isinstance(node, ast.Call)}
    for node in nodes(tree):
        if not isinstance(node, ast.Attribute) or node.attr not in {"skip", "skipif", "xfail"}:
            continue
        owner = ast.unparse(node.value)
        if owner not in {"pytest", "pytest.mark", "mark"}:
            continue
        call = calls.get(id(node))
        positional = owner == "pytest" and call is not None and bool(call.args)
        if not positional and not (call and any(keyword.arg == "reason" for keyword in call.keywords)):
            yield f"{node.lineno}: {owner}.{node.attr}"


def pickles(tree: ast.Module) -> Iterator[str]:
    """What reads or writes pickles, or sends objects that are pickled on their way: reading one runs what it says."""
    for node in nodes(tree):
        match node:
            case ast.Import(names=aliases):
                names = [alias.name for alias in aliases]
                yield from (f"{node.lineno}: {name}" for name in names if {name, name.partition(".")[0]} & PICKLERS)
            case ast.ImportFrom(module=str(name)) if {name, name.partition(".")[0]} & PICKLERS:
                yield f"{node.lineno}: {name}"
            case ast.Constant(value=str(name)) if name in PICKLERS:
                yield f"{node.lineno}: {name}"  # imported by name
            case ast.Attribute(value=ast.Name(id="torch" | "np" | "numpy"), attr="save" | "load" | "savez"):
                yield f"{node.lineno}: {ast.unparse(node)}"
            case ast.ImportFrom(module="torch", names=aliases):
                yield from (f"{node.lineno}: torch.{a.name}" for a in aliases if a.name in {"save", "load"})
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in SENDERS_OF_OBJECTS:
                yield f"{node.lineno}: {name}"


def long_functions(tree: ast.Module) -> Iterator[str]:
    for node in nodes(tree):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        if any("triton" in ast.unparse(decorator) for decorator in node.decorator_list):
            continue
        body = node.body[1:] if ast.get_docstring(node) is not None else node.body
        lines = (node.end_lineno or 0) - body[0].lineno + 1 if body else 0
        if lines > LONGEST_FUNCTION:
            yield f"{node.lineno}: {node.name} has {lines} lines"


def foreign_words(text: str) -> Iterator[str]:
    for result in FOREIGN_WORDS.finditer(text):
        yield f"{text.count(chr(10), 0, result.start()) + 1}: {result.group()}"


def _all(check: Callable[[ast.Module], Iterator[str]], paths: list[Path]) -> list[str]:
    return [f"{_name(path)}:{result}" for path in paths for result in check(parse(path))]


# --------------------------------------------------------------------------------------------- the repository


def test_no_tolerance_is_chosen() -> None:
    judged = [path for path in _sources() if not _name(path).startswith("benchmarks/")]
    assert _all(chosen_tolerances, judged) == []


def test_no_pickle_is_read_or_written() -> None:
    shipped = [path for path in _sources() if not _name(path).startswith(("tests/", "benchmarks/"))]
    assert _all(pickles, shipped) == []


def test_every_skip_has_a_reason() -> None:
    assert _all(skips_without_reason, _sources()) == []


def test_functions_are_short() -> None:
    assert _all(long_functions, _sources()) == []


def test_files_are_short() -> None:
    lengths = {_name(path): len(path.read_text().splitlines()) for path in _sources()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_FILE} == {}


def test_files_are_named_for_what_they_hold() -> None:
    vague = {"utils", "util", "helpers", "helper", "misc", "common"}
    assert [_name(path) for path in _sources() if path.stem.strip("_") in vague] == []


def test_names_are_no_participles() -> None:
    names = {f"{_name(path)}: {line.partition(': ')[2]}" for path in _sources() for line in participles(parse(path))}
    assert names == PUBLISHED_NAMES


def test_packages_only_re_export() -> None:
    # `opassay` itself loads its names on first use (PEP 562), so that importing it pulls in nothing.
    allowed = (ast.Import, ast.ImportFrom, ast.Assign, ast.AnnAssign)
    lazy = {"__getattr__", "__dir__", "_homes"}
    logic = [
        f"{_name(path)}:{node.lineno}"
        for path in _sources()
        if path.name == "__init__.py" and not _name(path).startswith("tests/")
        for node in parse(path).body
        if not isinstance(node, allowed)
        and not (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant))
        and not (_name(path) == "api/__init__.py" and (getattr(node, "name", "") in lazy or isinstance(node, ast.If)))
    ]
    assert logic == []


def test_the_text_speaks_of_the_product_alone() -> None:
    here = Path(__file__).resolve()
    texts = [path for path in _texts() if path != here]
    assert {"README.md", "ARCHITECTURE.md", "pyproject.toml", ".ci/run"} <= {_name(path) for path in texts}
    assert [f"{_name(path)}:{result}" for path in texts for result in foreign_words(path.read_text())] == []


# ---------------------------------------------------------------------------------------------- the habits, tested


@pytest.mark.parametrize(
    ("check", "source", "lines"),
    [
        (participles, "def found(): ...", ["1: found"]),
        (
            participles,
            "class C:\n    held: int\n    def f(self, given): self._kept = told = 1",
            ["2: held", "3: given", "3: _kept", "3: told"],
        ),
        (participles, "HELD = 1\nfind(is_found, x.held, told=2)", []),
        (chosen_tolerances, "f(a, b, rtol=1e-3)", ["1: rtol="]),
        (chosen_tolerances, "def f(a, atol): ...", ["1: atol"]),
        (chosen_tolerances, "torch.allclose(a, b)", ["1: allclose"]),
        (chosen_tolerances, "from torch.testing import assert_close", ["1: assert_close"]),
        (chosen_tolerances, "assert x == pytest.approx(1)", ["1: approx"]),
        (chosen_tolerances, "'''assert_close would pass'''", []),
        (pickles, "import pickle", ["1: pickle"]),
        (pickles, "from pickle import dumps", ["1: pickle"]),
        (pickles, "import importlib\nimportlib.import_module('marshal')", ["2: marshal"]),
        (pickles, "import torch.multiprocessing", ["1: torch.multiprocessing"]),
        (pickles, "from multiprocessing import Queue", ["1: multiprocessing"]),
        (pickles, "torch.save(x, f)", ["1: torch.save"]),
        (pickles, "np.load(f)", ["1: np.load"]),
        (pickles, "from torch import load", ["1: torch.load"]),
        (pickles, "dist.all_gather_object(found, x)", ["1: all_gather_object"]),
        (pickles, "json.load(f)\nmsgspec.msgpack.encode(x)\nrecord.save(f)", []),
        (skips_without_reason, "pytest.skip()", ["1: pytest.skip"]),
        (skips_without_reason, "@pytest.mark.skip\ndef test_f(): ...", ["1: pytest.mark.skip"]),
        (skips_without_reason, "@pytest.mark.xfail(strict=True)\ndef test_f(): ...", ["1: pytest.mark.xfail"]),
        (skips_without_reason, "pytest.skip('no GPU')\npytest.xfail(reason='known')", []),
        (skips_without_reason, "reader.skip()", []),
        (long_functions, "def f():\n" + "    pass\n" * 61, ["1: f has 61 lines"]),
        (long_functions, "def f():\n    '''" + "\n" * 90 + "'''\n" + "    pass\n" * 60, []),
        (long_functions, "@triton.jit\ndef f():\n" + "    pass\n" * 99, []),
    ],
)
def test_a_planted_habit_is_found(check: Callable[[ast.Module], Iterator[str]], source: str, lines: list[str]) -> None:
    assert [line.removesuffix("=") for line in check(ast.parse(source))] == [line.removesuffix("=") for line in lines]


@pytest.mark.parametrize("text", ["see shared/design", "a Prototype of it", "made by an agent", "# TODO later"])
def test_a_planted_foreign_word_is_found(text: str) -> None:
    assert len(list(foreign_words(f"first line\n{text}"))) == 1


def test_words_of_the_product_are_not_foreign() -> None:
    assert list(foreign_words("a shared weight; pytest_sessionfinish; the user's session; domain; AIX")) == []
