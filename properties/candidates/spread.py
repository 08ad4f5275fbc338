"""NaNs and infinities that a candidate carries farther than the spec, or less far: said, and not counted.

What this is for: a mask that is added where the spec fills one in, and elements that are moved by products with zeros,
are right for all numbers. A NaN passes through them: NaN - inf and 0 NaN are NaN. The other way round, x where m, else
0, has no NaN of x m, and exp(s - m) at s = inf may be the limit where the spec has inf - inf.

The rule. An element outside is explained by the numbers that the spec has with others in place of the NaNs, or of the
infinities:

- It is NaN or infinite, and does not depend on what they stand for: two draws of numbers give the spec the same there,
  bit for bit, and so do numbers beyond all that the operand has, on either side. Of several, it is enough that one
  alone makes it so, and that the spec does not depend on that one.
- The spec has a NaN there, and the candidate that number; of infinities, a number that is right at two draws of large
  ones, which is the limit.
- The spec has a NaN there because all scores of a row are -inf, and the candidate what it has where a softmax of such
  a row is zero: torch's own attention gives that, and kernels that leave a masked row out.
- An infinity has become a NaN, which another output shows where the spec has an infinity, and the element is what the
  spec gives of a NaN.

Nothing is explained where a NaN is at a place that no output of the spec depends on, as in padding or an unused slot,
unless the candidate is right with the NaNs at these places alone. A finite value in place of a NaN that depends on the
operand stays wrong, and so do all of a call that has another fault.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from ...oracles.bound.contract import SPREAD
from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import OperandFacts, Reading, Standing, hold
from ...oracles.op.declaration import to_array
from ...oracles.specs import rewritten
from ...oracles.specs.storage import format_of
from ...oracles.verdicts.violation import Code, Violation
from .arguments import CallArguments, State, Tensor
from .specification import Specification

#: Questions whose operands have a few of these: their names in messages.
OF_SPECIAL = {"SPECIAL:nan": "a NaN", "SPECIAL:inf": "an infinity"}
#: Calls of the spec that look for what a single element changes, at most.
_SINGLE = 16


#: (tensor, places) -> as many values.
_Draw = Callable[[Tensor, Tensor], Any]


@dataclass(frozen=True)
class SpecialCall:
    """A call with NaNs or infinities among its operands.

    Attributes:
        question: "SPECIAL:nan" or "SPECIAL:inf". spec, arguments, state: of the call. terms: what is allowed.
        ask: (arguments, state) -> what the candidate gives there, or None; None where it takes no others.
        rng: what draws numbers. names, computed: of the candidate's outputs that were compared.
        which: of what the spec gives and writes, those.
    """

    question: str
    spec: Specification
    arguments: CallArguments
    state: State
    terms: Terms
    ask: Callable[[CallArguments, State], Sequence[Tensor] | None] | None
    rng: Any
    names: Sequence[str]
    computed: Sequence[Tensor]
    which: Sequence[int]

    def read(self, arguments: CallArguments) -> list[Reading]:
        """The spec's readings of what was compared."""
        every = self.spec.read(arguments, self.state, self.terms)
        return [every[i] for i in self.which]

    def places(self) -> list[Tensor]:
        """Of each tensor argument where it has a NaN, or an infinity."""
        of_kind = torch.isnan if self.question == "SPECIAL:nan" else torch.isinf
        return [
            of_kind(t.detach().float()) if t.is_floating_point() else torch.zeros(t.shape, dtype=torch.bool)
            for t in self.arguments.tensors
        ]

    def with_numbers(self, draw: _Draw, keep: Sequence[Tensor] | None = None) -> CallArguments:
        """The arguments with numbers of `draw` at all places, or at those alone that do not stay, of `keep`."""

        def filled(t: Tensor, at: Tensor, stay: Tensor | None) -> Tensor:
            at = at if stay is None else at & ~stay
            if not bool(at.any()):
                return t
            # torch fills nothing in formats of eight bits.
            wide = t.detach().to(torch.float32 if t.element_size() == 1 else t.dtype, copy=True)
            wide[at] = torch.as_tensor(np.asarray(draw(t, at), dtype=np.float64)).to(wide.device, wide.dtype)
            return wide.to(t.dtype)

        tensors = self.arguments.tensors
        stay: Sequence[Tensor | None] = keep or [None] * len(tensors)
        return self.arguments.with_tensors(list(map(filled, tensors, self.places(), stay)))


