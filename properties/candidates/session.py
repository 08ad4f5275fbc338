"""One candidate under judgement: the spec, the inputs, the terms, and how a set of values is asked and held."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec
import numpy as np

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.verdicts.verdict import Code
from .agreement import disagreement, told_of_torch
from .arguments import CallArguments, OperandFacts, State, Tensor
from .comparing import Held, hold_in_turn
from .evidence import Evidence, Gradients, OutputDigest
from .finding import Finding, raised, summed, wrong
from .host.calls import Answer, Answering, CandidateCall, Manner
from .judgement import Assignment
from .layouts import MemoryLayout, own_strides, strides_of
from .one_order import operands_of
from .questions import OF_ARITHMETIC, OF_DATA, OF_ITSELF, OF_LIKELY
from .results import SpecRun, unlike
from .row_sample import Part, part_of
from .specification import Reading, SpecError, Specification

#: Before and after so many calls the process is compared, which takes a while.
_WATCHED = 2


@dataclass(frozen=True)
class ProblemCut:
    """What of a problem one question asks for, and holds.

    Attributes:
        called: the arguments of the call. held: those at whose rows the spec is computed, the same where all is held.
        rows: which of the outputs are held; None where the call has no others.
        told: in words, which share of a large problem that is; empty for all of it.
    """

    called: CallArguments
    held: CallArguments
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
        lacking: what the spec writes and the candidate does not have, so that it could not be held.
        share: what of a large problem is asked for, in words, where rows of it are the problem now.
        whole: the gradients of the candidate at the given inputs, by operand.
        slopes: readings of gradients at the given inputs, by terms, operands and cotangents.
    """

    spec: Specification
    candidate: Answering
    terms: Terms
    seed: int
    given: CallArguments
    draw: Callable[[int], Sequence[Any]] | None = None
    evidence: list[Evidence] = field(default_factory=list)
    gradients: list[Gradients] = field(default_factory=list)
    seen: list[OutputDigest] = field(default_factory=list)
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
    lacking: set[str] = field(default_factory=set)
    share: str = ""
    slopes: dict[Any, Sequence[Reading]] = field(default_factory=dict)
    whole: dict[int | str, Tensor | None] = field(default_factory=dict)
    _first: Answer | None = None
    _watched: int = 0
    _native: SpecRun | None = None
    _few: tuple[list[int], CallArguments] | None = None
    _known: tuple[CallArguments | None, Terms | None, tuple[Reading, ...]] = (None, None, ())

    def cut(self) -> None:
        """Hold rows in place of the whole where the problem is large; a spec that cannot be read is told later."""
        with contextlib.suppress(SpecError):
            self.part = part_of(self.spec, self.given, self.spec.state, self.terms)

    def generator(self, question: str) -> Any:
        """NumPy's generator for the inputs of a question; it depends on the seed and on the question alone."""
        return np.random.default_rng([self.seed, *question.encode()])

    def assignment(self) -> Assignment:
        """What is judged here, and by what."""
        floating = [str(t.dtype).removeprefix("torch.") for t in self.given.tensors if t.is_floating_point()]
        dtype = next(iter(floating), "none")
        return Assignment(self.candidate.name, self.spec.name, str(self.terms), self.seed, dtype)

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
        self, arguments: CallArguments, state: State | None = None, manner: Manner = Manner.PLAIN, **asked: Any
    ) -> Answer:
        """The candidate's answer, with the spec's parameters and buffers, or others, set in it."""
        tensors = self.spec.state if state is None else state
        # What a first call replaces, a second may find replaced.
        self._watched += 1
        # The candidate's process keeps the arguments of the first such call, which rows of them are not.
        stored = arguments is self.given and not self.is_reduced
        strides = own_strides(arguments.tensors) if manner is Manner.PLAIN else []
        asked = {"watched": self._watched <= _WATCHED, "stored": stored, "strides": strides, **asked}
        answer = self.candidate.ask(
            CandidateCall.of(arguments, {n: tensors[n] for n in self.shared}, manner=manner, **asked)
        )
        self.changed += [line for line in answer.changed if line not in self.changed]
        self.asked_alike = not answer.raised and [t.shape for t in arguments.tensors] == [
            t.shape for t in self.given.tensors
        ]
        return answer

    @property
    def is_reduced(self) -> bool:
        """Whether rows of a large problem are the problem now."""
        return bool(self.share)

    def cut_for(self, question: str, arguments: CallArguments, *, alone: bool = True) -> ProblemCut:
        """What a question asks for at some arguments: all, or rows of a large problem.

        Args:
            question: its code. arguments: the given ones, or others for the same call.
            alone: whether a call with those rows and no others will do, where the candidate takes them.
        """
        if self.part is None or not self.part.fits(arguments, self.given):
            return ProblemCut(arguments, arguments, None, self.share)
        rows = self.rows_for(question, arguments)
        few, share = self.few(arguments, rows), self.part.told(rows)
        return (
            ProblemCut(few, few, None, share) if alone and self.rows_alone else ProblemCut(arguments, few, rows, share)
        )

    def first(self) -> Answer:
        """The answer to a plain call at the given arguments, the same whenever it is asked for."""
        if self._first is None:
            self._first = self.call(
                self.given, watched=True, after=True, fetched=self.part is not None, buffers=self.shared
            )
        return self._first

    def values(
        self,
        question: str,
        arguments: CallArguments,
        state: State | None = None,
        manner: Manner = Manner.PLAIN,
        *,
        sharp: bool = False,
        refusable: bool = False,
        alone: bool = False,
        layout: MemoryLayout | None = None,
    ) -> Finding:
        """Ask for the outputs at some arguments, and hold them.

        Args:
            question: its code. arguments, state, manner: see `call`.
            sharp: whether what is exact in every order must be exact.
            refusable: whether an exception is no fault of the candidate.
            alone: whether rows of a large problem will do for the call, where the candidate takes them alone.
            layout: of the tensor arguments; None for their own.
        """
        tensors = dict(self.spec.state) if state is None else dict(state)
        cut = self.cut_for(question, arguments, alone=alone)
        memory = {} if layout is None else {"strides": [strides_of(layout, t.shape) for t in cut.called.tensors]}
        if cut.rows is not None:
            answer = self.call(cut.called, tensors, manner, fetched=True, **memory)
            if answer.raised:
                return raised(question, answer.raised, refusable)
            return self.held_in_part(question, arguments, tensors, answer, cut.rows, sharp)
        run = self.spec.run(cut.held, tensors)
        answer = self.call(cut.called, tensors, manner, **self.asked_of_written(run), **memory)
        if answer.raised:
            return raised(question, answer.raised, refusable)
        return replace(self.held(question, cut.held, tensors, run, answer, sharp), sampled=cut.told)

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
        finding = self.held("AGAIN", few, self.spec.state, self.native(), answer)  # as AGAIN, at inputs that were had
        if finding.wrong is not None:
            # Other questions are asked at the given size, so that they do not tell of this fault again.
            self.packed["SIZES"] = replace(finding, question="SIZES")
        return finding.wrong is None

    def held(
        self, question: str, arguments: CallArguments, state: State, run: SpecRun, answer: Answer, sharp: bool = False
    ) -> Finding:
        """Hold an answer against the spec.

        Args:
            question, arguments, state, sharp: as for `values`.
            run: what torch computes of the spec there. answer: of the candidate.
        """
        other_form = unlike(answer.form, answer.plain, run.result)
        if other_form:
            self.erring = self.strayed = True
            return wrong(question, Code.ATTRIBUTE, other_form)
        names, computed, which = self.to_be_held(run, answer)
        native = None if self.spec.numpy else [(*run.outputs, *run.values)[i] for i in which]

        def read(terms: Terms) -> Sequence[Reading]:
            every = self._read(arguments, state, sharp, terms)
            return [every[i] for i in which]

        operands = operands_of(self.spec, arguments, state)
        outcomes = hold_in_turn(names, computed, read, self.terms, native, operands, plain=not self.erring)
        outcomes = told_of_torch(outcomes, native, self.terms, operands)
        self.erring = any(each.wrong is not None for each in outcomes)
        self.strayed |= self.erring
        if operands is OperandFacts.FINITE or question in OF_DATA:
            self._remember(question, names, outcomes)
        # Of an output of another shape or dtype nothing can be asked afterwards.
        fits = not any(each.wrong is not None and each.wrong.code is Code.ATTRIBUTE for each in outcomes)
        if operands is OperandFacts.FINITE and fits and question in OF_ARITHMETIC + OF_LIKELY:
            torchs = tuple(native or [None] * len(names))
            self.evidence.append(Evidence(question, arguments, state, names, computed, tuple(outcomes), which, torchs))
        return summed(question, outcomes, arguments)

    def asked_of_written(self, run: SpecRun) -> dict[str, Any]:
        """What a call is asked for so that what the spec writes can be held."""
        positions = [place for place in run.written if isinstance(place, int)]
        return {"buffers": self._shared_of(run), "after": bool(positions), "restored": positions}

    def _shared_of(self, run: SpecRun) -> list[str]:
        return [place for place in run.written if isinstance(place, str) and place in self.shared]

    def to_be_held(self, run: SpecRun, answer: Answer) -> tuple[tuple[str, ...], tuple[Tensor, ...], tuple[int, ...]]:
        """The names and the tensors of an answer that are held, and which of the spec's they are.

        Args:
            run: of the spec. answer: to a call that `asked_of_written` has a part in.
        """
        count = len(run.outputs)
        if len(answer.outputs) != count:
            return run.names[:count], tuple(answer.outputs), tuple(range(count))
        values: dict[str | int, Any] = dict(zip(self._shared_of(run), answer.buffers, strict=False))
        values |= dict(enumerate(answer.after))
        rows = [(i, values.get(place)) for i, place in enumerate(run.written, count)]
        self.lacking |= {run.names[i] for i, value in rows if value is None}
        every = [*enumerate(answer.outputs), *((i, value) for i, value in rows if value is not None)]
        return tuple(run.names[i] for i, _ in every), tuple(value for _, value in every), tuple(i for i, _ in every)

    def _remember(self, question: str, names: Sequence[str], found: Sequence[Held]) -> None:
        if question in OF_ITSELF:
            return
        balls = [each.ball if each.judged else None for each in found]
        meets = tuple(_meet(self.firsts.get(i), one) for i, one in enumerate(balls))
        for i, one in enumerate(balls):
            if one is not None:
                self.firsts.setdefault(i, one)
        self.seen.append(
            OutputDigest(
                question,
                tuple(names),
                tuple(each.judged for each in found),
                tuple(each.elements for each in found),
                tuple(each.missed for each in found),
                tuple(each.reason for each in found),
                tuple(each.vacuous for each in found),
                meets,
            )
        )

    def held_in_part(
        self,
        question: str,
        arguments: CallArguments,
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
        fetched = msgspec.structs.replace(answer, outputs=self.candidate.fetch(rows).outputs)
        finding = self.held(question, few, state, self.spec.run(few, state), fetched, sharp)
        return replace(finding, sampled=self.part.told(rows))

    def native(self) -> SpecRun:
        """What torch computes of the spec at the given arguments, or at rows of them."""
        if self._native is None:
            self._native = self.spec.run(self._of_native(), self.spec.state)
        return self._native

    def _of_native(self) -> CallArguments:
        return self.given if self.part is None else self.few(self.given, self.rows_for("GIVEN", self.given))

    def disagreement(self) -> str:
        """Why the spec as it was read is not what torch runs of it, at the given arguments; empty where it is."""
        arguments, state, own = self._of_native(), self.spec.state, self.native()
        read = functools.partial(self._read, arguments, state, False)
        return disagreement(self.spec, arguments, state, own, read, self.terms)

    def rows_for(self, question: str, arguments: CallArguments) -> list[int]:
        """Rows that a question holds; at the given arguments they are the same for all, and are read once."""
        assert self.part is not None
        return self.part.rows(self.generator("GIVEN" if arguments is self.given else question))

    def few(self, arguments: CallArguments, rows: Sequence[int]) -> CallArguments:
        """The arguments with these rows alone."""
        assert self.part is not None
        if arguments is not self.given:
            return self.part.of(arguments, rows)
        if self._few is None or self._few[0] != list(rows):
            self._few = list(rows), self.part.of(arguments, rows)
        return self._few[1]

    def _read(self, arguments: CallArguments, state: State, sharp: bool, terms: Terms) -> tuple[Reading, ...]:
        """The spec's outputs as balls; at the given arguments, which several questions ask at, they are read once."""
        own_arguments = self.given if self._few is None else self._few[1]
        own = all(state.get(name) is value for name, value in self.spec.state.items())
        if sharp or arguments is not own_arguments or not own:
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
