"""A generated function as an author would write it: the class for a `Spec`, and the call that is judged.

All arithmetic is in float64 and rounded once per output, as careful authors do in half types.
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

from opassay.impl.operator import sums

from . import mistakes
from .formula import Term
from .spec import Spec, spec_of

Args = tuple[Any, ...]
#: The last argument, which has no derivative, by its name in a spec (`Spec.told`).
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
#: Derivatives as functions of the argument; those of the other functions are zero.
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
    """The floating outputs of the function of a spec's text, whose class derives from `base`; writes to no argument.

    Raises:
        ValueError: the text is that of no spec.
        AssertionError: the outputs are in another container, or an output that is no floating tensor is wrong.
    """
    function = spec_of(spec)
    if function.mistake:
        return (mistakes.make_mistake(base, function.mistake, tensors[0]),)
    # Under vmap torch's own functions refuse most containers by an assertion, which is no clear error.
    if not function.under_vmap or base is torch.autograd.Function:
        return _call_function(base, function, *tensors)
    # Two equal slices, of which the first is returned: the second adds zero to a derivative, unless slices mix.
    dims = tuple(-1 if i == 0 else None for i in range(function.arity))
    slices = [t if d is None else t.unsqueeze(d).expand(*t.shape, 2) for t, d in zip(tensors, dims, strict=True)]
    batched = torch.func.vmap(functools.partial(_call_function, base, function), in_dims=dims)(*slices)
    # The order in which torch lays a batch out depends on the strides of axes of one element, and these strides differ
    # between meta tensors and others.
    return tuple(y[0].contiguous() for y in batched)


def _call_function(base: Any, spec: Spec, *tensors: Tensor) -> tuple[Any, ...]:
    copies = _copy_written(spec, tensors)
    apply, args = class_of(base, spec).apply, arguments(spec, copies)
    match spec.call_form:
        case "by position":
            outputs = apply(*args)
        case "by default":
            outputs = apply(*args[:-1])
        case _:
            outputs = apply(*args[:-1], last=args[-1])
    leaves, structure = pytree.tree_flatten(outputs)
    expected = pytree.tree_structure(contained(spec, [0] * (len(spec.terms) + 3 * spec.extras)))
    _require(structure == expected, f"container: got {structure}, need {expected}")
    if spec.extras:
        *leaves, number, nothing, counts = leaves
        others = (number, nothing, counts.dtype, counts.requires_grad)
        _require(others == (7, None, torch.int64, False), f"outputs that are no floating tensors: got {others}")
    return tuple(leaves)


def _copy_written(spec: Spec, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors, with copies of those that are written; a filled one is batched where its source is batched."""
    copies = [t.clone() if i in spec.dirty else t for i, t in enumerate(tensors)]
    for term in spec.terms:
        (at, name), *others = term.factors
        if name == "filled":
            # `zeros_like` gives zeros that are batched as the source is and have no tangent, so that the call sets the
            # first tangent.
            zeros = (torch.zeros_like(tensors[i]) for i, _ in others)
            copies[at] = functools.reduce(torch.add, zeros, tensors[at]).contiguous()
    return copies


def _require(holds: bool, text: str) -> None:
    """AssertionError where a promise that custom functions make to their authors is broken."""
    if not holds:
        raise AssertionError(text)


def arguments(spec: Spec, tensors: Sequence[Any]) -> Args:
    """The arguments in order: tensors with the number among them, and then the last argument; or tensors alone."""
    if spec.last_argument == "nothing":
        return tuple(tensors)
    return (*tensors[: spec.number_at], 2.0, *tensors[spec.number_at :], LAST[spec.last_argument])


def tensors_of(spec: Spec, args: Sequence[Any]) -> tuple[Any, ...]:
    """The items of `args` in the places of the tensors."""
    if spec.last_argument == "nothing":
        return tuple(args)
    return (*args[: spec.number_at], *args[spec.number_at + 1 : -1])


