"""`judge`: all questions about one candidate, and the judgement that their answers make."""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.terms import Terms, terms, terms_of_compiled
from ...oracles.process import interrupt
from ...oracles.verdicts.verdict import Code, Outcome, Verdict
from ...oracles.verdicts.violation import Violation
from ..declaring.user_samples import call_seeded, takes
from ..places.executing import execute_launches
from ..rehearsal.environment import place_of_work
from ..table import KINDS, TABLE, property_of
from .agreement import disagreement
from .arguments import CallArguments, copied_state
from .asking import ASKING
from .beside import Beside, TwoCandidates
from .conformance import DEFAULT
from .finding import Finding, not_asked, of_property, wrong
from .host.calls import GoneError, LateError
from .host.host import CandidateHost
from .judge_draws import Draws
from .judgement import OF_OTHER_CALLS, Assignment, Judgement, Ruling, ruling
from .numpy_specs import name_of_function
from .other_calls import ask_within_signs
from .precision import arithmetic
from .question_plan import FAR, INVARIANT, OF_RANKS, QuestionPlan, axes_of_words
from .rank_world import RankGroup
from .reasons import find_advice
from .results import without_numbers
from .row_sample import part_of
from .session import Session
from .specification import SpecError, Specification, specification
from .unasked import find_weaknesses, with_options

#: (code of the question that comes next, how many were asked, how many there are) -> None.
Progress = Callable[[str, int, int], None]
#: (code of a property) -> its verdict.
AskProperty = Callable[[str], Verdict]
#: What keeps a kernel from being run here, and is no fault of it.
_OF_THE_MACHINE = (Code.OPCODE, Code.NO_DEVICE)
#: Questions that few candidates have.
_OF_FEW = ("FWD:ties", FAR, *OF_RANKS)
#: Every question, to its end.
ALL = QuestionPlan()


@interrupt.SignalScope()
def judge(
    candidate: Any, spec: Any, inputs: Any, *, contract: str | Terms = DEFAULT, seed: int = 0,
    questions: Sequence[str] = (), calls: int | None = None, total: float = math.inf, compiled: str = "",
    domain: Mapping[str, Any] | None = None, invariant: Sequence[str] = (),
) -> Judgement:  # fmt: skip
    """Judge a candidate in this process, by a spec.

    Args:
        candidate: a function or a module; a module's parameters and buffers of the names and shapes of the spec's are
            set to those, and set back in the end.
        spec: as for `bound`; or None, where only `invariant` is asked.
        inputs: the arguments of one call, in order or by name, or a function of a seed, or of nothing, that gives them.
            What the candidate needs besides are destinations, one for each output of the spec: it writes into them.
        contract: as for `bound`. seed: of everything that is drawn.
        questions: codes of `table.TABLE`, or "ALL"; by default every kind of `table.KINDS`. A property is asked in
            its kinds, and then by samples like those of an op.
        calls: that CALLS:again makes in a row; None for as many as half a second takes, and 320 at most.
        total: seconds after which nothing more is asked, which the judgement names as a weakness.
        compiled: an architecture, "sm_90" say: Triton kernels that the candidate launches are compiled for it, and
            their PTX is executed on tensors of the CPU, as `opassay judge --compiled` does. "" for launches as ever.
        invariant: axes along which bits must be equal ("rows", "all", "rows=x:0"; docs/judge_your_kernel.md).
        domain: which calls the spec takes, merged over what is derived (docs/judge_your_kernel.md).

    Raises:
        KeyboardInterrupt: a signal came (or another exception of the caller's signal handler); there is no judgement.
        TypeError: `inputs` are no arguments, or `candidate` cannot be called.
        ValueError: a code, a contract or an architecture that is none, a negative
            seed, or fewer than two calls; or a domain that clashes with the spec or its inputs.
        RuntimeError: kernels were to be compiled, and Triton was imported as an interpreter.
    """
    both = candidate if isinstance(candidate, TwoCandidates) else (candidate,)
    named = "".join(map(name_of_function, both[1:]))
    plan = QuestionPlan(questions, calls=calls, total=total, beside=named, others=axes_of_words(invariant))
    draws = Draws.of(seed)
    allowed = terms_of_compiled(terms(contract)) if compiled else terms(contract)
    _require_kinds(both, inputs)
    own = Specification("itself", both[0], itself=True) if spec is None else specification(spec)
    read_spec = replace(own, domain=domain or {})
    plan = plan.of_relations() if spec is None else plan
    draw = None if not callable(inputs) else inputs if takes(inputs, 1) else functools.partial(call_seeded, inputs)
    arguments = CallArguments.of(inputs if draw is None else draw(seed)).with_names(both[0] if spec is None else spec)
    name = name_of_function(both[0])
    if odd := _find_odd(arguments):
        return Judgement(Assignment(name, read_spec.name, str(allowed), draws), Ruling.ERROR, error=odd)
    hosts = [CandidateHost(name_of_function(each), each) for each in both]
    before = [copied_state(each.state.parts) for each in hosts]
    part = None if spec is None else part_of(read_spec, arguments, allowed)
    answering = Beside(hosts[0], hosts[1]) if hosts[1:] else hosts[0]
    session = Session(read_spec, answering, allowed, draws, arguments, draw, part)
    session.history.in_a_row = plan.calls
    try:
        with execute_launches(compiled) if compiled else contextlib.nullcontext():
            return ask_all(session, plan, ask_property=_asking_here(session, hosts[0]))
    finally:
        for each, state in zip(hosts, before, strict=True):
            each.state.set(state)


