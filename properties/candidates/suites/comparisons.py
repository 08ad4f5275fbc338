"""A plugin of pytest that tries each comparison of somebody's tests with outputs that are wrong on purpose.

What this is for: a tolerance that was chosen lets faults pass, and nobody sees which. So wherever a test compares
numbers and is content, the same comparison is made of spoiled ones as well, and the test goes on as ever. What came of
it is appended to the file that the environment variable `OPASSAY_COMPARISONS` names, a line each.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ....oracles.op.bits import same_bits
from ..spoils import SPOILS

#: Where the functions are that compare, and their names.
_COMPARERS: tuple[tuple[Any, str], ...] = (
    (torch.testing, "assert_close"), (torch, "allclose"), (torch.Tensor, "allclose"),
    (np, "allclose"), (np.testing, "assert_allclose"), (np.testing, "assert_array_almost_equal"),
)  # fmt: skip
_FUNCTIONS = frozenset(name for _, name in _COMPARERS)
#: What the first two arguments may be called.
_NAMES = (("actual", "input", "a", "x"), ("expected", "desired", "other", "b", "y"))
#: The environment variables that name a file, and further functions that compare: MODULE:FUNCTION, or
#: MODULE:FUNCTION:N where the numbers to be judged are argument N, counted from 0; with spaces between them.
_FILE, _MORE = "OPASSAY_COMPARISONS", "OPASSAY_COMPARERS"
#: The comparison that is being made; empty for none.
_COMPARES: list[Callable[..., Any]] = []


def pytest_configure() -> None:
    """Put a function that tries faults in the place of each that compares, before a test imports it."""
    for owner, name in _COMPARERS:
        setattr(owner, name, _with_faults(getattr(owner, name)))
    for words in os.environ.get(_MORE, "").split():
        module, name, *position = words.split(":")
        owner = importlib.import_module(module)
        setattr(owner, name, _with_faults(getattr(owner, name), int(position[0]) if position else 0))


def _with_faults(compare: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
    @functools.wraps(compare)
    def compare_all(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        if _COMPARES:  # a comparison inside of another one, of which the outer one is theirs
            return compare(*args, **options)
        _COMPARES.append(compare)
        try:
            answer = compare(*args, **options)  # one that fails by itself raises here, and says nothing of faults
            if answer is None or bool(answer):
                _note(compare, position, args, options, sys._getframe(1))
        finally:
            _COMPARES.pop()
        return answer

    return compare_all


def _note(
    compare: Callable[..., Any], position: int, args: tuple[Any, ...], options: dict[str, Any], frame: FrameType
) -> None:
    """Compare again with each fault, and write which are seen, and why others could not be tried."""
    is_positional = len(args) > position
    key = next((name for name in (*_parameter_names(compare, position), *_NAMES[0]) if name in options), "")
    actual = args[position] if is_positional else options.get(key)
    sees, misses, untried = list[str](), list[str](), dict[str, str]()
    before = pytree.tree_leaves(actual)
    for name, spoil in SPOILS.items():
        wrong = pytree.tree_map(functools.partial(_spoil, spoil), actual)
        if all(one is other for one, other in zip(before, pytree.tree_leaves(wrong), strict=True)):
            continue
        own = (*args[:position], wrong, *args[position + 1 :]) if is_positional else args
        try:
            answer = compare(*own, **(options if is_positional else {**options, key: wrong}))
        except AssertionError:
            answer = False
        except Exception as err:
            untried[name] = f"{type(err).__name__}: {err}"
            continue
        (misses if answer is None or answer else sees).append(name)
    if sees or misses or untried:
        row = {
            "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
            "line": f"{frame.f_code.co_filename}:{frame.f_lineno}", "by": compare.__name__,
            "sees": sees, "misses": misses, "untried": untried, "instead": next(_assertions(frame), ""),
        }  # fmt: skip
        with open(os.environ[_FILE], "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")


def _parameter_names(function: Callable[..., Any], position: int) -> list[str]:
    """The name of a parameter, by which it may be handed over; none of a function in C."""
    try:
        return [*inspect.signature(function).parameters][position : position + 1]
    except (TypeError, ValueError):
        return []


def _spoil(spoil: Callable[[torch.Tensor], torch.Tensor], value: Any) -> Any:
    """A floating tensor or array with a fault; the same object where it is none, or the fault changes nothing."""
    is_array = isinstance(value, np.ndarray) and value.dtype.kind == "f"
    if not is_array and not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return value
    own = torch.tensor(value) if is_array else value.detach()
    wrong = spoil(own) if own.numel() else own
    if same_bits(wrong, own):
        return value
    return wrong.numpy() if is_array else wrong


def _assertions(frame: FrameType) -> Iterator[str]:
    """The assertion by a reference that would stand in a line, where the source shows how the right value is made."""
    first, lines = frame.f_code.co_firstlineno, linecache.getlines(frame.f_code.co_filename)
    nodes = list(ast.walk(ast.parse("".join(lines))))
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.lineno == frame.f_lineno]
    for call in [call for call in calls if getattr(call.func, "attr", getattr(call.func, "id", "")) in _FUNCTIONS]:
        named = {each.arg: each.value for each in call.keywords}
        pair = [*_owner_of(call, frame), *call.args]
        pair += [named[name] for names in _NAMES for name in names if name in named]
        right = pair[1] if len(pair) > 1 else None
        if isinstance(right, ast.Name):  # what the function has made it last
            above = [
                node.value for node in nodes if isinstance(node, ast.Assign) and first <= node.lineno < call.lineno
                and ast.unparse(node.targets[0]) == right.id
            ]  # fmt: skip
            right = above[-1] if above else right
        if isinstance(right, ast.Call) and not right.keywords and not _owner_of(right, frame):
            yield f"assert_conforms({', '.join(map(ast.unparse, [pair[0], right.func, *right.args]))})"


def _owner_of(call: ast.Call, frame: FrameType) -> list[ast.expr]:
    """The tensor of whose method a call is, as an expression; nothing where it is none."""
    owner = getattr(call.func, "value", None)
    places = {**frame.f_globals, **frame.f_locals}
    module = isinstance(owner, ast.Name) and not isinstance(places.get(owner.id), torch.Tensor)
    return [] if owner is None or module or isinstance(owner, ast.Attribute) else [owner]