def contained(spec: Spec, leaves: Sequence[Any]) -> Any:
    """Leaves in the container of a spec, in the order of the tree."""
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
    """The class of a spec, whose static methods close over the spec; made once."""
    members: dict[str, Any] = {
        "forward": staticmethod(_forward_of(spec)),
        "setup_context": staticmethod(functools.partial(_setup_context, spec)),
        "backward": staticmethod(functools.partial(_run_backward, spec)),
        "jvp": staticmethod(functools.partial(_run_jvp, spec)),
    }
    if spec.rule == "generated":
        members["generate_vmap_rule"] = True
    else:
        rule = _slices if spec.rule == "slices" else _one_call
        # The rule calls the class that it is part of. The name is bound below, before anybody can call the rule.
        members["vmap"] = staticmethod(lambda *args: rule(generated, spec, *args))
    generated = type(base)("Generated", (base,), members)
    return generated


def _forward_of(spec: Spec) -> Callable[..., Any]:
    """The static method `forward`, with a signature: its parameters, and the default of the last one."""
    forward: Any = functools.partial(_run_forward, spec)
    one_by_one = inspect.Parameter.POSITIONAL_OR_KEYWORD
    parameters = [inspect.Parameter(f"x{i}", one_by_one) for i in range(spec.arity + (spec.last_argument != "nothing"))]
    if spec.last_argument != "nothing":
        parameters.append(inspect.Parameter("last", one_by_one, default=LAST[spec.last_argument]))
    forward.__signature__ = inspect.Signature(parameters)
    return cast(Callable[..., Any], forward)


def _in_float64(t: Tensor) -> Tensor:
    return t.to(torch.float64)


def _value(term: Term, number: float, wide: Sequence[Tensor]) -> Tensor:
    value = torch.as_tensor(1.0, dtype=torch.float64)
    for at, name in term.factors:
        value = value * VALUES[name](wide[at])
    # The number among the arguments is always 2, so this factor is 1, unless the machinery passes another number.
    value = value * (term.number * number / 2.0)
    return _whole_sum(value) if term.total else value


def _whole_sum(value: Tensor) -> Tensor:
    """The sum of all elements; under deterministic algorithms with the same bits on any number of threads."""
    return sums.total(value, range(value.dim()))


def _run_forward(spec: Spec, *args: Any) -> Any:
    number = 2.0
    if spec.last_argument != "nothing":
        number, last = args[spec.number_at], args[-1]
        right = last is LAST[spec.last_argument] or last == LAST[spec.last_argument]
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
    # The leaves after the terms are the extras, which have no entry in `ways`, so the two sequences differ in length.
    marked = [leaf for leaf, way in zip(leaves, spec.ways, strict=False) if way == "marked"]
    ctx.mark_non_differentiable(*marked, *(leaf for leaf in leaves[len(spec.terms) :] if isinstance(leaf, Tensor)))
    ctx.set_materialize_grads(spec.materializes)


def _saved_outputs(spec: Spec) -> list[int]:
    """Positions of the outputs that are saved, because their derivatives are functions of the value."""
    positions = []
    for j, (term, way) in enumerate(zip(spec.terms, spec.ways, strict=True)):
        alone = len(term.factors) == 1 and term.number == 1.0 and not term.total
        from_output = way == "dirty" or (spec.saves_outputs and way == "fresh")
        if alone and from_output and term.factors[0][1] in SLOPES_OF_VALUE:
            positions.append(j)
    return positions


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
    # This slope is a constant and needs no saved argument. An argument that is written over, or is returned, was not
    # saved.
    if len(term.factors) == 1 and name == "same":
        return torch.as_tensor(term.number, dtype=torch.float64)
    slope = SLOPES[name](wide[at]) * term.number
    for k, (other, factor) in enumerate(term.factors):
        if k != slot and factor != "filled":
            slope = slope * VALUES[factor](wide[other])
    return slope