def _find_odd(arguments: CallArguments) -> str:
    """Which tensor has no numbers that could be judged, and why; empty where all have."""
    whys = ((i, without_numbers(t)) for i, t in enumerate(arguments.tensors))
    return next((f"{arguments.label(i)} {why}" for i, why in whys if why), "")


def _require_kinds(candidates: Sequence[Any], inputs: Any) -> None:
    """TypeError for what is no candidate, or gives no arguments."""
    if not callable(inputs) and (isinstance(inputs, str) or not isinstance(inputs, Sequence | Mapping)):
        shape = f" of shape {tuple(inputs.shape)}" if isinstance(inputs, torch.Tensor) else ""
        need = "need the arguments of a call, as (x,) or {'x': x}"
        raise TypeError(f"inputs: got a {type(inputs).__name__}{shape}, {need}")
    for each in candidates:
        if not callable(each):
            raise TypeError(f"candidate: got a {type(each).__name__}, need a function or a module")


def parity(first: Any, second: Any, inputs: Any, *, spec: Any = None, **options: Any) -> Judgement:
    """Say why two implementations differ: equal bits, the order of sums, less precision, a bias, or a wrong one.

    The first is judged by the spec, and the second is asked all that the first is. `Judgement.difference` has the
    answer.

    Args:
        first, second: functions or modules of the same arguments. inputs, options: as for `judge`; by default PARITY
            is asked, with what it rests on: values, sums that are exact, gradients and sizes.
        spec: what is right, in plain PyTorch; the first itself by default, which then has to be that.

    Raises:
        TypeError, ValueError: as `judge` does.

    Example:
        >>> import torch, opassay
        >>> half = lambda x: (x.bfloat16() @ x.bfloat16().mT).float()
        >>> text = str(opassay.parity(lambda x: x @ x.mT, half, (torch.ones(4, 8) / 3,)))
        >>> "precision: B is of less precision" in text
        True
    """
    two = TwoCandidates(first, second)
    return judge(two, spec or first, inputs, **{"questions": ("PARITY",), **options})


def _asking_here(session: Session, host: CandidateHost) -> AskProperty:
    """What asks a property in this process; the engine, which takes a while to import, is imported with the first."""

    @functools.cache
    def make() -> Any:
        from .candidate_op import op_of_candidate

        return op_of_candidate(host, session.spec, session.arguments, session.terms)

    def ask(code: str) -> Verdict:
        from .candidate_op import judge_property

        return judge_property(code, make, session.draws.seed)

    return ask


