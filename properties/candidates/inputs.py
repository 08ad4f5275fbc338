"""Hostile inputs: like those given in shape and dtype, unlike them in value; each kind shows faults of another kind."""

from __future__ import annotations

import itertools
import operator
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.specs.storage import format_of
from ...reference.formats import Format, bits_to_float64
from .arguments import CallArguments, State, Tensor
from .domain.domain import Domain
from .domain.facts import facts_of, keep_facts
from .results import Result
from .specification import Specification


def reorder_sequences(tensors: Sequence[Tensor], rng: Any) -> list[Tensor]:
    """The tensors of integers and truth values with the sequences of the batch in another order; others as they are.

    Elements of offsets, lengths, routes or page tables must not change places alone: offsets would not rise any more,
    and lengths would be those of other rows of a page table. So sequences change places with their lengths, rows and
    stretches of elements.

    Args:
        tensors: of one call. rng: NumPy's generator, which draws the order.
    """
    offsets = [t.tolist() for t in tensors if are_offsets(t)]
    counts = Counter(len(t) for t in tensors if t.ndim and not t.is_floating_point())
    count = len(offsets[0]) - 1 if offsets else max(counts, key=counts.__getitem__, default=0)
    order = rng.permutation(count)
    offsets = [each for each in offsets if len(each) == count + 1]
    return [_reordered(t, order, offsets) for t in tensors]


def are_offsets(tensor: Tensor) -> bool:
    """Whether a tensor says where sequences begin and end: it rises from 0."""
    if tensor.is_floating_point() or tensor.dtype == torch.bool or tensor.ndim != 1 or len(tensor) < 2:
        return False
    return int(tensor[0]) == 0 and int(tensor[-1]) > 0 and bool((tensor[1:] >= tensor[:-1]).all())


def _reordered(tensor: Tensor, order: Any, offsets: Sequence[list[int]]) -> Tensor:
    if tensor.is_floating_point() or not tensor.ndim:
        return tensor
    if are_offsets(tensor) and len(tensor) == len(order) + 1:
        lengths = np.diff(tensor.tolist())[order]
        return torch.tensor([0, *np.cumsum(lengths)]).to(tensor.device, tensor.dtype)
    if len(tensor) == len(order):
        return tensor[torch.from_numpy(order).to(tensor.device)]
    ends = next((each for each in offsets if each[-1] == len(tensor)), None)
    if ends is None:
        return tensor
    return torch.cat([tensor[ends[i] : ends[i + 1]] for i in order])


#: (tensor, generator) -> float64 values in its place.
Way = Callable[[Tensor, Any], Any]
#: (tensor, way, generator) -> a tensor like it, filled.
Fill = Callable[[Tensor, Way, Any], Tensor]


def _normal(tensor: Tensor, rng: Any) -> Any:
    return rng.standard_normal(tuple(tensor.shape))