def tell_spread(call: SpecialCall, outcomes: Sequence[Standing]) -> list[Standing]:
    """The outcomes; where spreading explains all that is outside, with a note in place of the fault."""
    outside = [_outside(*row) for row in zip(outcomes, call.computed, call.read(call.arguments), strict=True)]
    if any(each is None for each in outside) or not any(bool(at.any()) for at in call.places()):
        return list(outcomes)
    first = call.with_numbers(_other_numbers(call))
    readings = _read_with_numbers(call, first)
    large = [] if call.question == "SPECIAL:nan" else [call.read(call.with_numbers(_large(call))) for _ in range(2)]
    columns = zip(*readings, strict=True), zip(*large, strict=True) if large else [()] * len(outcomes)
    explained = [
        _explained(call, y, standing, balls, limits)
        for y, standing, balls, limits in zip(call.computed, outcomes, *columns, strict=True)
    ]
    rest = [bad & ~fine for bad, fine in zip(outside, explained, strict=True)]
    if call.question == "SPECIAL:inf" and any(map(np.any, rest)) and _turns_into_nan(call, outcomes):
        nans = call.read(call.with_numbers(lambda t, at: np.full(int(at.sum()), np.nan)))
        rest = [bad & ~_is_right(y, ball) for bad, y, ball in zip(rest, call.computed, nans, strict=True)]
    if call.question == "SPECIAL:inf" and any(map(np.any, rest)) and not call.spec.numpy:
        zeros = _read_empty_rows(call)
        rest = [bad & ~_is_right(y, ball) for bad, y, ball in zip(rest, call.computed, zeros, strict=True)]
    if any(map(np.any, rest)):
        rest = [bad & ~fine for bad, fine in zip(rest, _reached_by_one(call, outcomes), strict=True)]
    if any(map(np.any, rest)) or not _are_read(call, first):
        return list(outcomes)
    notes = [_note(call, i, bad) if np.any(bad) else None for i, bad in enumerate(outside)]
    allowed = SPREAD in (call.terms.algorithms or ())
    return [
        each if note is None else replace(each, wrong=None, spread=None if allowed else note)
        for each, note in zip(outcomes, notes, strict=True)
    ]


def _outside(standing: Standing, computed: Tensor, reading: Reading) -> Any:
    """Which elements of an output are outside; None where something else is wrong with it."""
    if standing.wrong is None:
        return np.zeros(tuple(computed.shape), dtype=bool)
    return standing.outside if isinstance(reading, Ball) else None


def _read_with_numbers(call: SpecialCall, first: CallArguments, keep: Sequence[Tensor] | None = None) -> list[Any]:
    """The spec's readings with numbers in place of what is not finite: of `first`, others, and beyond all others.

    Of a function with parts, as `relu` or a maximum, two draws may lie on one: on which, chance would decide.
    """
    others = [call.with_numbers(draw, keep) for draw in (_between(call), _beyond(1.0), _beyond(-1.0))]
    return [call.read(each) for each in (first, *others)]


def _is_free(balls: Sequence[Ball]) -> Any:
    """Which elements are one number in all readings; those in which a number of a large operand is none are no say."""
    first, *others = (ball.centre for ball in balls)
    return np.logical_and.reduce([(first == other) | (np.isfinite(first) & ~np.isfinite(other)) for other in others])


def _explained(
    call: SpecialCall, computed: Tensor, standing: Standing, balls: Sequence[Ball], limits: Sequence[Ball]
) -> Any:
    """Which elements are what the spec gives with numbers in place of what is not finite, or NaN beside that."""
    values = to_array(computed)
    if standing.wrong is None or standing.ball is None:
        return np.zeros(values.shape, dtype=bool)
    free = _is_free(balls)
    centre = standing.ball.centre
    reached = (
        free & np.isfinite(centre) & (np.isnan(values) if call.question == "SPECIAL:nan" else ~np.isfinite(values))
    )
    number = free & _are_right(computed, balls[:2])
    if limits:
        number |= _are_right(computed, limits) & np.logical_and.reduce([_is_known(ball) for ball in limits])
    return reached | (np.isnan(centre) & np.isfinite(values) & number)


