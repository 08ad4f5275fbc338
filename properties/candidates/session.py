"""One candidate under judgement: the spec, the inputs, the terms, and how outputs are requested and compared."""

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
from .agreement import operands_of
from .arguments import CallArguments, Inputs, State, Tensor, lacking
from .beside import hold_beside
from .call_history import CallHistory
from .comparing import hold_in_turn, tell_unwritten
from .decays import read_values
from .domain.declaration import Declaration
from .domain.deriving import derive_domain
from .domain.domain import Domain
from .evidence import OF_ARITHMETIC, OF_DATA, OF_LIKELY, Evidence
from .finding import FailingCall, Finding, in_variant, raised, require_no_fault, summed, wrong
from .host.calls import DESTINATIONS, Answer, Answering, BackwardCall, CandidateCall, Manner, Sequel, Writes, stays
from .inputs import WAYS, Way, destinations_of, filled, keep
from .judge_draws import Draws
from .layouts import AnyLayout, Placing, is_far, placing_of
from .records import Records
from .results import SpecRun, elsewhere, unlike
from .row_sample import Part, ProblemCut
from .specification import Specification
from .spread import OF_SPECIAL, SpecialCall, tell_spread

#: First calls around which the state of the process is compared. A second may differ after a replacement by the first.
_WATCHED = 2
#: Arguments of more bytes are not read back after every call, because that would take longer than the call.
_FEW_BYTES = 2**18
#: The manners of calls whose results may depend on earlier calls.
_AFTER_OTHERS = (Manner.SAME, Manner.REBORN, Manner.ASSIGNED)