def _with_few(value: float) -> Way:
    """The given values, of which about one in a thousand is another, and one at least."""

    def way(tensor: Tensor, rng: Any) -> Any:
        values = tensor.detach().cpu().double().numpy().copy()
        flat = values.reshape(-1)
        if flat.size:
            flat[rng.integers(flat.size, size=max(1, flat.size // 1000))] = value
        return values

    return way


def _between(tensor: Tensor, rng: Any) -> Any:
    """Values between those that a tensor has."""
    flat = tensor.detach().cpu().double().numpy().reshape(-1)
    if not flat.size:
        return flat.reshape(tuple(tensor.shape))
    low, high = (flat[rng.integers(flat.size, size=flat.size)] for _ in range(2))
    # Between an infinity, as of a mask, and anything else there is no number: each stays what it is.
    high = np.where(np.isfinite(low) & np.isfinite(high), high, low)
    steps = np.subtract(high, low, out=np.zeros_like(low), where=high != low)
    return (low + rng.random(flat.size) * steps).reshape(tuple(tensor.shape))


def of_all_magnitudes(tensor: Tensor, rng: Any) -> Any:
    """Normal numbers, of which half are made smaller by a factor: any down to the least that a sum with 1 can show."""
    values, size = _normal(tensor, rng), tuple(tensor.shape)
    bits = format_of(tensor.dtype).precision * rng.random(size)
    return values * np.where(rng.random(size) < 0.5, np.exp2(-bits), 1.0)


def of_whole_format(tensor: Tensor, rng: Any, exponent: int | None = None) -> Any:
    """Normal numbers of both signs with any exponent of the format below `exponent`, or below its largest one; in about
    half of the rows all have a common exponent.

    With exponents of their own the largest of a row decides what the row gives; with a common one all of it does.
    """
    fmt, size = format_of(tensor.dtype), tuple(tensor.shape)
    least, most = fmt.exponent_min, fmt.exponent_max if exponent is None else exponent
    rows = size[:-1] + (1,) * bool(size)
    shares = np.where(rng.random(rows) < 0.5, rng.random(size), rng.random(rows))
    exponents = least + np.floor(shares * (most - least))
    return np.copysign(np.exp2(exponents) * (1 + rng.random(size)), rng.random(size) - 0.5)


#: How the floating tensors of a kind are filled, by its code. FWD:seeds is of the given tensors' own range.
WAYS: dict[str, Way] = {
    "FWD:seeds": _between,
    "FWD:signs": _normal,
    "FWD:offset": lambda t, rng: 100 + _normal(t, rng),
    "FWD:nearone": lambda t, rng: 1 + _normal(t, rng) / 64,
    "FWD:wide": lambda t, rng: _normal(t, rng) * np.exp2(24 * rng.random(tuple(t.shape)) - 16),
    "FWD:small": lambda t, rng: _normal(t, rng) * 2.0**-20,
    "SPECIAL:zeros": lambda t, rng: np.zeros(tuple(t.shape)),
    "DATA:integers": lambda t, rng: rng.integers(-4, 5, tuple(t.shape)),
    "SPECIAL:nan": _with_few(float("nan")),
    "SPECIAL:inf": _with_few(float("inf")),
}


def ties_of(ladders: Sequence[Any]) -> Way:
    """Numbers of ladders, what lies between two of them, and what is next to both.

    Wherever a row is divided by its largest number over that of the ladder, the quotients are these numbers as well:
    about every eighth is the largest one. Only the first quarter of a tensor has what is beyond it, by less and by more
    than half a step.

    Args:
        ladders: the numbers of one format each, in ascending order (`ladder_of`).
    """

    def way(tensor: Tensor, rng: Any) -> Any:
        ladder = ladders[int(rng.integers(len(ladders)))]
        size = int(tensor.numel())
        place = rng.integers(len(ladder) - 1, size=size)
        low, high = ladder[place], ladder[place + 1]
        kind = rng.integers(6, size=size)
        middle = (low + high) / 2
        step = np.abs(middle) * 2.0**-20
        values = np.choose(kind, [low, middle, middle, middle - step, middle + step, np.full(size, ladder[-1])])
        values = np.where((kind == 5) & (rng.random(size) < 0.25), 0.0, values)
        beyond = ladder[-1] + (ladder[-1] - ladder[-2]) * rng.choice([0.25, 0.5, 0.75, 4.0], size)
        outside = (np.arange(size) < size // 4) & (rng.random(size) < 0.25)
        return np.where(outside, np.copysign(beyond, values), values).reshape(tuple(tensor.shape))

    return way


def ladder_of(fmt: Format) -> Any:
    """The finite numbers of a format of few bits."""
    numbers = bits_to_float64(fmt, np.arange(1 << fmt.bits))
    return np.unique(numbers[np.isfinite(numbers)])


def filled_tensor(tensor: Tensor, way: Way, rng: Any) -> Tensor:
    """A tensor like another, filled in a way."""
    return _as(tensor, way(tensor, rng))


def filled(
    arguments: CallArguments, way: Way, rng: Any, of_sequences: bool = False, domain: Domain | None = None
) -> CallArguments:
    """The arguments with floating tensors filled in a way; of others the elements change places.

    Args:
        arguments, way, rng: what is filled, how, and what draws.
        of_sequences: whether integers are read as offsets and lengths, so that whole sequences change places.
        domain: what is known of the arguments, and goes on to hold: numbers that are 0 or 1, integers that never fall.
    """
    tensors = arguments.tensors
    after = reorder_sequences(tensors, rng) if of_sequences else tensors
    facts, roles = ({}, {}) if domain is None else (domain.facts, domain.integers)

    def change(i: int) -> Tensor:
        if tensors[i].dtype.is_floating_point:
            return _as(tensors[i], keep_facts(facts.get(i, ()), tensors[i], way(tensors[i], rng), rng))
        other = after[i] if of_sequences else _shuffled(tensors[i], rng)
        falls = i in roles and roles[i].rises and bool((other.diff() < 0).any())
        return _with_gaps_shuffled(tensors[i], rng) if falls else other

    changed = arguments.with_tensors([change(i) for i in range(len(tensors))])
    return changed if domain is None else domain.declaration.settle(changed)


def keep(arguments: CallArguments, domain: Domain, rng: Any) -> CallArguments:
    """The arguments, changed so that what is known of the given ones holds of them; the same ones where it does."""
    tensors = list(arguments.tensors)
    for i, facts in domain.facts.items():
        if i < len(tensors) and not set(facts) <= set(facts_of([tensors[i]])):
            values = tensors[i].detach().cpu().double().numpy()
            tensors[i] = _as(tensors[i], keep_facts(facts, tensors[i], values, rng))
    same = all(map(operator.is_, tensors, arguments.tensors))
    return domain.declaration.settle(arguments if same else arguments.with_tensors(tensors))


def _with_gaps_shuffled(tensor: Tensor, rng: Any) -> Tensor:
    """Integers that never fall, with the steps between them in another order."""
    gaps = tensor.diff()
    order = torch.from_numpy(rng.permutation(len(gaps))).to(tensor.device)
    return torch.cat([tensor[:1], gaps[order]]).cumsum(0).to(tensor.dtype)


def stand_in(arguments: CallArguments) -> CallArguments:
    """Arguments at which a spec does the same operations and gives other results: floating tensors in reverse order.

    Some requests depend on the shapes of a spec's outputs, and on whether it accepts some arguments. The outputs at
    these arguments must not be computed before the candidate has answered, which could find them in memory.
    """

    def reverse(tensor: Tensor) -> Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        # Bytes are turned round, because torch has no flip of the small formats.
        rows = tensor.detach().contiguous().reshape(-1).view(torch.uint8).reshape(tensor.numel(), tensor.itemsize)
        return rows.flip(0).reshape(-1).view(tensor.dtype).reshape(tensor.shape).requires_grad_(tensor.requires_grad)

    return arguments.changed(reverse)


def destinations_of(spec: Specification, arguments: CallArguments, state: State, names: Sequence[str]) -> Result | None:
    """The spec's result at other values, if there is a name of a destination for each of its outputs, or None."""
    result = spec.run(stand_in(arguments), state).result if names else None
    return result if result is not None and len(result.tensors) == len(names) else None


def one_for_several(
    arguments: CallArguments, apart: Collection[Any], domain: Domain
) -> tuple[str, CallArguments] | None:
    """The arguments with one tensor for all floating ones of a shape and dtype, and which these are; None for none.

    Args:
        arguments: of a call. apart: positions of tensors that stay as they are.
        domain: what is known of them: a tensor of which something holds, which may be written, or which follows from
            others, stays, too, or takes the place of none of another sign.
    """
    groups: dict[Any, list[int]] = {}
    stays = {*apart, *domain.facts, *domain.declaration.writes}
    stays.update(*(each.places | each.sources for each in domain.declaration.rules))
    for i, tensor in enumerate(arguments.tensors):
        if tensor.is_floating_point() and tensor.numel() and i not in stays:
            kind = tensor.shape, tensor.dtype, tensor.requires_grad, domain.signs.get(i)
            groups.setdefault(kind, []).append(i)
    several = [group for group in groups.values() if len(group) > 1]
    text = ", ".join(" and ".join(map(arguments.label, group)) for group in several)
    return (text, arguments.with_one_for(several)) if several else None


def _as(like: Tensor, values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64)).to(like.device, like.dtype)


def _shuffled(tensor: Tensor, rng: Any) -> Tensor:
    """The elements of a tensor of integers or truth values in another order: those alone are known to be in range."""
    flat = tensor.detach().reshape(-1)
    return flat[torch.from_numpy(rng.permutation(flat.numel())).to(tensor.device)].reshape(tensor.shape)


def of_twelve_bits(
    arguments: CallArguments, state: State, rng: Any, fill: Fill = filled_tensor, after: int = 0
) -> Iterator[tuple[CallArguments, dict[str, Tensor]]]:
    """One operand of 12 bits and all others −1, 0 or 1, for the first operands in turn: exact in float32.

    Args:
        arguments, state: the operands. rng: what draws. fill: fills a floating tensor.
        after: how many operands are passed over.
    """

    def whole(tensor: Tensor, largest: int) -> Tensor:
        if not tensor.dtype.is_floating_point:
            return tensor
        return fill(tensor, lambda t, rng: rng.integers(-largest, largest + 1, tuple(t.shape)), rng)

    operands = {**{str(i): t for i, t in enumerate(arguments.tensors)}, **state}
    wide = [name for name, t in operands.items() if t.dtype.is_floating_point and (name not in state or t.ndim > 1)]
    for name in wide[after:3]:
        values = {other: whole(t, 2047 if other == name else 1) for other, t in operands.items()}
        tensors = [values[str(i)] for i in range(len(arguments.tensors))]
        yield arguments.with_tensors(tensors), {other: values[other] for other in state}


def beside_ones(arguments: CallArguments, rng: Any) -> Iterator[CallArguments]:
    """One operand between 8 and 16, or between -16 and -8, and all others 1, for the first operands in turn.

    So all terms of a loss of logits may be small at once, exp(-x) or so, and its sum hides no error of one term. From 8
    on 1 + exp(-x) has lost half of the digits of exp(-x) in float32, and at 16 nearly all of them.
    """
    floating = [i for i, t in enumerate(arguments.tensors) if t.dtype.is_floating_point]
    for place, sign in itertools.product(floating[:3], (1.0, -1.0)):
        tensors = list(arguments.tensors)
        for i in floating:
            size = tuple(tensors[i].shape)
            tensors[i] = _as(tensors[i], sign * (8 + 8 * rng.random(size)) if i == place else np.ones(size))
        yield arguments.with_tensors(tensors)


def altered(state: State, rng: Any) -> dict[str, Tensor]:
    """Parameters and buffers away from their first values: no bias is 0, no weight 1, no variance negative."""
    return {name: _altered(name, value, rng) for name, value in state.items()}


def _altered(name: str, value: Tensor, rng: Any) -> Tensor:
    if not value.dtype.is_floating_point:
        return value
    values = value.detach().cpu().double().numpy()
    spread = float(values.std()) if values.size > 1 else 0.0
    moved = values + rng.standard_normal(values.shape) * (spread or 0.25)
    return _as(value, np.abs(moved) + 0.125 if "var" in name else moved)
