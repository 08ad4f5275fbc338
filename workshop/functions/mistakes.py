"""Mistakes in writing or calling a custom function, each with the error that it must raise."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opassay.properties.declaring import refusals

from .spec import spec_of


@dataclass(frozen=True)
class FunctionMistake:
    """One mistake.

    Attributes:
        call: (the function, a tensor) -> makes the call that must be refused.
        error: its type. mentions: words that its text must have.
        members: members of the class that replace those of a class that doubles its argument; None removes one.
    """

    call: Callable[[Any, Tensor], Any]
    error: type[Exception]
    mentions: tuple[str, ...] = ()
    members: dict[str, Any] = dataclasses.field(default_factory=dict)


def _apply_plainly(f: Any, x: Tensor) -> Any:
    return f.apply(x)


def _call_under_vmap(f: Any, x: Tensor) -> Any:
    return torch.func.vmap(f.apply)(x.unsqueeze(0))


def _pull_under_vmap(f: Any, x: Tensor) -> Any:
    slices = x.unsqueeze(0)
    return torch.func.vjp(torch.func.vmap(f.apply), slices)[1](slices)


def _push(f: Any, x: Tensor) -> Any:
    return torch.func.jvp(f.apply, (x,), (x,))


def _sets(name: str) -> Callable[[Any, Any, Any], None]:
    return lambda ctx, inputs, output: setattr(ctx, name, 1)


def _rule(result: Callable[[Tensor], Any]) -> dict[str, Any]:
    return {"generate_vmap_rule": False, "vmap": lambda info, in_dims, x: result(x)}


_RESERVED = "reserves"
WRONG: dict[str, FunctionMistake] = {
    "an argument given twice": FunctionMistake(
        lambda f, x: f.apply(x, 2.0, number=2.0), TypeError, ("number",), {"forward": lambda x, number: number * x}
    ),
    "one argument too many": FunctionMistake(lambda f, x: f.apply(x, x), TypeError),
    "a keyword-only parameter": FunctionMistake(
        _apply_plainly, TypeError, ("number",), {"forward": lambda x, *, number=2.0: number * x}
    ),
    "an argument by name for a forward that has the context": FunctionMistake(
        lambda f, x: f.apply(x=x), TypeError, ("x",), {"forward": lambda ctx, x: 2 * x, "setup_context": None}
    ),
    "backward and vjp": FunctionMistake(
        _apply_plainly, RuntimeError, ("backward", "vjp"), {"vjp": lambda ctx, g: 2 * g}
    ),
    "no setup_context under vmap": FunctionMistake(
        _call_under_vmap, RuntimeError, ("setup_context",), {"forward": lambda ctx, x: 2 * x, "setup_context": None}
    ),
    "no vmap rule": FunctionMistake(_call_under_vmap, RuntimeError, ("vmap",), {"generate_vmap_rule": False}),
    "two vmap rules": FunctionMistake(
        _call_under_vmap, RuntimeError, ("generate_vmap_rule",), _rule(lambda x: (x, 0)) | {"generate_vmap_rule": True}
    ),
    "a vmap rule that returns a list": FunctionMistake(
        _call_under_vmap, RuntimeError, ("two returns",), _rule(lambda x: [x, 0])
    ),
    "a vmap rule that returns too much": FunctionMistake(
        _call_under_vmap, RuntimeError, ("two returns",), _rule(lambda x: (x, 0, 0))
    ),
    "out_dims of another structure": FunctionMistake(
        _call_under_vmap, RuntimeError, ("out_dims",), _rule(lambda x: (x, (0, 0)))
    ),
    "a tangent too many": FunctionMistake(_push, RuntimeError, ("tangents",), {"jvp": lambda ctx, t: (t, t)}),
    "a tangent of another shape": FunctionMistake(
        _push, RuntimeError, ("shape",), {"jvp": lambda ctx, t: t.unsqueeze(0)}
    ),
    "a reserved attribute in setup_context": FunctionMistake(
        _call_under_vmap, RuntimeError, (_RESERVED,), {"setup_context": _sets("_pt_inner_ctx")}
    ),
    "a reserved attribute in backward": FunctionMistake(
        _pull_under_vmap, RuntimeError, (_RESERVED,), {"setup_context": _sets("_pt_new_saved_tensors")}
    ),
    "functionalize": FunctionMistake(
        lambda f, x: torch.func.functionalize(f.apply)(x), RuntimeError, ("functionalize",)
    ),
}


def make_mistake(base: Any, name: str, x: Tensor) -> Any:
    """Make a mistake with a class that derives from `base`; the result of the call if it raises nothing."""
    wrong = WRONG[name]
    members = {
        "forward": lambda x: 2 * x,
        "setup_context": lambda ctx, inputs, output: None,
        "backward": lambda ctx, g: 2 * g,
        "jvp": lambda ctx, t: 2 * t,
        "generate_vmap_rule": True,
    } | wrong.members
    methods = {key: staticmethod(one) if callable(one) else one for key, one in members.items() if one is not None}
    try:
        return wrong.call(type(base)("Mistaken", (base,), methods), x)
    except (TypeError, RuntimeError) as err:
        # The error is about the author's class. As an error of the op `function` it must begin with the op's name.
        raise type(err)(f"function: {err}") from err


def _mistake(name: str, wrong: FunctionMistake) -> refusals.Mistake:
    def change(spec: str) -> dict[str, Any]:
        return {"spec": dataclasses.replace(spec_of(spec), mistake=name).text()}

    return refusals.refusal(name, change, wrong.error, *wrong.mentions)


#: Refusals of the op `function`.
MISTAKES = tuple(_mistake(name, wrong) for name, wrong in WRONG.items())