def ask_all(
    session: Session, plan: QuestionPlan = ALL, progress: Progress | None = None,
    ask_property: AskProperty | None = None,
) -> Judgement:  # fmt: skip
    """Ask a session's questions; the findings are in the table's order, whatever that of the plan.

    Args:
        session: what is judged. plan: of the questions. progress: told before each question.
        ask_property: asks the candidate a property of the plan.

    Raises:
        DomainError: see `derive_domain`.
    """
    start = time.monotonic()
    session.records.rows.wanted = next(iter(plan.words_of("rows")), "")
    session.records.rows.shared = plan.words_of("shared")
    if session.spec.domain:
        _ = session.domain  # A declaration that clashes raises.
    findings, error, stopped = _ask(session, plan, start, progress, ask_property)
    if session.spec.itself:
        weaknesses = _unanswered(findings, plan) + stopped
        of = Assignment(session.candidate.name, session.spec.name, "equal bits", session.draws, session.arguments.dtype)
        verdict = Ruling.ERROR if error else ruling(findings, weaknesses)
        return Judgement(of, verdict, tuple(findings), tuple(weaknesses), error=error, execution=_execution(session))
    misread = "" if error else _misread(session)
    if misread:
        error, findings = misread, []  # Findings by the bounds of a wrong reading are not valid.
    findings.sort(key=lambda finding: list(TABLE).index(finding.question))
    weaknesses = [] if error else session.records.weaknesses(findings) + _unanswered(findings, plan) + stopped
    if findings and not error:
        weaknesses += find_weaknesses(session, findings)
        findings = [with_options(session, finding) for finding in findings]
    weaknesses += [
        f"{each.question} was not judged: {each.text}"
        for each in findings
        if each.wrong is not None and each.wrong.code in _OF_THE_MACHINE
    ]
    name, words = ("", "") if error else arithmetic(session.records.evidence)
    if any(each.is_wrong for each in findings):
        findings = _with_advice(session, findings, name)
    verdict = Ruling.ERROR if error else ruling(findings, weaknesses)
    names = session.candidate.name, session.spec.name, str(session.terms)
    of = Assignment(*names, session.draws, session.arguments.dtype, device=session.arguments.device)
    if any(finding.question in OF_OTHER_CALLS for finding in findings):
        known = session.domain.describe(session.arguments)
        of = replace(of, others=session.domain.summarize(session.arguments), domain=known)
    else:
        of = replace(of, others="; ".join(session.declared.sentences))
    return Judgement(
        of, verdict, tuple(findings), tuple(weaknesses), words, name, error, session.records.coverage(),
        time.monotonic() - start, execution=_execution(session),
        operations=session.history.operations,
    )  # fmt: skip


def _with_advice(session: Session, findings: Sequence[Finding], name: str) -> list[Finding]:
    """The findings, in the table's order, with more lines on the first card of wrong values where evidence has them."""
    wrong = [
        each
        for each in session.records.evidence
        if each.call and any(standing.wrong and standing.wrong.outlier for standing in each.standings)
    ]
    first = {each.question: each for each in reversed(wrong)}
    for i, finding in enumerate(findings):
        if finding.question not in first or finding.wrong is None or finding.wrong.outlier is None:
            continue
        earlier = any(each.is_wrong for each in findings[:i])
        of = session.spec, session.records.evidence, first[finding.question], session.terms
        reason, contract = find_advice(*of, None if earlier else name)
        lines = [] if reason is None else [f"likely     {reason}"]
        lines += [f"accepted   with --contract {contract}"] if contract else []
        return [*findings[:i], replace(finding, wrong=finding.wrong.with_lines(*lines)), *findings[i + 1 :]]
    return list(findings)


def _execution(session: Session) -> tuple[str, ...]:
    """How kernels were executed, and where, in lines."""
    executed = session.history.executed
    ranks = (session.candidate.tale,) if isinstance(session.candidate, RankGroup) else ()
    return (*ranks, *place_of_work(), *(executed.tale if executed else ()))


