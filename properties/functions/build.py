"""A generated function as its author would write it: the class for a `Spec`, and the call that is judged.

All arithmetic is in float64 and rounded once per output, so that half types are judged as a careful author's code.
"""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...impl.operator import sums
from ...reference.functions import Term
from . import mistakes
from .spec import Spec, spec_of

Args = tuple[Any, ...]
#: What comes last among the arguments, by the name of a spec for it; it has no derivative.
LAST: dict[str, Any] = {"text": "text", "tuple": (2, (3, 4)), "list": [2, 3], "complex": torch.tensor([1.0 + 2.0j])}
with torch.inference_mode():
    LAST["integers"] = torch.tensor([2, 3])

VALUES: dict[str, Callable[[Tensor], Tensor]] = {
    "same": lambda x: x,
    "square": lambda x: x * x,
    "exp": torch.exp,
    "tanh": torch.tanh,
    "step": lambda x: (x > 0).to(x.dtype),
    "filled": torch.ones_like,
}
#: Derivatives as functions of the argument; where there is none, it is zero.
SLOPES: dict[str, Callable[[Tensor], Tensor]] = {
    "same": torch.ones_like,
    "square": lambda x: 2 * x,
    "exp": torch.exp,
    "tanh": lambda x: 1 - torch.tanh(x) ** 2,
}
#: Derivatives as functions of the value.
SLOPES_OF_VALUE: dict[str, Callable[[Tensor], Tensor]] = {"exp": lambda y: y, "tanh": lambda y: 1 - y * y}
_IN_PLACE: dict[str, Callable[[Tensor], Tensor]] = {"exp": Tensor.exp_, "tanh": Tensor.tanh_}


def call(base: Any, spec: str, *tensors: Tensor) -> tuple[Any, ...]:
    """The floating outputs of the function of a spec's text, whose class derives from `base`; writes no argument.

    Raises:
        ValueError: the text is that of no spec.
        AssertionError: the outputs come in another container, or with other values that are no floating tensors.
    """
    told = spec_of(spec)
    if told.mistake:
        return (mistakes.made(base, told.mistake, tensors[0]),)
    # Of a container that torch's own functions do not take, their vmap says so by an assertion: no clear error.
    if not told.under_vmap or base is torch.autograd.Function:
        return _call_function(base, told, *tensors)
    # Two equal slices, of which the first is taken: what the second adds to a derivative is zero, unless slices mix.
    dims = tuple(-1 if i == 0 else None for i in range(told.arity))
    slices = [t if d is None else t.unsqueeze(d).expand(*t.shape, 2) for t, d in zip(tensors, dims, strict=True)]
    batched = torch.func.vmap(functools.partial(_call_function, base, told), in_dims=dims)(*slices)
    # The order in which torch lays a batch out depends on the strides of axes of one element, and those of meta tensors
    # differ from those of others.
    return tuple(y[0].contiguous() for y in batched)


def _call_function(base: Any, told: Spec, *tensors: Tensor) -> tuple[Any, ...]:
    given = _given(told, tensors)
    apply, args = class_of(base, told).apply, arguments(told, given)
    match told.called:
        case "by position":
            outputs = apply(*args)
        case "by default":
            outputs = apply(*args[:-1])
        case _:
            outputs = apply(*args[:-1], last=args[-1])
    leaves, structure = pytree.tree_flatten(outputs)
    expected = pytree.tree_structure(contained(told, [0] * (len(told.terms) + 3 * told.extras)))
    _require(structure == expected, f"container: got {structure}, need {expected}")
    if told.extras:
        *leaves, number, nothing, counts = leaves
        found = (number, nothing, counts.dtype, counts.requires_grad)
        _require(found == (7, None, torch.int64, False), f"outputs that are no floating tensors: got {found}")
    return tuple(leaves)


