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
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor
from torch.autograd import Function, forward_ad

from . import torch_private as private
from .operator import Derivatives, Shortcut
from .records import Grads, Record, new

Saved = TypeVar("Saved", bound=tuple[Any, ...])

Tangents = Tensor | tuple[Tensor | None, ...] | None
"""As the op's outputs: the tangent of the only output, or a tuple with one of each."""


@dataclass(frozen=True, slots=True)
class Rules(Derivatives, Generic[Saved]):
    """Rules written by hand; all are plain functions of plain values.

    Attributes:
        kind: the NamedTuple that `save` returns: its tensors (or None) are its first fields. These are saved as torch
            saves them, the rest as it is.
        save: (args, outputs, needs) -> what the backward rule needs when only the arguments with `needs.<name>` require
            gradients.
        backward: (saved, needs, cotangents) -> the arguments' cotangents by name. `needs` may have shrunk since `save`.
            A cotangent of an output is None for zero, but not every one of them.
        jvp: (args, tangents) -> the outputs' tangents, None for an output that is None or non-differentiable. A
            tangent in `tangents` is None where an argument carries none.
        non_differentiable: names of the outputs that never carry a derivative.
    """

    kind: type[Saved]
    save: Callable[[Record, Record, Record], Saved]
    backward: Callable[[Saved, Record, Record], Grads]
    jvp: Callable[[Record, Record], Tangents]
    non_differentiable: tuple[str, ...] = ()

    def around(self, op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """`apply` of an autograd function with these rules."""
        # A function of torch's usual kind would serve all open levels at once, and the dispatcher would serve the outer
        # ones again.
        single_level = level == "functorch"
        suffix = {"plain": "", "autograd": "_dispatched", "functorch": "_single_level"}[level]
        base: Any = private.SingleLevelFunction if single_level else Function
        members = {
            "forward": _forward_member(self, op, values, single_level),
            "backward": _backward_member(self, op, single_level),
            "jvp": _jvp_member(self, op),
        }
        cls: Any = type(op.name + suffix, (base,), {key: staticmethod(value) for key, value in members.items()})
        plain: Any = super  # mypy does not know what `super` of a class made here has
        # Function.apply looks for functorch levels first; the callers here have already done so.
        apply: Callable[..., Any] = cls.apply if single_level else plain(Function, cls).apply
        return apply


def _forward_member(
    rules: Rules[Any], op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], single_level: bool
) -> Callable[..., Any]:
    """`forward` of an autograd function. It runs at every differentiable call, and its names are local for speed."""
    save, arguments, named_outputs, tensors = rules.save, op.argument_record, op.output_record, op.tensors
    constant = tuple(op.output_names.index(name) for name in rules.non_differentiable)
    count = _tensor_fields(rules.kind)

    def forward(ctx: Any, *args: Any) -> Any:
        # The attributes of the context are set in place here and below. Its methods that set them do nothing else, but
        # each is one more Python call, and a small op would take several per cent longer.
        ctx.materialize_grads = False
        result = values(*args)
        level = private.top_jvp_level() if single_level else None
        # Arguments that only `jvp` reads are saved only where a tangent may come. Elsewhere `jvp` is never called, and
        # they would stay in memory until the backward pass.
        if level is not None or forward_ad._current_level >= 0:
            result = _with_own_memory(result)
            ctx.jvp_level = level
            ctx.arguments = tuple(None if i in tensors else arg for i, arg in enumerate(args))
            ctx.save_for_forward(*[args[i] for i in tensors])
        outputs = result if type(result) is tuple else (result,)
        saved = save(new(arguments, args), new(named_outputs, outputs), new(arguments, ctx.needs_input_grad))
        ctx.to_save = saved[:count]
        ctx.others = saved[count:]
        if constant:
            ctx.non_differentiable = tuple([outputs[i] for i in constant if outputs[i] is not None])
        return result

    return forward


def _with_own_memory(result: Any) -> Any:
    """Outputs, copied where they are views of another tensor or have elements that share their memory.

    Of a view torch takes no tangent in strides that are not its own. To any other output it gives a tangent in the same
    strides, and where elements share their memory, it cannot write that tangent. The results of a dispatch mode are no
    views, whatever their memory is.
    """
    if type(result) is tuple:
        return tuple(map(_with_own_memory, result))
    own = not isinstance(result, Tensor) or not (result._is_view() or private.shares_elements(result))
    return result if own else result.clone()


