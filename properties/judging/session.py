"""One candidate under judgement: the spec, the inputs, the terms, and how a set of values is asked and held."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ...oracles.rounding import Ball
from ...oracles.terms import Terms
from ...oracles.verdict import Code
from .agreement import disagreement, told_of_torch
from .arguments import Arguments, State, Tensor
from .candidates.calls import Answer, Answering, Call, Manner
from .comparing import Held, hold_in_turn
from .finding import Finding, raised, summed, wrong
from .parts import Part, part_of
from .questions import OF_ARITHMETIC, OF_ITSELF, OF_LIKELY
from .specification import Reading, Run, SpecError, Specification

#: Before and after so many calls the process is compared, which takes a while.
_WATCHED = 2


@dataclass(frozen=True)
class Evidence:
    """What a candidate computed at inputs where all were finite, for questions that are asked of it afterwards.

    It is kept of some questions alone, because it takes several times the memory of the operands.
    """

    question: str
    arguments: Arguments
    state: State
    run: Run
    computed: tuple[Tensor, ...]
    held: tuple[Held, ...]


@dataclass(frozen=True)
class Seen:
    """What is kept of the outputs at every set of finite inputs, a word for each output.

    Attributes:
        question, names: which outputs.
        judged, vacuous: whether elements were judged, and whether their bound says little.
        meets: whether its ball has a value in common with that of the first question, in every element; None for the
            first, and where they cannot be compared.
    """

    question: str
    names: tuple[str, ...]
    judged: tuple[bool, ...]
    vacuous: tuple[bool, ...]
    meets: tuple[bool | None, ...]


@dataclass(frozen=True)
class Gradients:
    """What a candidate gave as gradients, as `Evidence`; `drawn` evaluates them with random errors."""

    names: tuple[str, ...]
    computed: tuple[Tensor, ...]
    held: tuple[Held, ...]
    drawn: Callable[[np.random.Generator], Iterator[tuple[Any, ...]]]


@dataclass(frozen=True)
class Cut:
    """What of a problem one question asks for, and holds.

    Attributes:
        called: the arguments of the call. held: those at whose rows the spec is computed, the same where all is held.
        rows: which of the outputs are held; None where the call has no others.
        told: in words, which share of a large problem that is; empty for all of it.
    """

    called: Arguments
    held: Arguments
    rows: list[int] | None
    told: str


@dataclass
class Session:
    """One candidate under judgement.

    Attributes:
        spec, candidate, terms, seed: what is judged, by what, under which terms, and of which random state.
        draw: (seed) -> arguments, where the spec's file gives any number of them.
        given: the arguments.
        made: what the making of the candidate changed in its process. changed: what its calls changed there.
        evidence: of the values that others read again. gradients: of those that were asked.
        seen: of all values that were asked. firsts: by output, the ball that later ones are compared with.
        left: asks what the candidate left behind, when it is asked no more.
        part: how the problem is cut where it is large; None where it is asked as a whole.
        packed: findings of questions that were asked in one call. asked_alike: whether the last call was answered, and
            at tensors of the shapes of those given.
        strayed: whether an output was wrong so far. Then it is likely to be wrong again, where several questions in
            one call would not tell which one it is.
        erring: whether one was wrong when outputs were held last.
        lost: gradients that the candidate does not give, and may owe, a sentence each.
        share: what of a large problem is asked for, in words, where rows of it are the problem now.
    """

    spec: Specification
    candidate: Answering
    terms: Terms
    seed: int
    given: Arguments
    draw: Callable[[int], Sequence[Any]] | None = None
    evidence: list[Evidence] = field(default_factory=list)
    gradients: list[Gradients] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)
    firsts: dict[int, Ball] = field(default_factory=dict)
    made: Sequence[str] = ()
    left: Callable[[], list[str]] = lambda: []
    changed: list[str] = field(default_factory=list)
    part: Part | None = None
    packed: dict[str, Finding] = field(default_factory=dict)
    asked_alike: bool = False
    strayed: bool = False
    erring: bool = False
    lost: list[str] = field(default_factory=list)
    share: str = ""
    _first: Answer | None = None
    _watched: int = 0
    _native: Run | None = None
    _few: tuple[list[int], Arguments] | None = None
    _known: tuple[Arguments | None, Terms | None, tuple[Reading, ...]] = (None, None, ())

    def cut(self) -> None:
        """Hold rows in place of the whole where the problem is large; a spec that cannot be read is told later."""
        with contextlib.suppress(SpecError):
            self.part = part_of(self.spec, self.given, self.spec.state, self.terms)

    def generator(self, question: str) -> Any:
        """NumPy's generator for the inputs of a question; it depends on the seed and on the question alone."""
        return np.random.default_rng([self.seed, *question.encode()])

    @property
    def shared(self) -> list[str]:
        """Names of the spec's parameters and buffers that the candidate has, too, in the same shapes."""
        state, shapes = self.spec.state, self.candidate.shapes
        return [name for name in state if shapes.get(name) == tuple(state[name].shape)]

    @property
    def controlled(self) -> bool:
        """Whether every parameter and buffer of the spec can be set in the candidate."""
        return len(self.shared) == len(self.spec.state)

    def call(
        self, arguments: Arguments, state: State | None = None, manner: Manner = Manner.PLAIN, **asked: Any
    ) -> Answer:
        """The candidate's answer, with the spec's parameters and buffers, or others, set in it."""
        held = self.spec.state if state is None else state
        # What a first call replaces, a second may find replaced.
        self._watched += 1
        # The candidate's process keeps the arguments of the first such call, which rows of them are not.
        stored = arguments is self.given and not self.is_reduced
        asked = {"watched": self._watched <= _WATCHED, "stored": stored, **asked}
        answer = self.candidate.ask(Call.of(arguments, {n: held[n] for n in self.shared}, manner=manner, **asked))
        self.changed += [line for line in answer.changed if line not in self.changed]
        self.asked_alike = not answer.raised and [t.shape for t in arguments.tensors] == [
            t.shape for t in self.given.tensors
        ]
        return answer

    @property
    def is_reduced(self) -> bool:
        """Whether rows of a large problem are the problem now."""
        return bool(self.share)

    def cut_for(self, question: str, arguments: Arguments, *, alone: bool = True) -> Cut:
        """What a question asks for at some arguments: all, or rows of a large problem.

        Args:
            question: its code. arguments: the given ones, or others for the same call.
            alone: whether a call with those rows and no others will do, where the candidate takes them.
        """
        if self.part is None or not self.part.fits(arguments, self.given):
            return Cut(arguments, arguments, None, self.share)
        rows = self.rows_for(question, arguments)
        few, told = self.few(arguments, rows), self.part.told(rows)
        return Cut(few, few, None, told) if alone and self.rows_alone else Cut(arguments, few, rows, told)

    def first(self) -> Answer:
        """The answer to a plain call at the given arguments, the same whenever it is asked for."""
        if self._first is None:
            self._first = self.call(self.given, watched=True, after=True, fetched=self.part is not None)
        return self._first

    def values(
        self,
        question: str,
        arguments: Arguments,
        state: State | None = None,
        manner: Manner = Manner.PLAIN,
        *,
        sharp: bool = False,
        refusable: bool = False,
        alone: bool = False,
    ) -> Finding:
        """Ask for the outputs at some arguments, and hold them.

        Args:
            question: its code. arguments, state, manner: see `call`.
            sharp: whether what is exact in every order must be exact.
            refusable: whether an exception is no fault of the candidate.
            alone: whether rows of a large problem will do for the call, where the candidate takes them alone.
        """
        held = dict(self.spec.state) if state is None else dict(state)
        cut = self.cut_for(question, arguments, alone=alone)
        if cut.rows is not None:
            answer = self.call(cut.called, held, manner, fetched=True)
            if answer.raised:
                return raised(question, answer.raised, refusable)
            return self.held_in_part(question, arguments, held, answer, cut.rows, sharp)
        run = self.spec.run(cut.held, held)
        answer = self.call(cut.called, held, manner, buffers=list(run.written))
        if answer.raised:
            return raised(question, answer.raised, refusable)
        return replace(self.held(question, cut.held, held, run, answer, sharp), sampled=cut.told)

    def reduced(self) -> None:
        """Go on with rows of a large problem alone, where the candidate takes them: it was wrong at the given size."""
        if self.part is None or not self.rows_alone:
            return
        rows = self.rows_for("GIVEN", self.given)
        self.share, self.given, self.draw = self.part.told(rows), self.few(self.given, rows), None
        self.part = self._first = None

    @functools.cached_property
    def rows_alone(self) -> bool:
        """Whether the candidate takes rows of a large problem alone, and is right there if it was at the given size.

        A call that need not have the given size is made with those rows alone then, for it takes a share of the time.
        """
        assert self.part is not None
        few = self.few(self.given, self.rows_for("GIVEN", self.given))
        answer = self.call(few)
        if answer.raised or self.strayed:
            return not answer.raised
        found = self.held("AGAIN", few, self.spec.state, self.native(), answer)  # as AGAIN, at inputs that were had
        if found.wrong is not None:
            # Other questions are asked at the given size, so that they do not tell of this fault again.
            self.packed["SIZES"] = replace(found, question="SIZES")
        return found.wrong is None

    def held(
        self, question: str, arguments: Arguments, state: State, run: Run, answer: Answer, sharp: bool = False
    ) -> Finding:
        """Hold an answer against the spec.

        Args:
            question, arguments, state, sharp: as for `values`.
            run: what torch computes of the spec there. answer: of the candidate.
        """
        # A buffer that only the spec has, or that came back under another name, says nothing of the outputs.
        with_buffers = len(answer.buffers) == len(run.written)
        computed = (*answer.outputs, *(answer.buffers if with_buffers else ()))
        expected = len(run.names) if with_buffers else len(run.outputs)
        native = None if self.spec.numpy else (*run.outputs, *run.buffers)[:expected]

        def read(terms: Terms) -> Sequence[Reading]:
            return self._read(arguments, state, sharp, terms)[:expected]

        names, finite = run.names[:expected], arguments.finite
        found = hold_in_turn(names, computed, read, self.terms, native, finite, plain=not self.erring)
        found = told_of_torch(found, native, self.terms, finite)
        self.erring = any(each.wrong is not None for each in found)
        self.strayed |= self.erring
        if finite:
            self._remember(question, names, found)
            # Of an output of another shape or dtype nothing can be asked afterwards.
            fits = not any(each.wrong is not None and each.wrong.code is Code.ATTRIBUTE for each in found)
            if fits and question in OF_ARITHMETIC + OF_LIKELY:
                self.evidence.append(Evidence(question, arguments, state, run, computed, tuple(found)))
        return summed(question, found)

    def _remember(self, question: str, names: Sequence[str], found: Sequence[Held]) -> None:
        if question in OF_ITSELF:
            return
        balls = [each.ball if each.judged else None for each in found]
        meets = tuple(_meet(self.firsts.get(i), one) for i, one in enumerate(balls))
        for i, one in enumerate(balls):
            if one is not None:
                self.firsts.setdefault(i, one)
        judged = tuple(bool(each.judged) for each in found)
        self.seen.append(Seen(question, tuple(names), judged, tuple(each.vacuous for each in found), meets))

    def held_in_part(
        self,
        question: str,
        arguments: Arguments,
        state: State,
        answer: Answer,
        rows: Sequence[int],
        sharp: bool = False,
    ) -> Finding:
        """Hold rows of the answer to the call before.

        Args:
            question, arguments, state, sharp: as for `values`. answer: of the candidate. rows: which.
        """
        assert self.part is not None
        if tuple(answer.shapes) != self.part.shapes:
            shapes = ", ".join(str(tuple(shape)) for shape in answer.shapes)
            need = ", ".join(map(str, self.part.shapes))
            return wrong(question, Code.ATTRIBUTE, f"the outputs have shapes {shapes or 'of none'}, need {need}")
        few = self.few(arguments, rows)
        found = self.held(
            question, few, state, self.spec.run(few, state), Answer(self.candidate.fetch(rows).outputs), sharp
        )
        return replace(found, sampled=self.part.told(rows))

    def native(self) -> Run:
        """What torch computes of the spec at the given arguments, or at rows of them."""
        if self._native is None:
            self._native = self.spec.run(self._of_native(), self.spec.state)
        return self._native

    def _of_native(self) -> Arguments:
        return self.given if self.part is None else self.few(self.given, self.rows_for("GIVEN", self.given))

    def disagreement(self) -> str:
        """Why the spec as it was read is not what torch runs of it, at the given arguments; empty where it is."""
        arguments, state, own = self._of_native(), self.spec.state, self.native()
        read = functools.partial(self._read, arguments, state, False)
        return disagreement(self.spec, arguments, state, own, read, self.terms)

    def rows_for(self, question: str, arguments: Arguments) -> list[int]:
        """Rows that a question holds; at the given arguments they are the same for all, and are read once."""
        assert self.part is not None
        return self.part.rows(self.generator("GIVEN" if arguments is self.given else question))

    def few(self, arguments: Arguments, rows: Sequence[int]) -> Arguments:
        """The arguments with these rows alone."""
        assert self.part is not None
        if arguments is not self.given:
            return self.part.of(arguments, rows)
        if self._few is None or self._few[0] != list(rows):
            self._few = list(rows), self.part.of(arguments, rows)
        return self._few[1]

    def _read(self, arguments: Arguments, state: State, sharp: bool, terms: Terms) -> tuple[Reading, ...]:
        """The spec's outputs as balls; at the given arguments, which several questions ask at, they are read once."""
        given = self.given if self._few is None else self._few[1]
        own = all(state.get(name) is value for name, value in self.spec.state.items())
        if sharp or arguments is not given or not own:
            return self.spec.read(arguments, state, terms, sharp)
        if self._known[0] is not arguments or self._known[1] != terms:
            self._known = arguments, terms, self.spec.read(arguments, state, terms)
        return self._known[2]


def _meet(first: Ball | None, other: Ball | None) -> bool | None:
    """Whether two balls have a value in common in every element; None where one is missing, or of another shape."""
    if first is None or other is None or first.shape != other.shape:
        return None
    with np.errstate(all="ignore"):
        return bool(np.all(np.abs(first.centre - other.centre) <= first.radii() + other.radii()))


#: What asks one question of a session.
Asking = Callable[[Session], Finding]