@dataclass
class Session:
    """One candidate under judgement.

    Attributes:
        spec, candidate, terms, draws: the spec, the candidate that is judged by it, the terms, and the random state.
        arguments: the given ones. draw: (seed) -> arguments, where the spec's file draws any number of them.
        part: how rows of a large problem are cut out; None where the whole problem is compared.
        share: the part of a large problem that its rows are, in words, once these rows have become the problem.
        history: of the calls. records: of comparisons. packed: findings of questions that share one call.
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
        """NumPy's generator for the inputs of a question; its state depends only on the draws and the question."""
        return self.draws.generator(question)

    def filled(self, arguments: CallArguments, way: Way, rng: Any) -> CallArguments:
        """The arguments with other values; integers that the spec reads, which its domain tells, remain valid ones."""
        return filled(arguments, way, rng, domain=self.domain, of_sequences=self.spec.reads_values)

    @functools.cached_property
    def domain(self) -> Domain:
        """The calls that the spec takes."""
        return derive_domain(self.spec, self.arguments, self.draw, self.draws.inputs)

    @property
    def declared(self) -> Declaration:
        """What the author of the spec says of them."""
        return self.domain.declaration if self.spec.domain else Declaration()

    @property
    def shared(self) -> list[str]:
        """Names of the spec's parameters and buffers that the candidate also has, with the same shapes."""
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
        layout: AnyLayout | None = None, backward: BackwardCall | None = None, watched: bool = False, **sequel: Any,
    ) -> Answer:  # fmt: skip
        """Call the candidate, and return its answer.

        Args:
            arguments: of the call. state: parameters and buffers to set before; None for those of the spec.
            manner: see `Manner`. layout: of the arguments or destinations; None for their own.
            backward, watched: see `CandidateCall`. sequel: attributes of `Sequel`.
        """
        tensors = self.spec.state if state is None else state
        self.history.calls += 1
        self.records.unchanged.note(arguments)
        # The candidate's process keeps the given arguments from the first call with them; rows of them are not kept.
        stored = arguments is self.arguments and not self.share
        placing = self._placing(FailingCall(arguments, tensors, layout, manner), backward is not None)
        row, alike = sequel.get("times", 1) > 1, arguments.is_like(self.arguments)
        if sum(t.nbytes for t in arguments.tensors) <= _FEW_BYTES:
            sequel["writes"] = msgspec.structs.replace(sequel.get("writes", Writes()), after=True)
        places = destinations_of(self.spec, arguments, tensors, lacking(self.candidate.parameters, arguments.args))
        call = CandidateCall.of(
            arguments, {n: tensors[n] for n in self.shared}, manner=manner, placing=placing, stored=stored,
            destinations=[] if places is None else places.destinations,
            watched=self.history.calls <= _WATCHED or (watched and not row), backward=backward,
            sequel=Sequel(**sequel, watched=watched and row),
        )  # fmt: skip
        self.history.plain = call if arguments is self.arguments and manner is Manner.PLAIN else self.history.plain
        answer = self.candidate.ask(call)
        if not answer.raised and self.part is None:
            aliases = answer.aliases.among(self.arguments.tensors) if alike else answer.aliases
            answer = msgspec.structs.replace(answer, aliases=aliases)
            usual = alike and layout is None and manner is Manner.PLAIN
            writes = functools.partial(self._find_writes, arguments, tensors)
            self.history.note(arguments, answer, self.native, usual, writes, self.declared.writes)
        if not answer.raised and stays(call, answer.outputs, len(self.history.staying)):
            self.history.staying.append(answer.outputs)
        if places is None and answer.form == DESTINATIONS:  # the candidate returned a type of this name
            answer = msgspec.structs.replace(answer, form=f"?{DESTINATIONS}")
        if answer.executed is not None and answer.executed.fault != Code.NO_DEVICE:
            self.history.executed = answer.executed
        require_no_fault(answer.executed)
        faults = [line for line in answer.changed if line not in self.changed_by_spec]
        answer = msgspec.structs.replace(answer, changed=faults)
        self.history.changed += [line for line in answer.changed if line not in self.history.changed]
        self.history.alike = not answer.raised and alike
        return answer

    def _placing(self, call: FailingCall, derived: bool) -> Placing:
        """Where the arguments of a call lie; far apart in none that autograd would have to afford the memory of."""
        tensors = call.arguments.tensors
        if call.layout is None and (call.manner is not Manner.PLAIN or (derived and any(map(is_far, tensors)))):
            return Placing()
        writes = functools.partial(self._find_writes, call.arguments, call.state)
        return placing_of(tensors, call.layout, writes, self.declared.contiguous)

    def cut_for(self, question: str, arguments: CallArguments, *, alone: bool = True) -> ProblemCut:
        """What a question calls and compares at some arguments: everything, or rows of a large problem.

        Args:
            question: its code. arguments: the given ones, or others for the same call.
            alone: whether the call may be made with those rows alone, if the candidate accepts them.
        """
        if self.part is None or arguments.shapes != self.arguments.shapes:
            return ProblemCut(arguments, arguments, None, self.share)
        rows = self.rows_for(question, arguments)
        few = self.given_rows if arguments is self.arguments else self.part.of(arguments, rows)
        share = self.part.describe(rows)
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
        sharp: bool = False, refusable: bool = False, alone: bool = False, layout: AnyLayout | None = None,
    ) -> Finding:  # fmt: skip
        """Call the candidate at some arguments, and compare its outputs with the spec.

        Args:
            question: its code. arguments, state, manner, layout: see `call`.
            sharp: whether results that are exact in every order of evaluation must be exact.
            refusable: whether the candidate may raise an exception.
            alone: whether the call may be made with rows of a large problem alone, if the candidate accepts them.
        """
        tensors = dict(self.spec.state) if state is None else dict(state)
        if arguments is not self.arguments and arguments.structure == self.arguments.structure:
            arguments = keep(arguments, self.domain, self.generator(f"facts {question}"))
        cut = self.cut_for(question, arguments, alone=alone)
        if cut.rows is not None:
            answer = self.call(cut.call_arguments, tensors, manner, layout=layout, fetched=True)
            if answer.raised:
                return raised(question, answer.raised, refusable)
            return self.compare_rows(question, arguments, tensors, answer, cut.rows, sharp)
        writes = self.writes_at(cut.spec_arguments, tensors)
        answer = self.call(cut.call_arguments, tensors, manner, layout=layout, writes=writes)
        # Called before the spec, whose result it could find in memory else; where the spec raises, it may, too.
        run = self.spec.run(cut.spec_arguments, tensors)
        call = FailingCall(cut.call_arguments, tensors, layout, manner)
        if answer.raised:
            return self.attach_call(call, raised(question, answer.raised, refusable))
        finding = self.hold(question, cut.spec_arguments, tensors, run, answer, sharp)
        finding = in_variant(replace(finding, sampled=cut.share), self.history.executed)
        return self.attach_call(call, finding, run.names[: len(run.outputs)])

    def attach_call(self, call: FailingCall, finding: Finding, names: Sequence[str] | None = None) -> Finding:
        """The finding with the call that shows what is wrong, if a single call shows it.

        Args:
            call: how the call was made; which output is wrong is added here. finding: about this call.
            names: of the outputs or gradients that the finding may be about; None if it says that the call raised.
        """
        if finding.wrong is None or call.manner in _AFTER_OTHERS or self.spec.numpy:
            return finding
        call = replace(call, placing=self._placing(call, call.backward is not None))
        if names is None:
            return replace(finding, call=call)
        outlier = finding.wrong.outlier
        if outlier is None or outlier.output not in names:
            return finding
        return replace(finding, call=replace(call, place=names.index(outlier.output)))

    def reduce_to_rows(self) -> None:
        """Make rows the whole problem, if the candidate accepts them alone, after it was wrong at the given size."""
        if self.part is None or not self.rows_alone:
            return
        rows = self.rows_for("FWD:given", self.arguments)
        self.share, self.arguments, self.draw, self.part = self.part.describe(rows), self.given_rows, None, None
        vars(self).pop("first", None)  # the stored answer belongs to the arguments of the given size

    @functools.cached_property
    def rows_alone(self) -> bool:
        """Whether the candidate accepts rows of a large problem alone, and is as right there as at the given size.

        If so, calls that need not have the given size are made with these rows only, which takes less time.
        """
        assert self.part is not None
        answer = self.call(self.given_rows)
        if answer.raised or self.history.strayed:
            return not answer.raised
        # The code is CALLS:again, because with that no evidence is recorded: the inputs belong to another question.
        finding = self.hold("CALLS:again", self.given_rows, self.spec.state, self.native, answer)
        if finding.wrong is not None:
            # Other questions use the given size from now on, so that they do not report this fault again.
            self.packed["SIZE:sizes"] = replace(finding, question="SIZE:sizes")
        return finding.wrong is None

    def hold(
        self, question: str, arguments: CallArguments, state: State, run: SpecRun, answer: Answer, sharp: bool = False
    ) -> Finding:
        """Compare an answer with the spec.

        Args:
            question, arguments, state, sharp: as for `values`.
            run: the spec as torch computes it there. answer: of the candidate.
        """
        form = "" if answer.form == DESTINATIONS else unlike(answer.form, answer.plain, run.result)
        other_form = form or ("" if self.spec.numpy else elsewhere(run, answer.outputs))
        if other_form:
            self.history.erring = self.history.strayed = True
            return wrong(question, Code.ATTRIBUTE, other_form)
        names, computed, which = self.select_for_comparison(run, answer)
        native = None if self.spec.numpy else [(*run.outputs, *run.values)[i] for i in which]

        def read(terms: Terms) -> Sequence[Reading]:
            every = self.read(arguments, state, terms, sharp)
            return [every[i] for i in which]

        operands, plain = operands_of(self.spec, arguments, state), not self.history.erring
        outcomes = hold_in_turn(names, computed, read, self.terms, native, operands, plain=plain)
        if operands is OperandFacts.FINITE:
            how: dict[str, Any] = {"reader": read, "terms": self.terms, "native": native, "facts": operands}
            hold_beside(self.candidate, question, computed, outcomes, functools.partial(hold_in_turn, names, **how))
        if question in OF_SPECIAL and any(each.wrong is not None for each in outcomes) and self.arguments.finite:
            at = (question, self.spec, arguments, state, self.terms, self._computed_at if self.part is None else None)
            outcomes = tell_spread(SpecialCall(*at, self.generator("spread"), names, computed, which), outcomes)
        self.history.erring = any(each.wrong is not None for each in outcomes)
        if self.history.erring and run.writes:
            before = run.written_of(state, arguments.tensors)
            outcomes = tell_unwritten(outcomes, computed, [before[i] for i in which])
        self.history.strayed |= self.history.erring
        if operands is OperandFacts.FINITE or question in OF_DATA:
            self.records.remember(question, names, outcomes)
        # Later questions cannot compare an output of a wrong shape or dtype; of another wrong one they find the reason.
        fits = not any(each.wrong is not None and each.wrong.code is Code.ATTRIBUTE for each in outcomes)
        evident = question in OF_ARITHMETIC + OF_LIKELY or (self.history.erring and question in (*WAYS, "FWD:params"))
        if operands is OperandFacts.FINITE and fits and evident:
            torchs = tuple(native or [None] * len(names))
            again = functools.partial(self.spec.read, arguments, state)
            draws = self.spec.question_at(arguments, state, self.terms).perturb
            evidence = Evidence(question, names, computed, tuple(outcomes), torchs, again, draws, which)
            self.records.evidence.append(replace(evidence, call=(arguments, state)))
        return summed(question, outcomes, arguments)

    def _computed_at(self, arguments: CallArguments, state: State) -> Sequence[Tensor] | None:
        """What the candidate gives of what is compared; None where it raises."""
        answer = self.call(arguments, dict(state), writes=self.writes_at(arguments, state))
        return None if answer.raised else self.select_for_comparison(self.spec.run(arguments, state), answer)[1]

    def writes_at(self, arguments: CallArguments, state: State) -> Writes:
        """The written tensors that a call must return, so that the ones that the spec writes can be compared."""
        places = self._find_writes(arguments, state)
        positions = [place for place in places if isinstance(place, int)]
        return Writes(self._shared_of(places), positions, bool(positions))

    def _find_writes(self, arguments: CallArguments, state: State) -> list[str | int]:
        """What a call may write: what the spec does, and what its author allows."""
        return [*dict.fromkeys([*self.spec.find_writes(arguments, state), *self.declared.writes])]

    def _shared_of(self, places: Sequence[str | int]) -> list[str]:
        return [place for place in places if isinstance(place, str) and place in self.shared]

    def select_for_comparison(
        self, run: SpecRun, answer: Answer
    ) -> tuple[tuple[str, ...], tuple[Tensor, ...], tuple[int, ...]]:
        """Names and tensors of an answer that are compared with the spec, and their positions among the spec's values.

        Args:
            run: of the spec. answer: to a call that returns the tensors of `writes_at`.
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

    def compare_rows(
        self, question: str, arguments: CallArguments, state: State, answer: Answer, rows: Sequence[int],
        sharp: bool = False, part: Part | None = None,
    ) -> Finding:  # fmt: skip
        """Compare rows of the answer to the latest call with the spec.

        Args:
            question, arguments, state, sharp: as for `values`. answer: of the candidate. rows: their numbers.
            part: how rows are cut out of the arguments; `self.part` by default.
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
        """The spec as torch computes it at the given arguments, or at rows of them."""
        return self.spec.run(self.given_rows, self.spec.state)

    @functools.cached_property
    def changed_by_spec(self) -> list[str]:
        """What the spec itself changes in the process; one that makes a parameter draws from torch's generator."""
        with process.seeded(0), process.watched(process.SampleSettings()) as changed:
            self.spec.run(self.given_rows, self.spec.state)
        return changed

    def rows_for(self, question: str, arguments: CallArguments) -> list[int]:
        """Rows that a question compares; the given arguments have the same rows for all questions, read only once."""
        assert self.part is not None
        return self.part.rows(self.generator("GIVEN" if arguments is self.arguments else question))

    @functools.cached_property
    def given_rows(self) -> CallArguments:
        """The given arguments, or the rows of them that are compared if the problem is large."""
        part = self.part
        return self.arguments if part is None else part.of(self.arguments, self.rows_for("FWD:given", self.arguments))

    def read(self, arguments: CallArguments, state: State, terms: Terms, sharp: bool = False) -> Sequence[Reading]:
        """The spec's outputs as balls; at the given arguments, which several questions use, they are read once."""
        own = all(state.get(name) is value for name, value in self.spec.state.items())
        if sharp or arguments is not self.given_rows or not own:
            return read_values(self.spec, arguments, state, terms, sharp)
        if terms not in self.readings:
            self.readings[terms] = read_values(self.spec, arguments, state, terms, sharp)
        return self.readings[terms]


#: A function that answers one question about the candidate of a session.
Asking = Callable[[Session], Finding]