def _given(told: Spec, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, with copies of those that are written; one that is filled belongs to the vmaps of what fills it."""
    given = [t.clone() if i in told.dirty else t for i, t in enumerate(tensors)]
    for term in told.terms:
        (at, name), *others = term.factors
        if name == "filled":
            # Zeros like another tensor are batched as it is, and have no tangent, so that the call gives it the first.
            zeros = (torch.zeros_like(tensors[i]) for i, _ in others)
            given[at] = functools.reduce(torch.add, zeros, tensors[at]).contiguous()
    return given


def _require(holds: bool, text: str) -> None:
    """What the contract of a custom function promises its author."""
    if not holds:
        raise AssertionError(text)


def arguments(spec: Spec, tensors: Sequence[Any]) -> Args:
    """The arguments in order: tensors, with the number among them, and what is told last; or tensors alone."""
    if spec.told == "nothing":
        return tuple(tensors)
    return (*tensors[: spec.number_at], 2.0, *tensors[spec.number_at :], LAST[spec.told])


def tensors_of(spec: Spec, args: Sequence[Any]) -> tuple[Any, ...]:
    """What comes in the places of the tensors."""
    if spec.told == "nothing":
        return tuple(args)
    return (*args[: spec.number_at], *args[spec.number_at + 1 : -1])


def contained(spec: Spec, leaves: Sequence[Any]) -> Any:
    """Leaves in the container of a spec; their order is that of the tree."""
    match spec.container:
        case "one":
            return leaves[0]
        case "list":
            return list(leaves)
        case "dict":
            return {f"y{i}": leaf for i, leaf in enumerate(leaves)}
        case "nested":
            return {"first": (leaves[0],), "rest": [tuple(leaves[1:2]), list(leaves[2:])]}
    return tuple(leaves)


@functools.lru_cache(maxsize=256)
def class_of(base: Any, spec: Spec) -> Any:
    """The class, made once: its static methods are closures over the spec."""
    members: dict[str, Any] = {
        "forward": staticmethod(_forward_of(spec)),
        "setup_context": staticmethod(functools.partial(_setup_context, spec)),
        "backward": staticmethod(functools.partial(_backward_as_written, spec)),
        "jvp": staticmethod(functools.partial(_jvp_as_written, spec)),
    }
    if spec.rule == "generated":
        members["generate_vmap_rule"] = True
    else:
        rule = _slices if spec.rule == "slices" else _one_call
        # The rule calls the class that it is part of. That is bound below, before anybody can call the rule.
        members["vmap"] = staticmethod(lambda *given: rule(made, spec, *given))
    made = type(base)("Generated", (base,), members)
    return made


def _forward_of(spec: Spec) -> Callable[..., Any]:
    """The static method, which says of itself which arguments it takes, and what the last one is by default."""
    forward: Any = functools.partial(_forward_as_written, spec)
    one_by_one = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"x{i}", one_by_one) for i in range(spec.arity + (spec.told != "nothing"))]
    if spec.told != "nothing":
        parameters.append(inspect.Parameter("last", one_by_one, default=LAST[spec.told]))
    forward.__signature__ = inspect.Signature(parameters)
    return cast(Callable[..., Any], forward)


# -------------------------------------------------------------------------------------------------- the methods


def _in_float64(t: Tensor) -> Tensor:
    return t.to(torch.float64)


def _value(term: Term, number: float, wide: Sequence[Tensor]) -> Tensor:
    value = torch.as_tensor(1.0, dtype=torch.float64)
    for at, name in term.factors:
        value = value * VALUES[name](wide[at])
    # The number among the arguments is always 2, so this leaves the formula as it is, unless the machinery hands over
    # another number.
    value = value * (term.number * number / 2.0)
    return _whole_sum(value) if term.total else value


def _whole_sum(value: Tensor) -> Tensor:
    """The sum of all elements, with the same bits on any number of threads where that is asked for."""
    return sums.total(value, range(value.dim()))


def _forward_as_written(spec: Spec, *args: Any) -> Any:
    number = 2.0
    if spec.told != "nothing":
        number, last = args[spec.number_at], args[-1]
        right = last is LAST[spec.told] or last == LAST[spec.told]
        _require(number == 2.0 and right, f"arguments without a derivative: got {number!r} and {last!r}")
    tensors = tensors_of(spec, args)
    wide = [_in_float64(t) for t in tensors]
    leaves: list[Any] = []
    for term, way in zip(spec.terms, spec.ways, strict=True):
        (at, name), *_ = term.factors
        if way == "identity":
            leaves.append(tensors[at])
        elif way == "dirty":
            if name == "filled":
                tensors[at].copy_(_value(term, number, wide))
            else:
                tensors[at].mul_(term.number) if name == "same" else _IN_PLACE[name](tensors[at])
            leaves.append(tensors[at])
        else:
            leaves.append(_value(term, number, wide).to(tensors[0].dtype))
    if spec.extras:
        leaves += [7, None, (wide[0] > 0).to(torch.int64)]
    return contained(spec, leaves)


def _setup_context(spec: Spec, ctx: Any, inputs: Args, output: Any) -> None:
    tensors, leaves = tensors_of(spec, inputs), pytree.tree_leaves(output)
    ctx.shapes = [t.shape for t in tensors]
    ctx.dtype = tensors[0].dtype
    ctx.leaf_shapes = [leaf.shape if isinstance(leaf, Tensor) else None for leaf in leaves]
    outputs = [leaves[j] for j in _saved_outputs(spec)]
    ctx.save_for_backward(*(tensors[i] for i in spec.backward_order), *outputs)
    ctx.save_for_forward(*outputs, *(tensors[i] for i in spec.forward_order))
    ctx.mark_dirty(*(tensors[i] for i in sorted(spec.dirty)))
    # The leaves after the terms are the extras, which have no way of being written; so the two sequences differ in
    # length.
    marked = [leaf for leaf, way in zip(leaves, spec.ways, strict=False) if way == "marked"]
    ctx.mark_non_differentiable(*marked, *(leaf for leaf in leaves[len(spec.terms) :] if isinstance(leaf, Tensor)))
    ctx.set_materialize_grads(spec.materializes)


def _saved_outputs(spec: Spec) -> list[int]:
    """Positions of the outputs that derivatives are taken from."""
    found = []
    for j, (term, way) in enumerate(zip(spec.terms, spec.ways, strict=True)):
        alone = len(term.factors) == 1 and term.number == 1.0 and not term.total
        wanted = way == "dirty" or (spec.saves_outputs and way == "fresh")
        if alone and wanted and term.factors[0][1] in SLOPES_OF_VALUE:
            found.append(j)
    return found


def _slope_of_factor(
    spec: Spec, j: int, slot: int, wide: dict[int, Tensor], outputs: dict[int, Tensor]
) -> Tensor | None:
    """d out_j / d x_i, elementwise, through one factor; None where it is zero."""
    term, way = spec.terms[j], spec.ways[j]
    at, name = term.factors[slot]
    if name not in SLOPES or way == "marked":
        return None
    if j in outputs:
        return SLOPES_OF_VALUE[name](outputs[j])
    # This slope is a constant and needs no saved argument. An argument that was written over, or is returned, has not
    # been saved.
    if len(term.factors) == 1 and name == "same":
        return torch.as_tensor(term.number, dtype=torch.float64)
    slope = SLOPES[name](wide[at]) * term.number
    for k, (other, factor) in enumerate(term.factors):
        if k != slot and factor != "filled":
            slope = slope * VALUES[factor](wide[other])
    return slope


def _backward_as_written(spec: Spec, ctx: Any, *grads: Any) -> Any:
    _require(len(grads) == len(ctx.leaf_shapes), f"cotangents: got {len(grads)}, need {len(ctx.leaf_shapes)}")
    for g, shape in zip(grads, ctx.leaf_shapes, strict=True):
        _require(g is None or g.shape == shape, f"cotangent: got {g if g is None else tuple(g.shape)}, need {shape}")
    _require(not spec.extras or (grads[-3], grads[-2]) == (None, None), "a cotangent for what is no tensor")
    saved = ctx.saved_tensors
    wide = {i: _in_float64(t) for i, t in zip(spec.backward_order, saved, strict=False)}
    outputs = {j: _in_float64(t) for j, t in zip(_saved_outputs(spec), saved[len(spec.backward_order) :], strict=True)}
    # Every operand is made wide once: the derivative of each conversion is a rounding.
    cotangents = [None if g is None else _in_float64(g) for g in grads[: len(spec.terms)]]
    # Autograd answers for every argument, also for the number and the text, which stand among the tensors.
    needed = tensors_of(spec, ctx.needs_input_grad)
    found: list[Any] = []
    for i in range(spec.arity):
        # A frugal author leaves out the gradients that nobody asks for, and autograd has to take None for them.
        if i in spec.constants or (spec.frugal and not needed[i]):
            found.append(None)
            continue
        parts = list(_contributions(spec, i, cotangents, wide, outputs))
        found.append(_gathered(spec, parts, ctx.shapes[i]))
    if spec.told == "nothing":
        return tuple(found) if spec.arity > 1 else found[0]
    return (*found[: spec.number_at], None, *found[spec.number_at :], None)


def _contributions(
    spec: Spec, i: int, grads: Sequence[Any], wide: dict[int, Tensor], outputs: dict[int, Tensor]
) -> Iterator[Tensor]:
    for j, term in enumerate(spec.terms):
        for slot, (at, _) in enumerate(term.factors):
            if at != i or grads[j] is None:
                continue
            if spec.ways[j] == "marked":
                yield grads[j]  # zero: any other would be a gradient of what is marked
                continue
            slope = _slope_of_factor(spec, j, slot, wide, outputs)
            if slope is not None:
                yield grads[j] * slope


def _gathered(spec: Spec, parts: list[Tensor], shape: Any) -> Tensor | None:
    """The sum of the parts in an argument's shape; one part alone may be left in the shape it was broadcast to.

    In float64: autograd rounds it to the argument's dtype, after it was summed over a batch that shares the argument.
    """
    if not parts:
        return None
    # What is left to torch's engine it sums with bits that depend on the number of threads, also where deterministic
    # algorithms are asked for; an author who keeps to these has to sum here.
    if spec.broadcasts and len(parts) == 1 and not torch.are_deterministic_algorithms_enabled():
        (part,) = parts
        return part.expand(torch.broadcast_shapes(part.shape, shape))
    return functools.reduce(torch.add, [_sum_to_shape(part, shape) for part in parts])


def _sum_to_shape(part: Tensor, shape: Any) -> Tensor:
    """Summed over what was broadcast, and broadcast where a factor that was summed over was not."""
    whole = part.expand(torch.broadcast_shapes(part.shape, shape))
    before = whole.dim() - len(shape)
    dims = [d for d in range(whole.dim()) if d < before or (shape[d - before] == 1 and whole.shape[d] != 1)]
    return sums.total(whole, dims).reshape(shape)


def _jvp_as_written(spec: Spec, ctx: Any, *given: Any) -> Args:
    tangents = tensors_of(spec, given)
    if spec.told != "nothing":
        zeros = spec.told == "complex" and spec.materializes
        _require((given[-1] is not None) is zeros, f"a tangent of what has none: got {given[-1]!r}")
    saved = ctx.saved_tensors
    chosen = _saved_outputs(spec)
    outputs = {j: _in_float64(t) for j, t in zip(chosen, saved, strict=False)}
    wide = {i: _in_float64(t) for i, t in zip(spec.forward_order, saved[len(chosen) :], strict=True)}
    # What is written over must not be needed again, and the derivative of a product needs its factors.
    copies = [t.clone() if i in spec.dirty and t is not None else t for i, t in enumerate(tangents)]
    widened = [None if t is None else _in_float64(t) for t in copies]
    moved = [_tangent(spec, j, ctx.dtype, tangents, widened, (wide, outputs)) for j in range(len(spec.terms))]
    return (*moved, *(3 * spec.extras * (None,)))


def _tangent(
    spec: Spec, j: int, dtype: torch.dtype, tangents: Sequence[Any], widened: Sequence[Any], saved: Any
) -> Any:
    """The tangent of an output; None where it is zero."""
    term, way = spec.terms[j], spec.ways[j]
    first = tangents[term.factors[0][0]]
    if way == "marked" or (way in ("identity", "dirty") and first is None):
        return None
    if way == "identity":
        # Torch wants the tangent to relate to the argument's tangent as the output relates to the argument: as a view
        # of it.
        return first.view_as(first)
    parts = []
    for slot, (at, _) in enumerate(term.factors):
        slope = _slope_of_factor(spec, j, slot, *saved)
        if slope is not None and widened[at] is not None:
            parts.append(slope * widened[at])
    if not parts:
        return None
    total = functools.reduce(torch.add, parts)
    # An argument that is written must have its tangent written as well, and not replaced by a new tensor.
    if way == "dirty":
        return first.copy_(total)
    return (_whole_sum(total) if term.total else total).to(dtype)


# ------------------------------------------------------------------------------------------- vmap by the author


def _slices(cls: Any, spec: Spec, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """One call per slice."""
    calls = []
    for k in range(info.batch_size):
        pairs = zip(args, in_dims, strict=True)
        calls.append(cls.apply(*(a.select(d, k) if isinstance(a, Tensor) and d is not None else a for a, d in pairs)))
    rows = [pytree.tree_leaves(output) for output in calls]
    structure = pytree.tree_structure(calls[0])
    device = next(a.device.type for a in args if isinstance(a, Tensor))
    with torch.autocast("cpu" if device == "meta" else device, enabled=False):  # there is none for meta tensors
        leaves = [torch.stack(c) if isinstance(c[0], Tensor) else c[0] for c in zip(*rows, strict=True)]
    dims = [0 if isinstance(leaf, Tensor) else None for leaf in leaves]
    return pytree.tree_unflatten(leaves, structure), pytree.tree_unflatten(dims, structure)


def _one_call(cls: Any, spec: Spec, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """One call on the whole batch, first or last: for functions of elements of one shape."""
    at = -1 if spec.last_dim else 0

    def moved(arg: Any, dim: int | None) -> Any:
        if not isinstance(arg, Tensor) or arg is LAST.get(spec.told):
            return arg
        # The call sees one batch, so an argument that all slices share is repeated for each of them, without a copy.
        if dim is None:
            return arg.unsqueeze(at).expand(*((*arg.shape, info.batch_size) if at else (info.batch_size, *arg.shape)))
        return arg.movedim(dim, at)

    output = cls.apply(*itertools.starmap(moved, zip(args, in_dims, strict=True)))
    return output, pytree.tree_map(lambda leaf: at if isinstance(leaf, Tensor) else None, output)
