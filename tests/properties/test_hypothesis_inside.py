"""What opassay takes from inside Hypothesis, which promises nothing of it: each name, and what breaks without it.

The requirement stays below the next major version for that reason. Whoever raises it reads here what to look at.
"""

from __future__ import annotations

import ast
import importlib
import tomllib
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies as st

REPOSITORY = Path(__file__).resolve().parents[2]
#: module:name -> what breaks without it.
INSIDE = {
    "hypothesis.internal.conjecture.data:ConjectureData": "properties/picking/drafting.py draws nothing",
    "hypothesis.internal.conjecture.providers:_get_local_constants": "samples depend on which modules are loaded",
    "hypothesis.internal.conjecture.providers:Constants": "properties/engine/limits.py raises",
    "hypothesis.internal.conjecture.providers:CONSTANTS_CACHE": "properties/engine/limits.py raises",
}


@pytest.mark.parametrize("address", INSIDE)
def test_what_is_taken_from_inside_is_there(address: str) -> None:
    module, name = address.split(":")
    assert hasattr(importlib.import_module(module), name), f"{address} is gone: {INSIDE[address]}"


def test_the_key_of_the_database_is_taken_from_the_test() -> None:
    # `properties/engine/draws.py` has Hypothesis make a sample simpler that it finds under a key of ours.
    database, key = hypothesis.database.InMemoryExampleDatabase(), b"failing"

    def fail(number: int) -> None:
        raise ValueError(number)

    test = hypothesis.given(st.integers())(fail)
    setattr(test, "_hypothesis_internal_database_key", key)  # noqa: B010 - not an attribute that types know
    with pytest.raises(ValueError, match="0"):
        hypothesis.settings(database=database, phases=[hypothesis.Phase.generate])(test)()
    assert set(database.fetch(key)), "the attribute has another name: failures are not made simpler"


def test_the_list_is_whole() -> None:
    modules = {
        text
        for path in (REPOSITORY / "properties").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for text in ([node.module or ""] if isinstance(node, ast.ImportFrom) else _strings(node))
        if text.startswith("hypothesis.internal")
    }
    assert modules == {address.partition(":")[0] for address in INSIDE}


def _strings(node: ast.AST) -> list[str]:
    return [node.value] if isinstance(node, ast.Constant) and isinstance(node.value, str) else []


def test_the_requirement_ends_before_the_next_major_version() -> None:
    extras = tomllib.loads((REPOSITORY / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (requirement,) = [line for line in extras["optional-dependencies"]["verify"] if line.startswith("hypothesis")]
    major = int(hypothesis.__version__.partition(".")[0])
    assert requirement.endswith(f",<{major + 1}")