def _reached_by_one(call: SpecialCall, outcomes: Sequence[Standing]) -> list[Any]:
    """Which elements one place alone makes NaN or infinite, on which those of the spec do not depend."""
    places, reached = call.places(), [np.zeros(tuple(y.shape), dtype=bool) for y in call.computed]
    single = [(n, k) for n, at in enumerate(places) for k in torch.nonzero(at)]
    if call.ask is None or len(single) == 1:
        return reached
    for n, k in single[:: -(-len(single) // _SINGLE)]:
        alone = [torch.zeros_like(at) for at in places]
        alone[n][tuple(k)] = True
        computed = call.ask(call.with_numbers(_other_numbers(call), keep=alone), call.state)
        if computed is None or len(computed) != len(reached):
            continue
        others = [at & ~own for at, own in zip(places, alone, strict=True)]
        readings = _read_with_numbers(call, call.with_numbers(_other_numbers(call), keep=others), keep=others)
        for i, (y, standing, *balls) in enumerate(zip(computed, outcomes, *readings, strict=True)):
            if standing.ball is not None and all(isinstance(ball, Ball) for ball in balls):
                free = _is_free(balls) & (balls[0].centre == standing.ball.centre)
                reached[i] |= free & np.isfinite(balls[0].centre) & ~np.isfinite(to_array(y))
    return reached


class _EmptyRows(torch.fx.Interpreter):
    """Runs a spec whose softmax gives zeros of a row of -inf alone, in place of 0 / 0."""

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        result = super().call_function(target, args, kwargs)
        if target is not torch.ops.aten._softmax.default:
            return result
        return torch.where((args[0] == -torch.inf).all(args[1], keepdim=True), 0.0, result)


def _read_empty_rows(call: SpecialCall) -> list[Reading]:
    """The readings of the spec with what `_EmptyRows` gives."""
    traced = call.spec.traced_at(call.arguments, call.state)
    run = functools.partial(_EmptyRows(traced.graph).run, enable_io_processing=False)
    other = rewritten(traced, run, [t.detach() for t in (*call.state.values(), *call.arguments.tensors)])
    return replace(call, spec=call.spec.with_trace(other)).read(call.arguments)


def _is_known(ball: Ball) -> Any:
    """Where a bound is not wider than the number itself, or than what underflows: else it says nothing of a limit."""
    return ball.radii() <= np.maximum(np.abs(ball.centre), ball.contract.accumulate.smallest_normal)


def _is_right(computed: Tensor, ball: Reading) -> Any:
    """Which elements are finite, and certainly in their accept sets."""
    values = to_array(computed)
    if not isinstance(ball, Ball):
        return np.zeros(values.shape, dtype=bool)
    elements = hold("", computed, ball, OperandFacts.FINITE).in_sets
    return np.isfinite(values) & elements.accepted & elements.judged if elements is not None else np.isfinite(values)


def _are_right(computed: Tensor, balls: Sequence[Ball]) -> Any:
    return np.logical_and.reduce([_is_right(computed, ball) for ball in balls])


def _turns_into_nan(call: SpecialCall, outcomes: Sequence[Standing]) -> bool:
    """Whether some element is NaN where the spec has an infinity."""
    pairs = zip(call.computed, outcomes, strict=True)
    return any(
        bool((np.isnan(to_array(y)) & np.isinf(each.ball.centre)).any()) for y, each in pairs if each.ball is not None
    )


def _are_read(call: SpecialCall, first: CallArguments) -> bool:
    """Whether the spec's outputs show a NaN at each place, or the candidate is right with the others alone.

    An infinity may be as good as a number where a NaN is not, as that of a decay of a state that is zero.
    """
    base, unread = call.spec.outputs(first, call.state), []
    places = call.places()
    for number, (at, t) in enumerate(zip(places, first.tensors, strict=True)):
        mine = torch.zeros_like(at)
        every = torch.nonzero(at)
        for k in every[:: -(-len(every) // _SINGLE) or 1]:
            changed = t.clone()
            changed[tuple(k)] = torch.tensor(torch.nan).to(t.dtype)
            tensors = [changed if i == number else each for i, each in enumerate(first.tensors)]
            now = call.spec.outputs(first.with_tensors(tensors), call.state)
            mine[tuple(k)] = all(torch.equal(a, b) for a, b in zip(base, now, strict=True))
        unread.append(mine)
    if not any(bool(each.any()) for each in unread):
        return True
    alone = call.with_numbers(_other_numbers(call), keep=unread)
    computed = None if call.ask is None else call.ask(alone, call.state)
    readings = call.read(alone)
    return (
        computed is not None and len(computed) == len(readings) and all(map(np.all, map(_is_right, computed, readings)))
    )


def _finite(tensor: Tensor) -> Any:
    values = to_array(tensor).reshape(-1)
    values = values[np.isfinite(values)]
    return values if values.size else np.array([0.5, 0.25])


def _other_numbers(call: SpecialCall) -> _Draw:
    """Numbers that the tensor has elsewhere."""
    return lambda t, at: call.rng.choice(_finite(t), int(at.sum()))


def _between(call: SpecialCall) -> _Draw:
    """Numbers between two that the tensor has elsewhere; where all are one, the half of it and a quarter."""

    def draw(t: Tensor, at: Tensor) -> Any:
        one, other = (call.rng.choice(_finite(t), int(at.sum())) for _ in range(2))
        middle = one + (0.25 + 0.5 * call.rng.random(one.shape)) * (other - one)
        return np.where(one == other, 0.5 * one + 0.25, middle)

    return draw


def _beyond(sign: float) -> _Draw:
    """Numbers beyond all that the tensor has elsewhere, on one side, as far as the format has them.

    No farther than four times: a spec that adds -1e9 for a mask is right for the numbers that people have.
    """

    def draw(t: Tensor, at: Tensor) -> Any:
        count = int(at.sum())
        top = min(4 * float(np.abs(_finite(t)).max()) or 1.0, float(format_of(t.dtype).max))
        return sign * top * (1 - np.arange(count) / (2 * count))

    return draw


def _large(call: SpecialCall) -> _Draw:
    """Numbers so large that limits are reached, whose squares have no infinities where the format is wide enough."""

    def draw(t: Tensor, at: Tensor) -> Any:
        top = np.log2(format_of(t.dtype).max)
        low, high = (top / 4, top * 3 / 8) if top > 32 else (top / 2, top - 2)
        sizes = np.exp2(low + (high - low) * call.rng.random(int(at.sum())))
        return np.copysign(sizes, t.detach()[at].double().cpu().numpy())

    return draw


def _note(call: SpecialCall, i: int, bad: Any) -> Violation:
    name, values = call.names[i], to_array(call.computed[i])
    spreads = bad & ~np.isfinite(values)
    source = _source(call, i, bad, of_spec=not np.any(spreads))
    what = OF_SPECIAL[call.question]
    if np.any(spreads):
        title = f"{what} at {source} reaches {_box(name, spreads)} in the candidate and not in the spec"
    else:
        title = f"{what} at {source} reaches {_box(name, bad)} in the spec and not in the candidate"
    at = tuple(map(int, np.argwhere(bad)[0]))
    lines = (
        f"computed   {values[at]} at {name}{list(at) or ''}",
        f"outside    {np.count_nonzero(bad)} of {bad.size} elements",
        f"accepted   with --contract {call.terms.name}+{SPREAD}",
    )
    return Violation(Code.SPREAD, title, lines)


def _source(call: SpecialCall, i: int, bad: Any, of_spec: bool) -> str:
    """A place in the first tensor whose NaNs or infinities alone reach an output; where none does, in each of them.

    Args:
        i: of the output. bad: elements, one of which is reached. of_spec: by whom, the spec or the candidate.
    """
    places = call.places()
    tensors = [n for n, at in enumerate(places) if bool(at.any())]
    ask = call.spec.outputs if of_spec else call.ask
    if len(tensors) > 1 and ask is not None:
        for n in tensors:
            alone = call.with_numbers(
                _other_numbers(call), keep=[at if k == n else torch.zeros_like(at) for k, at in enumerate(places)]
            )
            computed = ask(alone, call.state)
            if computed is not None and len(computed) > i and (~np.isfinite(to_array(computed[i])) & bad).any():
                tensors = [n]
                break
    texts = [f"{call.arguments.label(n)}{torch.nonzero(places[n])[0].tolist() or ''}" for n in tensors]
    return " or ".join(texts)


def _box(name: str, bad: Any) -> str:
    """The least part of an output, by its axes, that has all of some elements."""
    parts = []
    for axis, size in enumerate(bad.shape):
        at = np.flatnonzero(bad.any(axis=tuple(k for k in range(bad.ndim) if k != axis)))
        low, high = int(at[0]), int(at[-1])
        whole = low == 0 and high == size - 1 and size > 1
        parts.append(":" if whole else str(low) if low == high else f"{low}:{high + 1}")
    return f"{name}[{', '.join(parts)}]" if parts else name
