"""A plugin of pytest that tries each comparison of somebody's tests with outputs that are wrong on purpose.

What this is for: a tolerance that was chosen lets faults pass, and nobody sees which. So wherever a test compares
numbers and is content, the same comparison is made of spoiled ones as well, and the test goes on as ever. What came of
it is appended to the file that the environment variable `OPASSAY_COMPARISONS` names, a line each.
"""

from __future__ import annotations

import ast
import copy
import functools
import importlib
import inspect
import json
import linecache
import os
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
import torch
from torch.jit import _builtins
from torch.utils import _pytree as pytree

from ..spoils import SPOILS

#: Where the functions are that compare, their names, and which argument is judged: `a == approx(b)` asks approx(b).
_COMPARERS: tuple[tuple[Any, str, int], ...] = (
    (torch.testing, "assert_close", 0), (torch, "allclose", 0), (torch.Tensor, "allclose", 0),
    (np, "allclose", 0), (np.testing, "assert_allclose", 0), (np.testing, "assert_array_almost_equal", 0),
    (torch, "equal", 0), (torch.Tensor, "equal", 0), (np, "array_equal", 0), (np.testing, "assert_array_equal", 0),
    *((type(vars(pytest)["approx"](value)), "__eq__", 1) for value in (0.0, [0.0], {"": 0.0}, np.zeros(1))),
)  # fmt: skip
_FUNCTIONS = frozenset(name for _, name, _ in _COMPARERS)
#: Those that programs ask as often as tests do, so that they are a test's only where an assertion holds the call.
_ASKED = frozenset({"equal", "array_equal"})
#: The name of an answer in an assertion that is made once more, and what such a one may not have beside it.
_ANSWER = "__answer"
_RUNS = (ast.Call, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.NamedExpr, ast.Await, ast.Yield)
#: What the first two arguments may be called.
_NAMES = (("actual", "input", "a", "x"), ("expected", "desired", "other", "b", "y"))
#: The environment variables that name a file, and further functions that compare: MODULE:FUNCTION, or
#: MODULE:FUNCTION:N where the numbers to be judged are argument N, counted from 0; with spaces between them.
_FILE, _MORE = "OPASSAY_COMPARISONS", "OPASSAY_COMPARERS"
#: The comparison that is being made; empty for none.
_COMPARES: list[Callable[..., Any]] = []


def pytest_configure() -> None:
    """Put a function that tries faults in the place of each that compares, before a test imports it."""
    for owner, name, place in _COMPARERS:
        setattr(owner, name, _with_faults(getattr(owner, name), place))
    for words in os.environ.get(_MORE, "").split():
        module, name, *position = words.split(":")
        owner = importlib.import_module(module)
        setattr(owner, name, _with_faults(getattr(owner, name), int(position[0]) if position else 0))


def _with_faults(compare: Callable[..., Any], position: int = 0) -> Callable[..., Any]:
    @functools.wraps(compare)
    def compare_all(*args: Any, **options: Any) -> Any:
        __tracebackhide__ = True
        # A comparison inside of another one, of which the outer one is theirs; or one that becomes part of a graph.
        if _COMPARES or torch.compiler.is_compiling():
            return compare(*args, **options)
        _COMPARES.append(compare)
        try:
            answer = compare(*args, **options)  # one that fails by itself raises here, and says nothing of faults
            frame = sys._getframe(1)
            holds = _meaning_of(compare.__name__, answer, frame)
            if holds is not None and _is_content(holds, answer):
                _note(compare, holds, (position, args, options), frame)
        finally:
            _COMPARES.pop()
        return answer

    operator = _builtins._find_builtin(compare)
    if operator is not None:  # TorchScript reads a call of a function of torch by the function's identity
        _builtins._register_builtin(compare_all, operator)
    return compare_all


def _is_content(holds: Callable[[Any], bool], answer: Any) -> bool:
    """Whether an answer passes; also where that cannot be said, so that it is counted."""
    try:
        return holds(answer)
    except Exception as err:
        return not isinstance(err, AssertionError)


def _meaning_of(name: str, answer: Any, frame: FrameType) -> Callable[[Any], bool] | None:
    """What says whether an answer is a content one: its truth, or else the assertion around the call, made once more.

    None where a program asks for itself. What is returned raises TypeError where nothing says it.
    """
    text = _assertion_at(name, frame.f_code.co_filename, frame.f_lineno)
    is_tensor = isinstance(answer, torch.Tensor) and answer.dtype == torch.bool and answer.numel() == 1
    if answer is None or isinstance(answer, bool | np.bool_) or is_tensor:
        return None if name in _ASKED and text is None else lambda value: value is None or bool(value)
    code = _with_answer(text, name) if text is not None else None

    def assert_again(value: Any) -> bool:
        if code is None:
            raise TypeError(f"{name} gives no truth value, and no assertion around it without other calls judges it")
        result = eval(code, {**frame.f_globals, **frame.f_locals, _ANSWER: value})
        return result is None if isinstance(text, ast.Expr) else bool(result)

    return assert_again