def _ask(
    session: Session, plan: QuestionPlan, start: float, progress: Progress | None, ask_property: AskProperty | None
) -> tuple[list[Finding], str, list[str]]:
    """The findings in the order of asking; why there is no verdict, or ""; and what was not asked, a sentence or none.

    Args:
        session, plan, progress, ask_property: as for `judged`. start: when the questions began, on the monotonic clock.
    """
    findings = list[Finding]()
    order = plan.order(session.draws)
    for number, code in enumerate(order):
        wrong_ones = [each.question for each in findings if each.is_wrong]
        late = time.monotonic() - start > plan.total
        if late or (plan.stop and wrong_ones):
            why = "out of time" if late else f"{wrong_ones[0]} is wrong"
            return findings, "", [f"not asked: {why}: {', '.join(order[number:])}"]
        if progress is not None:
            progress(code, number, len(order))
        try:
            if code not in KINDS and ask_property is not None:
                _ = session.first  # The process is compared around this call, before the engine makes any.
                if code not in map(property_of, wrong_ones):
                    findings.append(of_property(ask_property(code)))
                continue
            finding = ASKING[code](session) if wrong_ones else ask_within_signs(session, ASKING[code])
            # A question that few specs have is no question of this one, unless it was asked for by name.
            beside = finding.question in _OF_FEW and finding.outcome is Outcome.UNSUPPORTED
            findings += [] if beside and not plan.names(finding.question) else [finding]
            if code == "FWD:given" and _repeats_itself(finding):
                rest = sorted({*order[number + 1 :]} - {"PURE:left"}, key=[*TABLE].index)
                findings += [ASKING["PURE:left"](session)] if len(rest) < len(order) - number - 1 else []
                return findings, "", [f"not asked: FWD:given says it of them all: {', '.join(rest)}"] if rest else []
        except SpecError as err:
            # Hostile inputs may be outside of what the spec takes; that it cannot be read at the given ones is said.
            if code == "FWD:given":
                return findings, str(err), []
            findings.append(not_asked(code, str(err)))
        except ReadingError as err:
            return findings, f"{code}: {err}", []
        except LateError:
            return findings, "", [f"not asked: out of time: {', '.join(order[number:])}"]
        except Violation as violation:  # of a kernel that was executed
            if violation.code in _OF_THE_MACHINE and code == "FWD:given":
                return findings, violation.title, []
            outcome = Outcome.UNSUPPORTED if violation.code in _OF_THE_MACHINE else Outcome.FAIL
            lines = getattr(violation, "__notes__", ())
            findings.append(Finding(code, outcome, violation.with_lines(*lines)))  # without the frames of the call
        except GoneError as err:
            fault = Code.TIMED_OUT if err.timed_out else Code.CRASHED
            findings.append(wrong(code, fault, f"the candidate's process {err}", *getattr(err, "__notes__", ())))
            # A process that has ended has no outputs any more, and is called no more.
            session.history.staying, session.history.plain = [], None
            findings += [] if code == "PURE:left" else [ASKING["PURE:left"](session)]
            break
    return findings, "", []


def _repeats_itself(finding: Finding) -> bool:
    """Whether every question would say the same: the candidate raises, or gives another form, shape or dtype."""
    return finding.is_wrong and finding.wrong is not None and finding.wrong.code in (Code.ATTRIBUTE, Code.RAISED)


def _unanswered(findings: Sequence[Finding], plan: QuestionPlan) -> list[str]:
    """Properties that were asked for by name and not judged, and those of which the judge failed: a sentence each."""
    verdicts = [finding.verdict for finding in findings if finding.verdict is not None]
    rare = (FAR, *INVARIANT.values())
    unsupported = [each for each in findings if each.outcome is Outcome.UNSUPPORTED and each.question in rare]
    far = [f"{each.question} was not judged: {each.text}" for each in unsupported if plan.names(each.question)]
    return far + [
        f"{verdict.cell.property} was not judged: {verdict.reason}"
        for verdict in verdicts
        if verdict.outcome is Outcome.ERROR
        or (verdict.cell.property in plan.questions
            and verdict.outcome in (Outcome.REFUSED, Outcome.UNSUPPORTED, Outcome.NOT_RUN))
    ]  # fmt: skip


def _misread(session: Session) -> str:
    """Why the spec was not read as what it is; empty where it was, or where the questions have told that already."""
    read = functools.partial(session.read, session.given_rows, session.spec.state)
    try:
        return disagreement(session.spec, session.given_rows, session.native, read, session.terms)
    except (SpecError, ReadingError):
        return ""
