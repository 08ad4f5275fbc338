"""One candidate under judgement: the spec, the inputs, the terms, and how a set of values is asked and held."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import msgspec

from ...oracles import process
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import OperandFacts, Reading
from ...oracles.verdicts.verdict import Code
from .agreement import disagreement, operands_of
from .arguments import CallArguments, Inputs, State, Tensor, lacking
from .call_history import CallHistory
from .comparing import hold_in_turn
from .evidence import OF_ARITHMETIC, OF_DATA, OF_LIKELY, Evidence, Records
from .finding import FailingCall, Finding, in_variant, raised, require_no_fault, summed, wrong
from .host.calls import DESTINATIONS, Answer, Answering, BackwardCall, CandidateCall, Manner, Sequel, Writes, stays
from .inputs import WAYS, Way, filled, stand_in
from .judge_draws import Draws
from .layouts import MemoryLayout, own_strides, strides_of_input
from .results import Result, SpecRun, unlike
from .row_sample import Part
from .specification import Specification

#: Before and after so many calls the process is compared, which takes a while; what a first call replaces, a second may
#: find replaced.
_WATCHED = 2
#: Bytes of arguments that are looked at after every call; to look at more of them takes longer than the call.
_FEW_BYTES = 2**18
#: How a call is made that hangs on calls before it.
_AFTER_OTHERS = (Manner.SAME, Manner.REBORN)


@dataclass(frozen=True)
class ProblemCut:
    """What of a problem one question asks for, and holds.

    Attributes:
        call_arguments: of the call. spec_arguments: those at whose rows the spec is computed, the same where all is
            held.
        rows: which of the outputs are held; None where the call has no others.
        share: of a large problem, in words; empty for all of it.
    """

    call_arguments: CallArguments
    spec_arguments: CallArguments
    rows: list[int] | None
    share: str


@dataclass
class Session:
    """One candidate under judgement.

    Attributes:
        spec, candidate, terms, draws: what is judged, by what, under which terms, and from which random state.
        arguments: of the call. draw: (seed) -> arguments, where the spec's file gives any number of them.
        part: how the problem is cut where it is large; None where it is asked as a whole.
        share: what of a large problem is asked for, in words, where rows of it are the problem now.
        history: of the calls. records: of what was held. packed: findings of questions that were asked in one call.
        readings: of outputs and gradients at the given arguments, by terms, operands and cotangents.
    """

    spec: Specification
    candidate: Answering
    terms: Terms
    draws: Draws
    arguments: CallArguments
    draw: Callable[[int], Inputs] | None = None
    part: Part | None = None
    share: str = ""
    history: CallHistory = field(default_factory=CallHistory)
    records: Records = field(default_factory=Records)
    packed: dict[str, Finding] = field(default_factory=dict)
    readings: dict[Any, Sequence[Reading]] = field(default_factory=dict)

    def generator(self, question: str) -> Any:
        """NumPy's generator for the inputs of a question; it depends on the draws and on the question alone."""
        return self.draws.generator(question)

    def filled(self, arguments: CallArguments, way: Way, rng: Any) -> CallArguments:
        """The arguments with other values; integers stay what the spec reads them as."""
        return filled(arguments, way, rng, self.spec.reads_values)

    @property
    def shared(self) -> list[str]:
        """Names of the spec's parameters and buffers that the candidate has, too, in the same shapes."""
        state, shapes = self.spec.state, self.candidate.shapes
        return [name for name in state if shapes.get(name) == tuple(state[name].shape)]

    @property
    def writes(self) -> bool:
        """Whether the candidate writes its outputs into destinations."""
        return bool(lacking(self.candidate.parameters, self.arguments.args))

    @property
    def controlled(self) -> bool:
        """Whether every parameter and buffer of the spec can be set in the candidate."""
        return len(self.shared) == len(self.spec.state)

    def call(
        self, arguments: CallArguments, state: State | None = None, manner: Manner = Manner.PLAIN, *,
        layout: MemoryLayout | None = None, backward: BackwardCall | None = None, watched: bool = False, **sequel: Any,
    ) -> Answer:  # fmt: skip
        """The candidate's answer.

        Args:
            arguments: of the call. state: parameters and buffers that are set before; None for those of the spec.
            manner: see `Manner`. layout: of the tensor arguments; None for their own.
            backward, watched: see `CandidateCall`. sequel: attributes of `Sequel`.
        """
        tensors = self.spec.state if state is None else state
        self.history.calls += 1
        # The candidate's process keeps the arguments of the first such call, which rows of them are not.
        stored = arguments is self.arguments and not self.share
        strides = own_strides(arguments.tensors) if manner is Manner.PLAIN else []
        strides = strides if layout is None else [strides_of_input(layout, t) for t in arguments.tensors]
        row, alike = sequel.get("times", 1) > 1, arguments.shapes == self.arguments.shapes
        if sum(t.nbytes for t in arguments.tensors) <= _FEW_BYTES:
            sequel["writes"] = msgspec.structs.replace(sequel.get("writes", Writes()), after=True)
        places = self._destinations(arguments, tensors)
        call = CandidateCall.of(
            arguments, {n: tensors[n] for n in self.shared}, manner=manner, strides=strides, stored=stored,
            destinations=[] if places is None else places.destinations,
            watched=self.history.calls <= _WATCHED or (watched and not row), backward=backward,
            sequel=Sequel(**sequel, watched=watched and row),
        )  # fmt: skip
        self.history.plain = call if arguments is self.arguments and manner is Manner.PLAIN else self.history.plain
        answer = self.candidate.ask(call)
        if not answer.raised and self.part is None:
            usual = alike and layout is None and manner is Manner.PLAIN
            self.history.note(arguments, answer, self.native, usual)
        if not answer.raised and stays(call, answer.outputs, len(self.history.staying)):
            self.history.staying.append(answer.outputs)
        if places is None and answer.form == DESTINATIONS:  # a type that has this name
            answer = msgspec.structs.replace(answer, form=f"?{DESTINATIONS}")
        self.history.executed = answer.executed or self.history.executed
        require_no_fault(answer.executed)
        faults = [line for line in answer.changed if line not in self.changed_by_spec]
        answer = msgspec.structs.replace(answer, changed=faults)
        self.history.changed += [line for line in answer.changed if line not in self.history.changed]
        self.history.alike = not answer.raised and alike
        return answer

    def _destinations(self, arguments: CallArguments, state: State) -> Result | None:
        """What the spec gives for other values, where the candidate has a parameter for each of its outputs."""
        count = len(lacking(self.candidate.parameters, arguments.args))
        result = self.spec.run(stand_in(arguments), state).result if count else None
        return result if result is not None and len(result.tensors) == count else None

    def cut_for(self, question: str, arguments: CallArguments, *, alone: bool = True) -> ProblemCut:
        """What a question asks for at some arguments: all, or rows of a large problem.

        Args:
            question: its code. arguments: the given ones, or others for the same call.
            alone: whether a call with those rows and no others will do, where the candidate takes them.
        """
        if self.part is None or arguments.shapes != self.arguments.shapes:
            return ProblemCut(arguments, arguments, None, self.share)
        rows = self.rows_for(question, arguments)
        few, share = self.few(arguments, rows), self.part.describe(rows)
        return (
            ProblemCut(few, few, None, share) if alone and self.rows_alone else ProblemCut(arguments, few, rows, share)
        )

    @functools.cached_property
    def first(self) -> Answer:
        """The answer to a plain call at the given arguments."""
        writes = Writes(self.shared, after=True)
        return self.call(self.arguments, watched=True, writes=writes, fetched=self.part is not None)

    def values(
        self, question: str, arguments: CallArguments, state: State | None = None, manner: Manner = Manner.PLAIN, *,
        sharp: bool = False, refusable: bool = False, alone: bool = False, layout: MemoryLayout | None = None,
    ) -> Finding:  # fmt: skip
        """Ask for the outputs at some arguments, and hold them.

        Args:
            question: its code. arguments, state, manner, layout: see `call`.
            sharp: whether what is exact in every order must be exact.
            refusable: whether an exception is no fault of the candidate.
            alone: whether rows of a large problem will do for the call, where the candidate takes them alone.
        """
        tensors = dict(self.spec.state) if state is None else dict(state)
        cut = self.cut_for(question, arguments, alone=alone)
        if cut.rows is not None:
            answer = self.call(cut.call_arguments, tensors, manner, layout=layout, fetched=True)
            if answer.raised:
                return raised(question, answer.raised, refusable)
            return self.held_in_part(question, arguments, tensors, answer, cut.rows, sharp)
        answer = self.call(
            cut.call_arguments, tensors, manner, layout=layout, writes=self.writes_at(cut.spec_arguments, tensors)
        )
        # The candidate is asked first: what is not computed yet cannot be found. What the spec refuses, it may refuse.
        run = self.spec.run(cut.spec_arguments, tensors)
        call = FailingCall(cut.call_arguments, tensors, layout, manner)
        if answer.raised:
            return self.shown_by(call, raised(question, answer.raised, refusable))
        usual = manner is Manner.PLAIN and layout is None and cut.rows is None
        finding = self.hold(question, cut.spec_arguments, tensors, run, answer, sharp, usual=usual)
        finding = replace(finding, sampled=cut.share)
        finding = in_variant(finding, self.history.executed)
        return self.shown_by(call, finding, run.names[: len(run.outputs)])

    def shown_by(self, call: FailingCall, finding: Finding, names: Sequence[str] | None = None) -> Finding:
        """A finding with the call that shows what is wrong, where a call alone shows it.

        Args:
            call: of which nothing is said yet but how it was made. finding: what came of it.
            names: of the outputs or gradients that it may be about; None where it says that the call raised.
        """
        if finding.wrong is None or call.manner in _AFTER_OTHERS or self.spec.numpy:
            return finding
        if names is None:
            return replace(finding, call=call)
        outlier = finding.wrong.outlier
        if outlier is None or outlier.output not in names:
            return finding
        return replace(finding, call=replace(call, place=names.index(outlier.output)))

    def reduced(self) -> None:
        """Go on with rows of a large problem alone, where the candidate takes them: it was wrong at the given size."""
        if self.part is None or not self.rows_alone:
            return
        rows = self.rows_for("GIVEN", self.arguments)
        self.share, self.arguments, self.draw, self.part = self.part.describe(rows), self.given_rows, None, None
        vars(self).pop("first", None)  # the answer at the given size is none to these arguments

    @functools.cached_property
    def rows_alone(self) -> bool:
        """Whether the candidate takes rows of a large problem alone, and is right there if it was at the given size.

        A call that need not have the given size is made with those rows alone then, for it takes a share of the time.
        """
        assert self.part is not None
        answer = self.call(self.given_rows)
        if answer.raised or self.history.strayed:
            return not answer.raised
        # As AGAIN, because the inputs are those of another question.
        finding = self.hold("AGAIN", self.given_rows, self.spec.state, self.native, answer)
        if finding.wrong is not None:
            # Other questions are asked at the given size, so that they do not tell of this fault again.
            self.packed["SIZES"] = replace(finding, question="SIZES")
        return finding.wrong is None

    def hold(
        self, question: str, arguments: CallArguments, state: State, run: SpecRun, answer: Answer, sharp: bool = False,
        *, usual: bool = False,
    ) -> Finding:  # fmt: skip
        """Hold an answer against the spec.

        Args:
            question, arguments, state, sharp: as for `values`.
            run: what torch computes of the spec there. answer: of the candidate. usual: whether to a plain call.
        """
        form = "" if answer.form == DESTINATIONS else unlike(answer.form, answer.plain, run.result)
        other_form = form or self._elsewhere(run, answer)
        if other_form:
            self.history.erring = self.history.strayed = True
            return wrong(question, Code.ATTRIBUTE, other_form)
        names, computed, which = self.select_for_comparison(run, answer)
        native = None if self.spec.numpy else [(*run.outputs, *run.values)[i] for i in which]

        def read(terms: Terms) -> Sequence[Reading]:
            every = self.read(arguments, state, terms, sharp)
            return [every[i] for i in which]

        operands = operands_of(self.spec, arguments, state)
        outcomes = hold_in_turn(names, computed, read, self.terms, native, operands, plain=not self.history.erring)
        probe = self.records.probe if usual and not any(each.wrong is not None for each in outcomes) else None
        if probe is not None and probe.holds_of(arguments) and (probe.result or not self.history.strayed):
            own = probe.terms(functools.partial(self.call, once=True), self.generator("probe"))
            outcomes = hold_in_turn(names, computed, read, own, native, operands)
        self.history.erring = any(each.wrong is not None for each in outcomes)
        self.history.strayed |= self.history.erring
        if operands is OperandFacts.FINITE or question in OF_DATA:
            self.records.remember(question, names, outcomes)
        # Of an output of another shape or dtype nothing can be asked afterwards.
        fits = not any(each.wrong is not None and each.wrong.code is Code.ATTRIBUTE for each in outcomes)
        # What is wrong is looked into for a reason.
        evident = question in OF_ARITHMETIC + OF_LIKELY or (self.history.erring and question in (*WAYS, "PARAMS"))
        if operands is OperandFacts.FINITE and fits and evident:
            torchs = tuple(native or [None] * len(names))
            again = functools.partial(self.spec.read, arguments, state)
            draws = functools.partial(self.spec.perturb, arguments, state, self.terms)
            called = (arguments, state)
            evidence = Evidence(question, names, computed, tuple(outcomes), torchs, again, draws, which, call=called)
            self.records.evidence.append(evidence)
        return summed(question, outcomes, arguments)

    def _elsewhere(self, run: SpecRun, answer: Answer) -> str:
        """An output that is on another device than the spec's, in words; empty if there is none."""
        if self.spec.numpy:
            return ""
        pairs = zip(run.names, answer.outputs, run.outputs, strict=False)
        others = (f"{name} is on {y.device}, need {own.device}" for name, y, own in pairs if y.device != own.device)
        return next(others, "")

    def writes_at(self, arguments: CallArguments, state: State) -> Writes:
        """What a call is asked for so that what the spec writes can be held."""
        places = self.spec.find_writes(arguments, state)
        positions = [place for place in places if isinstance(place, int)]
        return Writes(self._shared_of(places), positions, bool(positions))

    def _shared_of(self, places: Sequence[str | int]) -> list[str]:
        return [place for place in places if isinstance(place, str) and place in self.shared]

    def select_for_comparison(
        self, run: SpecRun, answer: Answer
    ) -> tuple[tuple[str, ...], tuple[Tensor, ...], tuple[int, ...]]:
        """Of an answer: names and tensors that are compared with the spec, and their positions among the spec's values.

        Args:
            run: of the spec. answer: to a call that is asked for `writes_at` it.
        """
        count = len(run.outputs)
        if len(answer.outputs) != count:
            return run.names[:count], tuple(answer.outputs), tuple(range(count))
        values: dict[str | int, Any] = dict(zip(self._shared_of(run.writes), answer.writes.buffers, strict=False))
        values |= dict(enumerate(answer.writes.after))
        rows = [(i, values.get(place)) for i, place in enumerate(run.writes, count)]
        self.records.lacking |= {run.names[i] for i, value in rows if value is None}
        every = [*enumerate(answer.outputs), *((i, value) for i, value in rows if value is not None)]
        return tuple(run.names[i] for i, _ in every), tuple(value for _, value in every), tuple(i for i, _ in every)

    def held_in_part(
        self, question: str, arguments: CallArguments, state: State, answer: Answer, rows: Sequence[int],
        sharp: bool = False, part: Part | None = None,
    ) -> Finding:  # fmt: skip
        """Hold rows of the answer to the call before.

        Args:
            question, arguments, state, sharp: as for `values`. answer: of the candidate. rows: which.
            part: how the arguments are cut; None where it is as the given ones are.
        """
        part = part or self.part
        assert part is not None
        if tuple(answer.shapes) != part.shapes:
            shapes = ", ".join(str(tuple(shape)) for shape in answer.shapes)
            need = ", ".join(map(str, part.shapes))
            return wrong(question, Code.ATTRIBUTE, f"the outputs have shapes {shapes or 'of none'}, need {need}")
        few = self.given_rows if arguments is self.arguments else part.of(arguments, rows)
        fetched = msgspec.structs.replace(answer, outputs=self.candidate.fetch(rows).outputs)
        finding = self.hold(question, few, state, self.spec.run(few, state), fetched, sharp)
        return replace(finding, sampled=part.describe(rows))

    @functools.cached_property
    def native(self) -> SpecRun:
        """What torch computes of the spec at the given arguments, or at rows of them."""
        return self.spec.run(self.given_rows, self.spec.state)

    @functools.cached_property
    def changed_by_spec(self) -> list[str]:
        """What the spec itself changes of the process: one that makes a parameter draws from torch's generator."""
        with process.seeded(0), process.watched(process.SampleSettings()) as changed:
            self.spec.run(self.given_rows, self.spec.state)
        return changed

    def disagreement(self) -> str:
        """Why the spec as it was read is not what torch runs of it, at the given arguments; empty where it is."""
        read = functools.partial(self.read, self.given_rows, self.spec.state)
        return disagreement(self.spec, self.given_rows, self.native, read, self.terms)

    def rows_for(self, question: str, arguments: CallArguments) -> list[int]:
        """Rows that a question holds; at the given arguments they are the same for all, and are read once."""
        assert self.part is not None
        return self.part.rows(self.generator("GIVEN" if arguments is self.arguments else question))

    @functools.cached_property
    def given_rows(self) -> CallArguments:
        """The given arguments; of a large problem the rows of them that are held."""
        arguments, part = self.arguments, self.part
        return arguments if part is None else part.of(arguments, self.rows_for("GIVEN", arguments))

    def few(self, arguments: CallArguments, rows: Sequence[int]) -> CallArguments:
        """The arguments with these rows alone."""
        assert self.part is not None
        return self.given_rows if arguments is self.arguments else self.part.of(arguments, rows)

    def read(self, arguments: CallArguments, state: State, terms: Terms, sharp: bool = False) -> Sequence[Reading]:
        """The spec's outputs as balls; at the given arguments, which several questions ask at, they are read once."""
        own = all(state.get(name) is value for name, value in self.spec.state.items())
        if sharp or arguments is not self.given_rows or not own:
            return self.spec.read(arguments, state, terms, sharp)
        if terms not in self.readings:
            self.readings[terms] = self.spec.read(arguments, state, terms)
        return self.readings[terms]


#: What asks one question of a session.
Asking = Callable[[Session], Finding]
