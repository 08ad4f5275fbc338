"""The form that maintainers act on, as rules: `find_faults` says what a dossier lacks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date

from .dossier import BROKEN, FIXED, NOT_RUN, PRESENT, Dossier
from .trying import ACTUAL, EXPECTED

MOST_LINES = 15
#: Distribution -> what its program may import besides `EVERYWHERE`.
MODULES = {
    "liger-kernel": {"liger_kernel", "torch", "triton"},
    "onnxruntime": {"onnxruntime", "onnx", "numpy"},
    "jax": {"jax"},
    "flax": {"flax", "jax"},
    "optax": {"optax", "jax"},
    "fla-core": {"fla", "torch"},
    "tinygrad": {"tinygrad"},
    "triton": {"triton", "torch"},
    "paddlepaddle": {"paddle"},
    "torchmetrics": {"torchmetrics", "torch"},
}
EVERYWHERE = {"math", "mpmath", "subprocess", "sys"}
#: What a program prints beside a value that another way of the same library has right.
TWINS = ("float64", "gradcheck", "twin")
#: A report speaks of the fault, and not of what found it.
_OURS = re.compile(r"\b(opassay|bound|ball)s?\b", re.IGNORECASE)
_LONGEST_MECHANISM = 400


def find_faults(dossier: Dossier) -> list[str]:
    """What a dossier lacks; empty where the form is kept."""
    return [*_of_program(dossier), *_of_words(dossier), *_of_test(dossier.test), *_of_record(dossier)]


def _of_program(dossier: Dossier) -> Iterator[str]:
    lines = dossier.program.splitlines()
    if len(lines) > MOST_LINES:
        yield f"program: {len(lines)} lines, at most {MOST_LINES}"
    try:
        tree = ast.parse(dossier.program)
    except SyntaxError as err:
        yield f"program: {err}"
        return
    library = dossier.heading.library
    if strange := list_imports(tree) - MODULES.get(library, {library}) - EVERYWHERE:
        yield f"program: imports {', '.join(sorted(strange))}, which a report on {library} has no need of"
    words = " ".join(
        node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ).split()
    yield from (f"program: prints no {word!r}" for word in (ACTUAL, EXPECTED) if word not in words)
    if bool(dossier.no_twin) == any(word in words for word in TWINS):
        yield f"program: either prints a twin ({', '.join(TWINS)}), or no_twin says why there is none"
    last = tree.body[-1] if tree.body else None
    if not (isinstance(last, ast.Raise) and last.exc and ast.unparse(last.exc).startswith("SystemExit(")):
        yield "program: ends without `raise SystemExit(...)`, which says whether the fault is there"


def list_imports(tree: ast.AST) -> set[str]:
    """The packages that a program imports."""
    statements = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = [
        name
        for node in statements
        for name in ([alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or ""])
    ]
    return {name.partition(".")[0] for name in modules}


def _of_words(dossier: Dossier) -> Iterator[str]:
    heading = dossier.heading
    for key, text in {"title": heading.title, "harm": heading.harm, "truth": dossier.truth}.items():
        if not text:
            yield f"{key}: empty"
    mechanism = dossier.mechanism
    if not mechanism.endswith(".") or len(mechanism) > _LONGEST_MECHANISM or re.search(r"[.!?] [A-Z]", mechanism):
        yield f"mechanism: not one sentence of at most {_LONGEST_MECHANISM} characters"
    texts = {"title": heading.title, "program": dossier.program, "truth": dossier.truth, "mechanism": mechanism}
    for key, text in texts.items():
        if word := _OURS.search(text):
            yield f"{key}: says {word[0]!r}; the fault comes first"


def _of_test(test: str) -> Iterator[str]:
    try:
        tree = ast.parse(test)
    except SyntaxError as err:
        yield f"test: {err}"
        return
    if not any(isinstance(node, ast.FunctionDef) and node.name.startswith("test_") for node in tree.body):
        yield "test: no function test_..."
    asserts = any(
        isinstance(node, ast.Assert) or (isinstance(node, ast.Attribute) and node.attr.startswith("assert"))
        for node in ast.walk(tree)
    )
    if not asserts:
        yield "test: asserts nothing"


def _of_record(dossier: Dossier) -> Iterator[str]:
    search = dossier.search
    if not search.words or not all(search.words) or not isinstance(search.day, date):
        yield "search: no words or no date"
    if not search.threads and "found no report" not in search.text:
        yield "upstream: neither links a thread nor says that none was found"
    if not any(each.outcome in (PRESENT, FIXED) for each in dossier.attempts):
        yield "attempts: tried at no version"
    for each in dossier.attempts:
        if each.outcome == BROKEN:
            yield f"attempts: the program broke at {each.version}"
        if not each.output or (not each.version and each.outcome != NOT_RUN):
            yield f"attempts: one of {each.day} has no version, or nothing was printed"
        try:
            date.fromisoformat(each.day)
        except ValueError:
            yield f"attempts: day={each.day!r} is no date"