def _run_backward(spec: Spec, ctx: Any, *grads: Any) -> Any:
    _require(len(grads) == len(ctx.leaf_shapes), f"cotangents: got {len(grads)}, need {len(ctx.leaf_shapes)}")
    for g, shape in zip(grads, ctx.leaf_shapes, strict=True):
        _require(g is None or g.shape == shape, f"cotangent: got {g if g is None else tuple(g.shape)}, need {shape}")
    _require(not spec.extras or (grads[-3], grads[-2]) == (None, None), "a cotangent for what is no tensor")
    saved = ctx.saved_tensors
    wide = {i: _in_float64(t) for i, t in zip(spec.backward_order, saved, strict=False)}
    outputs = {j: _in_float64(t) for j, t in zip(_saved_outputs(spec), saved[len(spec.backward_order) :], strict=True)}
    # Every operand is converted to float64 once, because the derivative of each conversion is a rounding.
    cotangents = [None if g is None else _in_float64(g) for g in grads[: len(spec.terms)]]
    # `needs_input_grad` has an entry for every argument, the number and the text among them.
    needed = tensors_of(spec, ctx.needs_input_grad)
    gradients: list[Any] = []
    for i in range(spec.arity):
        # A frugal author leaves out the gradients that nobody needs, and autograd has to accept None for them.
        if i in spec.constants or (spec.frugal and not needed[i]):
            gradients.append(None)
            continue
        parts = list(_contributions(spec, i, cotangents, wide, outputs))
        gradients.append(_gather(spec, parts, ctx.shapes[i]))
    if spec.last_argument == "nothing":
        return tuple(gradients) if spec.arity > 1 else gradients[0]
    return (*gradients[: spec.number_at], None, *gradients[spec.number_at :], None)


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


def _gather(spec: Spec, parts: list[Tensor], shape: Any) -> Tensor | None:
    """The sum of the parts in an argument's shape; a single part may keep the shape to which it was broadcast.

    It is in float64: autograd sums it over a batch that shares the argument, and rounds it to the argument's dtype.
    """
    if not parts:
        return None
    # The bits of a sum that is left to torch's engine depend on the number of threads, even under deterministic
    # algorithms; so then an author has to sum here.
    if spec.broadcasts and len(parts) == 1 and not torch.are_deterministic_algorithms_enabled():
        (part,) = parts
        return part.expand(torch.broadcast_shapes(part.shape, shape))
    return functools.reduce(torch.add, [_sum_to_shape(part, shape) for part in parts])


def _sum_to_shape(part: Tensor, shape: Any) -> Tensor:
    """The part, summed over the axes along which the argument was broadcast, and broadcast to the other axes."""
    whole = part.expand(torch.broadcast_shapes(part.shape, shape))
    before = whole.dim() - len(shape)
    dims = [d for d in range(whole.dim()) if d < before or (shape[d - before] == 1 and whole.shape[d] != 1)]
    return sums.total(whole, dims).reshape(shape)


def _run_jvp(spec: Spec, ctx: Any, *all_tangents: Any) -> Args:
    tangents = tensors_of(spec, all_tangents)
    if spec.last_argument != "nothing":
        zeros = spec.last_argument == "complex" and spec.materializes
        _require((all_tangents[-1] is not None) is zeros, f"a tangent of what has none: got {all_tangents[-1]!r}")
    saved = ctx.saved_tensors
    places = _saved_outputs(spec)
    outputs = {j: _in_float64(t) for j, t in zip(places, saved, strict=False)}
    wide = {i: _in_float64(t) for i, t in zip(spec.forward_order, saved[len(places) :], strict=True)}
    # Tangents that are written over are copied first, because the derivative of a product needs those of its factors.
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
        # Torch requires that the tangent is a view of the argument's tangent, as the output is one of the argument.
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


def _slices(cls: Any, spec: Spec, info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """A vmap rule of one call per slice."""
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
    """A vmap rule of one call on the whole batch, as the first or last axis: for elementwise functions of one shape."""
    at = -1 if spec.last_dim else 0

    def moved(arg: Any, dim: int | None) -> Any:
        if not isinstance(arg, Tensor) or arg is LAST.get(spec.last_argument):
            return arg
        # The call sees one batch, so an argument that all slices share is repeated for each of them, without a copy.
        if dim is None:
            return arg.unsqueeze(at).expand(*((*arg.shape, info.batch_size) if at else (info.batch_size, *arg.shape)))
        return arg.movedim(dim, at)

    output = cls.apply(*itertools.starmap(moved, zip(args, in_dims, strict=True)))
    return output, pytree.tree_map(lambda leaf: at if isinstance(leaf, Tensor) else None, output)
