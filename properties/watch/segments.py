"""Parts of two programs between values that they have in common, read as functions of those.

Where one program makes a call and the other several, or others, what both compute of the same numbers is read as balls.
Right evaluations of one function are in both: so balls that do not meet are of two functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms, terms
from ...oracles.judge.holding import Reading
from ...oracles.specs.storage import format_of
from ...reference.choice import answers_of
from ...reference.formats import ulp_array
from ..candidates.arguments import CallArguments
from ..candidates.specification import Specification
from .call import DROPOUT, DispatcherCall, Tensor, is_floating, kind_of
from .judging import as_function, words_of
from .program_graph import ProgramGraph, ValueKey, ValueUse

#: Calls of a part, beyond which it is not read: its balls would say nothing.
MOST = 200


#: Form of a part -> what reads it, of the latest ones.
_SPECS: dict[Any, Specification] = {}
_KEPT = 256


class UnreadError(Exception):
    """A part that is not read; the text says why."""


@dataclass(frozen=True)
class Segment:
    """A part of a program.

    Attributes:
        graph: of the program. calls: by their positions, in order. inputs: values that it begins with.
        outputs: what it ends with, and the dtype of each.
    """

    graph: ProgramGraph
    calls: tuple[int, ...]
    inputs: tuple[ValueKey, ...]
    outputs: tuple[tuple[ValueUse, torch.dtype], ...]

    @classmethod
    def before(
        cls, graph: ProgramGraph, outputs: Iterable[tuple[ValueUse, torch.dtype]], is_common: Callable[[ValueKey], bool]
    ) -> Segment:  # fmt: skip
        """The calls that give some values, back to those that both programs have.

        Raises:
            UnreadError: they are too many, or draw numbers.
        """
        outputs = tuple(outputs)
        waiting, inputs, calls = [operand.key for operand, _ in outputs], dict[ValueKey, None](), set[int]()
        while waiting:
            key = waiting.pop()
            position = key[0]
            if position < 0 or is_common(key):
                inputs[key] = None
            elif position not in calls:
                call = graph.calls[position]
                if kind_of(call.call) == "random" or call.call.op is DROPOUT:
                    raise UnreadError(f"{call.call.name} draws numbers, in each program its own")
                if len(calls) == MOST:
                    raise UnreadError(f"more than {MOST} calls that the programs do not have in common")
                calls.add(position)
                waiting += [operand.key for operand in call.operands]
        return cls(graph, tuple(sorted(calls)), tuple(inputs), outputs)

    def read(self, values: Sequence[Tensor], allowed: Terms, *, wide: bool) -> tuple[Reading, ...]:
        """What the part gives for the values of its inputs; `wide`: with half types as float32."""
        values = [_widened(value) if wide else value for value in values]
        key = wide, self._form()
        if key not in _SPECS:
            _SPECS[key] = Specification("a part of the program", self._function(wide))
            if len(_SPECS) > _KEPT:
                del _SPECS[next(iter(_SPECS))]
        return _SPECS[key].read(CallArguments.of(values), {}, allowed)

    def _form(self) -> Any:
        """What parts have in common of which one trace says all: the same calls of other numbers."""
        place: dict[ValueKey, Any] = {key: number for number, key in enumerate(self.inputs)}
        place |= {
            (i, k): (n, k) for n, i in enumerate(self.calls) for k in range(len(self.graph.calls[i].call.results))
        }
        calls = [self.graph.calls[i] for i in self.calls]
        texts = [(str(c.call.op), str(c.call.structure), *(_text_of(leaf) for leaf in c.call.leaves)) for c in calls]
        uses = [[(place[x.key], x.view) for x in c.operands] for c in calls]
        inputs = [_text_of(self.graph.values[key]) for key in self.inputs]
        return repr((texts, uses, inputs, [(place[x.key], x.view, dtype) for x, dtype in self.outputs]))

    def _function(self, wide: bool) -> Callable[..., tuple[Tensor, ...]]:
        calls = [(i, _placed(self.graph.calls[i].call, wide), self.graph.calls[i].operands) for i in self.calls]
        runs = [(i, _as_function(call), call, operands) for i, call, operands in calls]

        def function(*inputs: Tensor) -> tuple[Tensor, ...]:
            known = dict(zip(self.inputs, inputs, strict=True))
            for i, run, call, operands in runs:
                like = zip(operands, call.tensors, strict=True)
                results = run(*[_take(known, operand, tensor.dtype).clone() for operand, tensor in like])
                known |= {(i, position): y for position, y in enumerate(results)}
            return tuple(_take(known, operand, _wide(dtype) if wide else dtype) for operand, dtype in self.outputs)

        return function

    def words(self, contract: str) -> list[str]:
        """The names of what is allowed in its calls."""
        calls = [self.graph.calls[i].call for i in self.calls]
        return [contract, *(word for call in calls for word in words_of(call.switches, call.name))]


def _as_function(call: DispatcherCall) -> Callable[..., tuple[Tensor, ...]]:
    """A call as a function of its tensors; memory that nobody has written is zeros."""
    if kind_of(call) == "memory":
        return lambda *_: tuple(torch.zeros(y.shape, dtype=y.dtype) for y in call.results)
    return as_function(call)


def _text_of(leaf: Any) -> str:
    return f"{tuple(leaf.shape)} {leaf.stride()} {leaf.dtype}" if isinstance(leaf, Tensor) else repr(leaf)


def _take(known: dict[ValueKey, Tensor], operand: ValueUse, dtype: torch.dtype) -> Tensor:
    if operand.key not in known:
        raise UnreadError("what stands for an operation does not give all of its results")
    value = operand.view.take(known[operand.key])
    return value if value.dtype == dtype else value.to(dtype)


def _placed(call: DispatcherCall, wide: bool) -> DispatcherCall:
    """The call on the CPU, with half types as float32 if that is asked for."""

    def place(leaf: Any) -> Any:
        if isinstance(leaf, torch.device):
            return torch.device("cpu")
        if isinstance(leaf, torch.dtype):
            return _wide(leaf) if wide else leaf
        return _widened(leaf) if wide and isinstance(leaf, Tensor) else leaf

    return replace(call, leaves=tuple(map(place, call.leaves)))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_floating_point and dtype.itemsize < 4 else dtype


def _widened(tensor: Tensor) -> Tensor:
    return tensor.to(_wide(tensor.dtype))


def coarser(one: Tensor, other: Tensor) -> Tensor:
    """Of the numbers of one value in two programs those of the format with less precision, which both can have."""
    if not (is_floating(one) and is_floating(other)):
        return other
    return one if torch.finfo(one.dtype).eps > torch.finfo(other.dtype).eps else other


class PartDistance(NamedTuple):
    """How far apart two parts are.

    Attributes:
        ratio: the largest distance over what the balls of both allow; NaN where that says nothing of any element.
        gap, room: the largest distance, and the most that is allowed, over the largest number.
    """

    ratio: float
    gap: float = 0.0
    room: float = 0.0


def measure_distance(
    segments: Sequence[Segment], inputs: Sequence[Sequence[Tensor]], contract: str, *, wide: bool
) -> PartDistance:  # fmt: skip
    """Read two parts.

    Args:
        segments: two. inputs: the values that each begins with. contract: of all calls. wide: as for `Segment.read`.
    """
    words = dict.fromkeys(word for segment in segments for word in segment.words(contract))
    allowed, apart = terms("+".join(words)), PartDistance(math.nan)
    for each in (allowed.of_text_alone, allowed):  # Other algorithms only widen a ball.
        one, other = (s.read(values, each, wide=wide) for s, values in zip(segments, inputs, strict=True))
        dtypes = [[dtype for _, dtype in segment.outputs] for segment in segments]
        rows = [_apart(a, b, (c, d), wide) for a, b, c, d in zip(one, other, *dtypes, strict=False)]
        columns = zip(*rows, strict=True)
        apart = PartDistance(*(max((x for x in column if not math.isnan(x)), default=math.nan) for column in columns))
        if not apart.ratio > 1:
            break
    return apart


@np.errstate(all="ignore")
def _apart(one: Reading, other: Reading, dtypes: tuple[torch.dtype, torch.dtype], wide: bool) -> PartDistance:
    """The distance of two readings."""
    if one.shape != other.shape:
        return PartDistance(math.inf, math.inf)
    if isinstance(one, Ball) != isinstance(other, Ball):
        return PartDistance(math.nan)
    if not (isinstance(one, Ball) and isinstance(other, Ball)):
        answers, others = answers_of(one), answers_of(other)
        is_near = np.all(answers.accepts(others.likely()) | others.accepts(answers.likely()))
        return PartDistance(0.0) if is_near else PartDistance(math.inf, math.inf)
    centres, radii, sure = [], [], []
    for ball, own in zip((one, other), dtypes, strict=True):
        centre, radius = np.asarray(ball.centre, np.float64), np.asarray(ball.radii(), np.float64)
        fmt = format_of(_real(_wide(own) if wide else own))
        sure.append(~np.isfinite(centre) & (radius == 0))
        centres.append(centre)
        radii.append(radius + 0.5 * ulp_array(fmt, np.abs(centre) + radius))
    gap, room = np.abs(centres[0] - centres[1]), radii[0] + radii[1]
    same = (centres[0] == centres[1]) | (np.isnan(centres[0]) & np.isnan(centres[1]))
    finite = [np.isfinite(centre) & np.isfinite(radius) for centre, radius in zip(centres, radii, strict=True)]
    clash = (sure[0] & (sure[1] | finite[1]) | sure[1] & finite[0]) & ~same
    both = finite[0] & finite[1]
    ratios = np.where(clash, np.inf, np.where(same, 0.0, np.where(both, gap / room, np.nan)))
    largest = [float(np.max(x, where=both, initial=0.0)) for x in (gap, room, np.abs(centres[0]))]
    whole = largest[2] or 1.0
    ratio = float(np.fmax.reduce(ratios, axis=None)) if ratios.size else 0.0
    return PartDistance(ratio, math.inf if ratio == math.inf else largest[0] / whole, largest[1] / whole)


def _real(dtype: torch.dtype) -> torch.dtype:
    return dtype.to_real() if dtype.is_complex else dtype
