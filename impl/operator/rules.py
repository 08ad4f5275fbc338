"""Derivatives of an op by rules: what to save, the backward rule and the forward rule, on records by argument name.

What is hard here is not the rules but what torch does around them. These conditions look arbitrary and are not; each
one broken gives a wrong derivative without an error:

1. The inner call runs with gradients *and* forward AD enabled. The function's forward runs with both off, and outer
   transform levels, which are served inside that inner call, would be lost. (`Operator._below_autograd`)
2. A `jvp` rule works on primals whose innermost tangent has been taken off (`constant_at`), with forward AD back on.
   Torch switches forward AD off inside `jvp`, which would make jvp of jvp zero.
3. Rules are plain torch ops or other `Operator`s. `torch.func` must not be called below the Autograd key.
4. A rule that can be differentiated again recomputes from the inputs whatever was marked non-differentiable.
5. An op used inside a rule is itself an `Operator`, so that it has derivatives of its own.
6. An undefined cotangent or tangent is None, never zeros: zeros of the size of an output cost as much as the output.
7. Under functorch the function must be a single-level one: it acts at one level and the dispatcher does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from . import torch_private as private
from .operator import Derivatives, Operator
from .records import Grads, Record

Saved = TypeVar("Saved", bound=tuple[Any, ...])

Tangents = Tensor | tuple[Tensor | None, ...] | None
"""As the op's outputs: the tangent of the only output, or a tuple with one of each."""


@dataclass(frozen=True, slots=True)
class Rules(Derivatives, Generic[Saved]):
    """Rules written by hand; all are plain functions of plain values.

    Attributes:
        save: (args, outputs, needs) -> what the backward rule needs when only the arguments with `needs.<name>` require
            gradients: a NamedTuple. Tensors in it are saved as torch saves them, other values as they are.
        backward: (saved, needs, cotangents) -> the arguments' cotangents by name. `needs` may have shrunk since `save`.
            A cotangent of an output is None for zero, but not every one of them.
        jvp: (args, tangents) -> the outputs' tangents, None for an output that is None or non-differentiable. A
            tangent in `tangents` is None where an argument carries none.
        non_differentiable: names of the outputs that never carry a derivative.
    """

    save: Callable[[Record, Record, Record], Saved]
    backward: Callable[[Saved, Record, Record], Grads]
    jvp: Callable[[Record, Record], Tangents]
    non_differentiable: tuple[str, ...] = ()

    def around(self, op: Operator[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """`apply` of an autograd function with these rules."""
        base: Any = private.SingleLevelFunction if level == "functorch" else Function
        suffix = {"plain": "", "autograd": "_dispatched", "functorch": "_single_level"}[level]
        members = _Members(self, op, values, level == "functorch")
        rules = {"forward": members.forward, "backward": members.backward, "jvp": members.jvp}
        cls: Any = type(op.name + suffix, (base,), {key: staticmethod(value) for key, value in rules.items()})
        # Function.apply looks for functorch levels first; the callers here have already done so.
        plain: Any = super  # mypy does not know what `super` of a class made here has
        apply: Callable[..., Any] = cls.apply if level == "functorch" else plain(Function, cls).apply
        return apply


class _Members:
    """forward, backward and jvp of an autograd function, between torch's positions and the rules' names."""

    def __init__(
        self,
        rules: Rules[Any],
        op: Operator[*tuple[Any, ...], Any],
        values: Callable[..., Any],
        single_level: bool,
    ) -> None:
        self._rules, self._values, self._single_level = rules, values, single_level
        self._save, self._backward = rules.save, rules.backward
        self._names, self._known = op.argument_names, frozenset(op.argument_names)
        self._arguments, self._outputs, self._tensors = op.arguments, op.outputs, op.tensors
        self._constant = tuple(op.output_names.index(name) for name in rules.non_differentiable)

    def forward(self, ctx: Any, *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        result = self._values(*args)
        outputs = result if type(result) is tuple else (result,)
        kept = self._save(self._arguments(args), self._outputs(outputs), self._arguments(ctx.needs_input_grad))
        ctx.kept_as = type(kept)
        ctx.others = [None if isinstance(value, Tensor) else value for value in kept]
        ctx.save_for_backward(*[value if isinstance(value, Tensor) else None for value in kept])
        level = private.top_jvp_level() if self._single_level else None
        # Where no tangent can be, nothing asks for jvp: keep no argument alive for it.
        if level is not None or forward_ad._current_level >= 0:
            ctx.jvp_level = level
            ctx.arguments = tuple(None if i in self._tensors else arg for i, arg in enumerate(args))
            ctx.save_for_forward(*[args[i] for i in self._tensors])
        if self._constant:
            ctx.mark_non_differentiable(*[outputs[i] for i in self._constant if outputs[i] is not None])
        return result

    def backward(self, ctx: Any, *cotangents: Any) -> Any:
        needs = ctx.needs_input_grad
        if all(cotangent is None for cotangent in cotangents):
            return (None,) * len(needs)
        values = zip(ctx.saved_tensors, ctx.others, strict=True)
        saved = tuple.__new__(ctx.kept_as, [other if tensor is None else tensor for tensor, other in values])
        grads = self._backward(saved, self._arguments(needs), self._outputs(cotangents))
        if not self._known.issuperset(grads):
            raise TypeError(f"got cotangents of {sorted(grads)}, need names of arguments: {list(self._names)}.")
        return tuple(map(grads.get, self._names))

    def jvp(self, ctx: Any, *tangents: Any) -> Any:
        args = list(ctx.arguments)
        for i, tensor in zip(self._tensors, ctx.saved_tensors, strict=True):
            args[i] = tensor
        return self._at_level(ctx.jvp_level, args, tangents)

    def _at_level(self, level: int | None, args: list[Any], tangents: tuple[Any, ...]) -> Any:
        """The jvp rule; under functorch with this level's tangents off the arguments, outer levels live (rule 2)."""
        if level is None:
            return self._rules.jvp(self._arguments(args), self._arguments(tangents))
        args = [private.constant_at(v, level) if isinstance(v, Tensor) else v for v in args]
        with torch.enable_grad(), private.forward_ad_enabled(True):
            return self._rules.jvp(self._arguments(args), self._arguments(tangents))