@functools.cache
def _tree_of(file: str) -> list[ast.AST]:
    return [*ast.walk(ast.parse("".join(linecache.getlines(file))))]


@functools.cache
def _assertion_at(name: str, file: str, line: int) -> ast.Assert | ast.Expr | None:
    """The statement of a line, where it is `assert` or a call of assert..., and calls a function by its name."""
    for node in _tree_of(file):
        if isinstance(node, ast.Assert | ast.Expr) and node.lineno <= line <= (node.end_lineno or 0):
            asserts = isinstance(node, ast.Assert) or _name_of(node.value).startswith("assert")
            if asserts and any(_name_of(each) == name for each in ast.walk(node)):
                return node
    return None


def _name_of(node: ast.AST) -> str:
    """The name of the function that an expression calls; empty for any other."""
    return str(getattr(node.func, "attr", getattr(node.func, "id", ""))) if isinstance(node, ast.Call) else ""


def _with_answer(text: ast.Assert | ast.Expr, name: str) -> CodeType | None:
    """What a statement asserts, with a name in the place of its one call; None where more than that would be run.

    A call of something else, made twice, could change what the test does next; one of the answer, as abs(...), cannot.
    """
    whole = text.test if isinstance(text, ast.Assert) else text.value
    first, *others = [node for node in ast.walk(whole) if _name_of(node) == name]
    inside = {*ast.walk(first)}
    runs = [node for node in ast.walk(whole) if isinstance(node, _RUNS) and node not in inside]
    if others or not all(isinstance(node, ast.Call) and first in ast.walk(node) for node in runs):
        return None
    other = copy.deepcopy(whole, {id(first): ast.copy_location(ast.Name(_ANSWER, ast.Load()), first)})
    return compile(ast.Expression(other), "<assertion>", "eval")


def _note(
    compare: Callable[..., Any], holds: Callable[[Any], bool], call: tuple[int, tuple[Any, ...], dict[str, Any]],
    frame: FrameType,
) -> None:  # fmt: skip
    """Compare again with each fault, and write which are seen, and why others could not be tried."""
    position, args, options = call
    is_positional = len(args) > position
    key = next((name for name in (*_parameter_names(compare, position), *_NAMES[0]) if name in options), "")
    actual = args[position] if is_positional else options.get(key)
    sees, misses, untried = list[str](), list[str](), dict[str, str]()
    before = pytree.tree_leaves(actual)
    for name, spoil in SPOILS.items():
        try:
            wrong = pytree.tree_map(functools.partial(_spoil, spoil), actual)
            if all(one is other for one, other in zip(before, pytree.tree_leaves(wrong), strict=True)):
                continue
            own = (*args[:position], wrong, *args[position + 1 :]) if is_positional else args
            passes = holds(compare(*own, **(options if is_positional else {**options, key: wrong})))
        except AssertionError:
            passes = False
        except Exception as err:
            untried[name] = f"{type(err).__name__}: {err}"
            continue
        (misses if passes else sees).append(name)
    if sees or misses or untried:
        row = {
            "test": os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0],
            "line": f"{frame.f_code.co_filename}:{frame.f_lineno}", "by": compare.__name__.replace("__eq__", "approx"),
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
    """A floating tensor, array or number with a fault; the same object where it is none, or nothing changes."""
    is_array = isinstance(value, np.ndarray | np.floating | float) and np.asarray(value).dtype.char in "efd"
    if not is_array and not (isinstance(value, torch.Tensor) and value.is_floating_point()):
        return value
    own = (
        torch.from_numpy(np.array(value, dtype=np.asarray(value).dtype.newbyteorder("=")))
        if is_array
        else value.detach()
    )
    wrong = spoil(own) if own.numel() else own
    one, other = wrong.double(), own.double()
    # The sign of a zero or of a NaN is no fault that a test should see.
    if one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all()):
        return value
    if not is_array:
        return wrong
    return wrong.numpy() if isinstance(value, np.ndarray) else type(value)(wrong.item())


def _assertions(frame: FrameType) -> Iterator[str]:
    """The assertion by a reference that would stand in a line, where the source shows how the right value is made."""
    first, nodes = frame.f_code.co_firstlineno, _tree_of(frame.f_code.co_filename)
    calls = [node for node in nodes if isinstance(node, ast.Call) and node.lineno == frame.f_lineno]
    for call in [call for call in calls if _name_of(call) in _FUNCTIONS]:
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
