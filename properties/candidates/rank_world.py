"""Candidates in the processes of several ranks, as one: its operands are cut, and its results put together.

What this is for: every question about a candidate is asked of a world of ranks, too, because all of them together are a
function of whole tensors, whose spec is plain torch on the whole. What is the same on several ranks must have the same
bits there, which is kept for a question of its own.

What is hard here: each rank may raise, end or return something else than the others, while those wait for it. Each has
a thread of the judge's, which speaks for it where collectives meet, and says when its call has ended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ...oracles.op.bits import same_results
from ...oracles.process import interrupt
from ...reference.meeting import Delivery, Meeting, Turn
from ..names import WIRES
from .arguments import Tensor
from .host.apart import CandidateApart, CandidateError
from .host.calls import Answer, CandidateCall, GoneError, LateError, Manner, stays
from .host.operations import Operations
from .host.quarters import Quarters
from .placements import PartsError
from .rank_parts import CallParts

_Result = TypeVar("_Result")
#: Seconds between two looks at threads, between which a user's interrupt is heard.
_TICK = 0.05
#: Seconds after which a rank that raised on a real wire is ended, so that others do not wait for it.
_GRACE = 5.0


@dataclass
class _Staying:
    """The outputs of one call that are looked at in the end, as they were; and how many of it each rank has kept."""

    outputs: Sequence[Tensor]
    counts: Sequence[int]
    is_judged: bool


@dataclass
class RankGroup:
    """The candidates of all ranks as one (`host.calls.Answering`).

    Attributes:
        parts: how calls are cut and answers put together. wire: one of `WIRES`. aparts: the candidates, by rank.
        renew: begins the processes of ranks once more that have lost each other on a real wire.
        others: begins the same with other numbers of ranks. is_uneven: whether parts of other lengths were accepted.
    """

    parts: CallParts
    wire: str = WIRES[0]
    aparts: list[CandidateApart] = field(default_factory=list)
    others: Mapping[int, Callable[[], RankGroup]] = field(default_factory=dict)
    is_uneven: bool = False
    renew: Callable[[], object] = lambda: None
    _rooms: Sequence[Quarters] = ()
    _lost: bool = False
    _latest: Sequence[Tensor] = ()
    _staying: list[_Staying] = field(default_factory=list)
    _counts: dict[int, int] = field(default_factory=dict)
    _meeting: Meeting | None = None

    def __post_init__(self) -> None:
        self.name = ""
        self.changed: Sequence[str] = ()
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.parameters: dict[str, bool] = {}

    @property
    def is_real(self) -> bool:
        """Whether collectives go over a wire of torch's own, and not to the judge."""
        return self.wire != WIRES[0]

    @property
    def size(self) -> int:
        """How many ranks there are."""
        return self.parts.size

    @property
    def tale(self) -> str:
        """How many ranks there are, and how tensors lie on them, in a line."""
        known, placements = self.parts.names, self.parts.placements
        names = [*known.tensors, *self.shapes, *dict.fromkeys(name for name, _ in known.outputs)]
        lying = (f"{name} {'x'.join(map(str, placements.of(name)))}" for name in names)
        over = f" over {self.wire}" * self.is_real
        return f"on {'x'.join(map(str, placements.mesh))} ranks{over}: {', '.join(lying)}"

    @property
    def until(self) -> float:
        """When the judgement is out of time."""
        return self.aparts[0].until

    @until.setter
    def until(self, until: float) -> None:
        for each in self.aparts:
            each.until = until

    def begin(self, rooms: Sequence[Quarters], make: Callable[[Quarters], CandidateApart]) -> RankGroup:
        """Make the candidates of all ranks at once, because a file may have collectives where it is imported.

        Args:
            rooms: the processes, by rank. make: (its process) -> the candidate of a rank.

        Raises:
            GivenError, CandidateError: as `CandidateApart` does.
        """
        apart: list[CandidateApart | None] = [None] * self.size
        self._rooms = rooms

        def start(rank: int) -> None:
            rooms[rank].meet = lambda turn: self._meet(rank, turn)
            apart[rank] = make(rooms[rank])

        try:
            self._together(start)
        except BaseException as err:
            for each in apart:
                if each is not None:
                    each.close()
            if isinstance(err, GoneError):
                raise CandidateError(str(err)) from err
            raise
        self.aparts = [each for each in apart if each is not None]
        first = self.aparts[0]
        self.name, self.parameters = first.name, first.parameters
        self.changed = [f"rank {r}: {line}" for r, each in enumerate(self.aparts) for line in each.changed]
        self.shapes = {name: self._whole_shape(name) for name in first.shapes}
        return self

    def _require_together(self) -> None:
        """Begin ranks once more that have lost each other; of calls before that, outputs are as they were.

        Raises:
            GoneError: they do not come together again.
        """
        if not self._lost:
            return
        until = self.until
        self._lost, self._counts = False, {}  # first: to begin them is to ask all of them, too
        self.close()
        for call in self._staying:
            call.counts = [0] * self.size
        try:
            self.renew()
        except CandidateError as err:
            raise GoneError(str(err)) from err
        self.until = until

    def _whole_shape(self, name: str) -> tuple[int, ...]:
        """The shape of what ranks have of a parameter; that of the first where it is no whole."""
        shapes = [each.shapes.get(name, ()) for each in self.aparts]
        try:
            return self.parts.placements.whole_shape(shapes, self.parts.placements.of(name))
        except PartsError:
            return tuple(shapes[0])

    def _meet(self, rank: int, turn: Turn) -> Delivery:
        assert self._meeting is not None
        return self._meeting.take_turn(rank, turn)

    def _together(
        self, act: Callable[[int], _Result], order: Sequence[int] = (), broken: int | None = None
    ) -> list[_Result]:
        """What a function gives of every rank, in a thread for each.

        Raises:
            GoneError: the process of a rank has ended. LateError: the judgement is out of time.
        """
        self._require_together()
        meeting = self._meeting = Meeting(self.size, order, broken)
        results: dict[int, _Result] = {}
        errors: dict[int, BaseException] = {}
        odd: dict[int, float] = {}

        def run(rank: int) -> None:
            how = "has ended"
            try:
                results[rank] = result = act(rank)
                text = result.raised if isinstance(result, Answer) else ""
                how = f"raised {text.splitlines()[0]}" if text else "has returned"
                if text:
                    odd[rank] = time.monotonic()
            except BaseException as err:
                errors[rank] = err
            finally:
                meeting.leave(rank, how)

        threads = [threading.Thread(target=run, args=(rank,), daemon=True) for rank in range(self.size)]
        for each in threads:
            each.start()
        while any(each.is_alive() for each in threads):
            for each in threads:
                each.join(_TICK)
            interrupt.reraise()
            late = [rank for rank, since in odd.items() if self.is_real and time.monotonic() - since > _GRACE]
            for rank in late:  # Its end breaks its connections, at which others wait.
                self._rooms[rank].process.kill()
                del odd[rank]
        if errors:
            self._raise_first(errors)
        return [results[rank] for rank in range(self.size)]

    def _raise_first(self, errors: dict[int, BaseException]) -> None:
        """Raise the error of the ranks that says most."""
        late = next((err for err in errors.values() if isinstance(err, LateError)), None)
        odd = next((err for err in errors.values() if not isinstance(err, (GoneError, LateError))), None)
        if late is not None or odd is not None:
            raise late or odd  # type: ignore[misc]
        rank, end = next(iter(errors.items()))
        assert isinstance(end, GoneError)
        raise GoneError(f"{end} (rank {rank} of {self.size})", end.timed_out) from end

    def ask(self, call: CandidateCall) -> Answer:
        """See `host.calls.Answering`."""
        order = range(self.size)[::-1] if call.manner is Manner.LATE else range(self.size)
        try:
            parts = [self.parts.cut(call, rank) for rank in range(self.size)]
        except PartsError as err:
            return Answer(raised=f"PartsError: {err}")
        answers = self._together(lambda rank: self.aparts[rank].ask(parts[rank]), order)
        # Who refuses in the same words as all others has come as far; else a message of this call may be under way.
        self._lost = self.is_real and len({each.raised.partition("\n")[0] for each in answers}) > 1
        try:
            answer, outputs = self.parts.join(call, parts, answers)
        except PartsError as err:
            answer, outputs = Answer(raised=f"PartsError: {err}"), ()
        self._note_staying(call, parts, answers, None if answer.raised else outputs)
        self._latest = self._latest if answer.raised else outputs
        return answer

    def lost_ranks(self, rng: Any) -> Sequence[int]:
        """The ranks that `ask_broken` takes from the others: on a real wire one, because all begin once more then."""
        return [int(rng.integers(self.size))] if self.is_real else range(self.size)

    def ask_broken(self, call: CandidateCall, rank: int) -> tuple[list[Answer], set[int]]:
        """The answers of all ranks where one has lost the others; and which of them were told that a call failed.

        On a real wire nobody sees what a rank is told. There it is whoever raises, or returns something else.
        """
        parts = [self.parts.cut(call, each) for each in range(self.size)]
        if self.is_real:
            before = self._together(lambda each: self.aparts[each].ask(parts[each]))
            self._rooms[rank].process.kill()
            end = Answer(raised="RankError: is lost")
            answers = self._together(lambda each: end if each == rank else self.aparts[each].ask(parts[each]))
            self._lost = True
            pairs = zip(answers, before, strict=True)
            same = [a.raised == b.raised and all(map(same_results, a.outputs, b.outputs)) for a, b in pairs]
            return answers, {each for each, alike in enumerate(same) if not alike}
        answers = self._together(lambda each: self.aparts[each].ask(parts[each]), broken=rank)
        self._note_staying(call, parts, answers, None)
        assert self._meeting is not None
        return answers, self._meeting.victims

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Answer:
        """See `host.calls.Answering`; of an earlier call as it was, because only large problems ask for that."""
        return Answer([y[list(rows)] for y in self._latest])

    def review(self) -> Answer:
        """See `host.calls.Answering`."""
        answers = self._together(lambda rank: self.aparts[rank].review())
        now, outputs = [list(each.earlier) for each in answers], list[Tensor]()
        for call in self._staying:
            parts = [[each.pop(0) for _ in range(min(n, len(each)))] for each, n in zip(now, call.counts, strict=True)]
            if call.is_judged:
                names = [self.parts.names.output(i) for i in range(len(call.outputs))]
                outputs += self.parts.join_each(parts, names) if {*call.counts} == {len(names)} else call.outputs
        changed = [f"rank {rank}: {line}" for rank, each in enumerate(answers) for line in each.changed]
        return Answer(earlier=outputs, changed=changed)

    def operations(self, call: CandidateCall) -> Operations:
        """See `host.calls.Answering`; those of the first rank."""
        parts = [self.parts.cut(call, rank) for rank in range(self.size)]
        return self._together(lambda rank: self.aparts[rank].operations(parts[rank]))[0]

    def left_behind(self) -> list[str]:
        """See `host.calls.Answering`."""
        return [f"rank {rank}: {line}" for rank, each in enumerate(self.aparts) for line in each.left_behind()]

    def close(self) -> None:
        """End all processes."""
        for each in self.aparts:
            each.close()

    def _note_staying(
        self, call: CandidateCall, parts: Sequence[CandidateCall], answers: Sequence[Answer], outputs: Any
    ) -> None:  # fmt: skip
        """Keep which calls are looked at again in the end, by the ranks, and by the judge where it has outputs."""
        counts = [0] * self.size
        for rank, (part, each) in enumerate(zip(parts, answers, strict=True)):
            if not each.raised and stays(part, each.outputs, self._counts.get(rank, 0)):
                self._counts[rank] = self._counts.get(rank, 0) + 1
                counts[rank] = len(each.outputs)
        is_judged = outputs is not None and stays(call, outputs, sum(each.is_judged for each in self._staying))
        self._staying.append(_Staying(outputs or (), counts, is_judged))