def _tensor_fields(saved: Any) -> int:
    """How many fields of a save rule's NamedTuple are tensors, by annotation; TypeError unless these come first."""
    are = ["Tensor" in str(annotation) for annotation in saved.__annotations__.values()]
    if are != sorted(are, reverse=True):
        raise TypeError(f"got {saved.__name__} with fields {list(saved.__annotations__)}, need its tensors first.")
    return sum(are)


def _backward_member(rules: Rules[Any], op: Shortcut[*tuple[Any, ...], Any], single_level: bool) -> Callable[..., Any]:
    """The `backward` of a `torch.autograd.Function`, which calls the backward rule of an op with named records.

    With `single_level` it is that of one level of torch.func, whose saved tensors may still be wrapped afterwards.
    """
    rule, kind, arguments, named_outputs = rules.backward, rules.kind, op.argument_record, op.output_record
    names = op.argument_names
    position = {name: i for i, name in enumerate(names)}
    nothing = (None,) * len(names)

    def backward(ctx: Any, *cotangents: Any) -> Any:
        if cotangents[0] is None and all(cotangent is None for cotangent in cotangents):
            return nothing
        # torch has checked here that no saved tensor was written since, and has freed them after a first backward.
        tensors = ctx.saved_tensors
        if single_level:
            # The function that `torch.func.vjp` returns is called after its level has ended. Tensors saved at that
            # level are still wrapped then, and a wrapper has no address that a kernel could read.
            tensors = tuple([None if t is None else private.unwrap_if_dead(t) for t in tensors])
        saved = new(kind, tensors + ctx.others)
        grads = rule(saved, new(arguments, ctx.needs_input_grad), new(named_outputs, cotangents))
        # A rule names few of an op's arguments, so its gradients are put in their places one by one. The lookup also
        # refuses a misspelt name, whose gradient would otherwise be lost and count as zero.
        result: list[Tensor | None] = [*nothing]
        try:
            for name in grads:
                result[position[name]] = grads[name]
        except KeyError:
            raise TypeError(f"{op.name}: got cotangents of {list(grads)}, need arguments, of {list(names)}.") from None
        return tuple(result)

    return backward


def _jvp_member(rules: Rules[Any], op: Shortcut[*tuple[Any, ...], Any]) -> Callable[..., Any]:
    """`jvp`; under functorch with this level's tangents off the arguments, and outer levels live (rule 2)."""

    def jvp(ctx: Any, *tangents: Any) -> Any:
        # torch keeps the tensors, and drops them once this rule has run. On the context they would stay in memory as
        # long as the graph.
        level, args = ctx.jvp_level, list(ctx.arguments)
        for i, tensor in zip(op.tensors, ctx.saved_tensors, strict=True):
            args[i] = tensor
        if level is None:
            return rules.jvp(op.arguments(args), op.arguments(tangents))
        # The rule differentiates nothing by this level. If the arguments kept this level's tangents, operations in the
        # rule would add a second derivative to the tangent.
        args = [private.constant_at(v, level) if isinstance(v, Tensor) else v for v in args]
        with torch.enable_grad(), private.forward_ad_enabled(True):
            return rules.jvp(op.arguments(args), op.arguments(tangents))

    return jvp


class _ShapeAndOthers(NamedTuple):
    shape: torch.Size
    others: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Linear(Derivatives):
    """Derivatives of an op that is linear in its first argument, the only one that is differentiable.

    Its tangent is the op itself, its cotangent the adjoint: an `Operator` whose adjoint is the op.

    Attributes:
        adjoint: (cotangent of the output, shape of the first argument, the other arguments in order) -> the cotangent
            of the first argument.
    """

    adjoint: Callable[..., Tensor]

    def around(self, op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """An autograd function of these rules."""
        name = op.argument_names[0]

        # The value of the first argument is not saved: the derivative of a linear op does not depend on it.
        def save(args: Record, outputs: Record, needs: Record) -> _ShapeAndOthers:
            first, *others = args
            return _ShapeAndOthers(first.shape, tuple(others))

        def backward(saved: _ShapeAndOthers, needs: Record, cotangents: Record) -> Grads:
            return {name: self.adjoint(cotangents.out, saved.shape, *saved.others)}

        def jvp(args: Record, tangents: Record) -> Tensor:
            _, *others = args
            moved, *_ = tangents
            result: Tensor = op(moved, *others)
            return result

        return Rules(_ShapeAndOthers, save, backward, jvp).around(op, values, level)
