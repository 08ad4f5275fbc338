"""A candidate, and another that is asked the same beside it: which of their results have other bits, and how far apart.

What this is for: two implementations of one spec differ, and somebody has to say whether that matters. Each call of the
judge goes to both, with the same memory layouts, so whatever the first is asked the second is, too.

What is hard here: what the second computes is needed again, for bounds that are read later. It is found by the tensor
of the first that stands in the same place, for as long as somebody keeps that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import msgspec
import numpy as np
from torch.utils.weak import WeakIdKeyDictionary

from ...oracles.judge.holding import Standing
from ...oracles.op.bits import different
from ...oracles.op.declaration import to_array
from ...oracles.verdicts.violation import Violation
from ..relations import count_signs, mask_of, ulps_of
from .arguments import Tensor, device_of
from .evidence import Evidence
from .host.calls import Answer, Answering, CandidateCall, GoneError, LateError, Manner
from .host.operations import Operations
from .layouts import Placing

#: Of a result: "out" or "gradient", and its number, or a parameter's name.
Place = tuple[str, int | str]


@dataclass
class Agreement:
    """How one output or gradient of two candidates agrees, over all calls.

    Attributes:
        calls, elements, differing: how many were compared, and how many elements are not the same number; NaNs are.
        zeros: how many are zeros of other signs, which are told and not counted. odd: of how many one alone is finite.
        ulps: by how much the others differ at most, in units of the last place of the larger one.
        example: where that is: the operands, the index and both numbers, in words.
    """

    calls: int = 0
    elements: int = 0
    differing: int = 0
    zeros: int = 0
    odd: int = 0
    ulps: float = 0.0
    example: str = ""

    def note(self, one: Tensor, other: Tensor, operands: str) -> None:
        """Compare the results of one call."""
        apart = mask_of(one, other)
        self.calls, self.elements = self.calls + 1, self.elements + one.numel()
        self.zeros += count_signs({"": one}, {"": other})
        self.differing += int(apart.sum())
        if not apart.any():
            return
        distances = ulps_of(one, other, apart)
        self.odd += int(np.isinf(distances).sum())
        at = np.unravel_index(int(np.where(np.isinf(distances), -1.0, distances).argmax()), distances.shape)
        if distances[at] > self.ulps or not self.example:
            self.ulps = max(self.ulps, float(distances[at]))
            index = f" at {list(map(int, at))}" if at else ""
            a, b = (to_array(y)[at].item() for y in (one, other))
            self.example = f"{a!r} and {b!r}{index} of a call with {operands}"


class TwoCandidates(NamedTuple):
    """What `parity` hands to `judge` in the place of one candidate."""

    first: Any
    second: Any


class Miss(NamedTuple):
    """Results that are outside: the question, the card, and what holds them again: (terms) -> standings."""

    question: str
    card: Violation
    hold: Callable[..., Sequence[Standing]]


@dataclass
class Beside:
    """Two candidates as one that can be asked: it answers what the first does (`host.calls.Answering`).

    Attributes:
        first, second: the candidates. device: of the second, where its calls are moved to; empty for that of the first.
        agreements: by place. last: results of both in the last call, by place.
        fault: what the second does where the first gives a result, in words: it raises, has ended, or gives another
            shape; empty for nothing. wrong: by "A" or "B" where it was outside, see `Miss`.
        refusals: what the second raises at other sizes, where the first gives a result.
    """

    first: Answering
    second: Answering
    device: str = ""
    agreements: dict[Place, Agreement] = field(default_factory=dict)
    last: dict[Place, tuple[Tensor, Tensor]] = field(default_factory=dict)
    fault: str = ""
    wrong: dict[str, list[Miss]] = field(default_factory=dict)
    refusals: list[str] = field(default_factory=list)
    _kinds: list[Any] = field(default_factory=list)
    _alike: bool = False
    _others: Any = field(default_factory=WeakIdKeyDictionary)

    def __post_init__(self) -> None:
        first = self.first
        self.name, self.shapes, self.parameters, self.changed = (
            first.name,
            first.shapes,
            first.parameters,
            first.changed,
        )

    def ask(self, call: CandidateCall) -> Answer:
        """See `Answering`."""
        answer = self.first.ask(call)
        self.last = {}
        alike = msgspec.structs.replace(_move(call, self.device) if self.device else call, watched=False)
        other = None if self.fault else self._other(lambda: self.second.ask(alike), call.arguments.device)
        self._alike = other is not None and self._compare(call, answer, other)
        return answer

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Answer:
        """See `Answering`."""
        answer = self.first.fetch(rows, earlier)
        device = device_of(answer.outputs)
        other = self._other(lambda: self.second.fetch(rows), device) if self._alike and not earlier else None
        if other is not None:
            self._pair("out", answer.outputs, other.outputs, f"{len(rows)} rows")
        return answer

    def review(self) -> Answer:
        """See `Answering`."""
        return self.first.review()

    def operations(self, call: CandidateCall) -> Operations:
        """See `Answering`."""
        return self.first.operations(call)

    def left_behind(self) -> list[str]:
        """See `Answering`."""
        return [*self.first.left_behind(), *self.second.left_behind()]

    def others_of(self, computed: Sequence[Tensor]) -> list[Tensor] | None:
        """What the second gave in the places of results of the first; None where one of them was not compared."""
        others = [self._others.get(y) for y in computed]
        return None if any(other is None for other in others) else others

    def evidence_of(self, each: Evidence) -> Evidence | None:
        """What the second computed where the first did; None where that is not known."""
        others = self.others_of(each.computed)
        return None if others is None else replace(each, computed=tuple(others))

    def note(self, name: str, question: str, standings: Sequence[Standing], hold: Callable[..., Any]) -> None:
        """Keep what is wrong of one of them; `hold`: holds it again, under other terms."""
        wrong = next((each.wrong for each in standings if each.wrong is not None), None)
        if wrong is not None:
            self.wrong.setdefault(name, []).append(Miss(question, wrong, hold))

    def _other(self, ask: Callable[[], Answer], device: str) -> Answer | None:
        """The second's answer, on a device; None where its process has ended."""
        try:
            return _move(ask(), device) if self.device else ask()
        except LateError:
            raise
        except GoneError as err:
            self.fault = f"its process {err}"
        return None

    def _compare(self, call: CandidateCall, answer: Answer, other: Answer) -> bool:
        """Compare two answers; whether both have results of the same shapes, whose rows may be fetched."""
        text = call.arguments.text
        kinds = [(tuple(t.shape), t.dtype) for t in call.arguments.tensors]
        self._kinds = self._kinds or kinds
        if answer.raised or other.raised:
            first = f"{other.raised.splitlines()[0]} for {text}" if not answer.raised else ""
            if first and kinds == self._kinds and call.manner is Manner.PLAIN and call.placing == Placing():
                self.fault = f"it raises {first}"
            elif first:  # A clear error at other sizes, or at other memory, is no fault, as of a single candidate.
                self.refusals.append(first)
            return False
        if [tuple(s) for s in answer.shapes] != [tuple(s) for s in other.shapes]:
            self.fault = f"its outputs have shapes {other.shapes} for {text}, and those of the first {answer.shapes}"
            return False
        self._pair("out", answer.outputs, other.outputs, text)
        self._register(answer.writes.buffers, other.writes.buffers)
        self._register(answer.writes.after, other.writes.after)
        pulled = call.backward
        names: list[int | str] = [] if pulled is None else [*pulled.moving, *pulled.wanted]
        if answer.pulled.gradients and other.pulled.gradients:  # else one has no backward, which is no fault
            self._pair("gradient", answer.pulled.gradients, other.pulled.gradients, text, names)
        return True

    def _pair(
        self, kind: str, ones: Sequence[Any], others: Sequence[Any], text: str, names: Sequence[int | str] = ()
    ) -> None:
        """Compare results of one kind, and keep those of the second by those of the first."""
        if len(ones) != len(others):
            self.fault = self.fault or f"it gives {len(others)} {kind}s for {text}, and the first {len(ones)}"
            return
        for number, (one, other) in enumerate(zip(ones, others, strict=True)):
            if not isinstance(one, Tensor) or not isinstance(other, Tensor):
                continue  # a gradient that one of them does not give
            if one.shape != other.shape or one.dtype != other.dtype:
                kinds = f"{other.dtype}{list(other.shape)}", f"{one.dtype}{list(one.shape)}"
                self.fault = self.fault or f"its {kind} {number} is {kinds[0]} for {text}, that of the first {kinds[1]}"
                continue
            place = kind, names[number] if names else number
            self.agreements.setdefault(place, Agreement()).note(one, other, text)
            self.last[place], self._others[one] = (one, other), other

    def _register(self, ones: Sequence[Any], others: Sequence[Any]) -> None:
        for one, other in zip(ones, others, strict=False):
            if isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape:
                self._others[one] = other


def _move(value: Any, device: str) -> Any:
    """A call or an answer, with all tensors on a device."""
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **_move(msgspec.structs.asdict(value), device))
    if isinstance(value, dict):
        return {name: _move(each, device) for name, each in value.items()}
    if isinstance(value, list):
        return [_move(each, device) for each in value]
    return value.to(device) if isinstance(value, Tensor) else value


def hold_beside(
    candidate: Answering, question: str, computed: Sequence[Tensor], standings: Sequence[Standing],
    hold: Callable[..., Sequence[Standing]],
) -> None:  # fmt: skip
    """Hold what the other candidate gave where it differs; nothing where none is asked beside this one.

    Args:
        candidate: perhaps two. question: its code. computed, standings: of the first. hold: (results like those,
            terms=...) -> their standings.
    """
    others = candidate.others_of(computed) if isinstance(candidate, Beside) else None
    if others is None or not isinstance(candidate, Beside):
        return
    candidate.note("A", question, standings, functools.partial(hold, computed))
    alike = not any(bool(different(a, b).any()) for a, b in zip(computed, others, strict=True))
    candidate.note("B", question, standings if alike else hold(others), functools.partial(hold, others))
