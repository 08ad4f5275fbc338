"""The gradients of one call: what a candidate is asked for, and how the answer is compared.

A candidate must give the gradients of parameters that the spec trains, and of inputs that require grad. If no input
requires grad, the gradients of all floating inputs are requested. An input without a gradient may then be data (the
cosines of a rotation, a mask, a target), or its gradient may be lost, so such an input weakens the verdict.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import torch

from ....oracles.bound.terms import Terms
from ....oracles.judge.holding import OperandFacts, Reading, are_right
from ....oracles.op.bits import same_bits, same_results
from ....oracles.op.declaration import dtype_name, is_float, to_array
from ....oracles.specs.storage import is_computed_in
from ....oracles.verdicts.verdict import Code
from ..agreement import SpecBackward, backward, fault, operands_of
from ..arguments import CallArguments, State, Tensor, floating
from ..beside import hold_beside
from ..comparing import hold_as_torch, hold_in_turn
from ..decays import leave_decays_out, read_gradients
from ..domain.facts import OF_TWO
from ..evidence import Evidence
from ..finding import FailingCall, Finding, not_asked, passing, process_changed, raised, summed, wrong
from ..host.calls import Answer, BackwardCall
from ..inputs import stand_in
from ..layouts import MemoryLayout, place_each, strides_of
from ..open_gradients import choices_of, leave_out, settle_draws
from ..results import SpecRun
from ..row_sample import Part
from ..session import Session
from ..specification import Specification
from .gradient_request import GradientPlace, GradientRequest

#: Texts in exceptions of a candidate without gradients: its own, that of an operator without one, and that of torch.
_NOT_OFFERED = (
    "NotImplementedError", "no autograd formula was registered", "derivative for aten::",
    "functions with out=... arguments don't support automatic differentiation",
)  # fmt: skip
#: The reason if the spec's backward is not the derivative of its text, for example a straight-through estimator.
_OTHER_BACKWARD = "the spec's own backward is not the derivative of its text, so gradients were not held"

#: The line of a card about the gradients of a second backward.
_SECOND = "call       second backward through the same graph"
#: What comes between the two at the given inputs.
_APART = ", after a call at other values"


def gradients_at(session: Session, at: CallArguments, stream: str, place: GradientPlace | None = None) -> Finding:
    """VJP:grad at some arguments.

    Args:
        at: the arguments. stream: the name of the generator of the cotangents.
        place: other state, memory or manner than usual; None for the usual ones.
    """
    spec, rng, elsewhere = session.spec, session.generator(stream), place or GradientPlace()
    state = spec.state if elsewhere.state is None else elsewhere.state
    cut = session.cut_for("VJP:grad", at)
    part, arguments = None if cut.rows is None else session.part, cut.spec_arguments
    # The request needs the spec's outputs at any values; those at the arguments come after the candidate's answer.
    others = stand_in(arguments)
    run = spec.run(others, state)
    outputs = floating(run.outputs)
    unjudged = _why_unjudged(spec, run, arguments, state)
    if unjudged:
        return not_asked("VJP:grad", unjudged)
    marked = any(t.requires_grad for t in floating(arguments.tensors))
    operands = _operands_of(session, arguments, marked, elsewhere.only)
    if not outputs or not operands:
        return not_asked("VJP:grad", "no output, or no operand, is floating")
    cotangents = [cotangent_of(y, rng, elsewhere.cotangents) for y in outputs]
    if spec.numpy:  # The outputs of a NumPy spec have no dtypes of torch, so the candidate's dtypes count.
        dtypes = [y.dtype for y in session.first.outputs]
        if len(dtypes) != len(cotangents):
            return not_asked("VJP:grad", "the candidate's outputs are not as many as the spec's")
        cotangents = [g.to(dtype) for g, dtype in zip(cotangents, dtypes, strict=True)]
        own = SpecBackward({operand: torch.ones(()) for operand in operands})
    else:
        own = backward(spec, others, state, operands, place_each(cotangents, _strides_of(cotangents, elsewhere)))
    owed = [operand for operand in operands if operand not in own.refusals]
    request = GradientRequest(arguments, state, cotangents, owed, own, marked)
    if not owed:
        return not_asked("VJP:grad", f"torch gives no gradients of the spec: {next(iter(own.refusals.values()))}")
    writes = msgspec.structs.replace(session.writes_at(arguments, state), after=part is None)
    pulled = _backward_call(request, part, cut.rows or [], elsewhere)
    # A later call writes again what a call writes by right, and a backward may depend on it.
    leaves = bool(run.writes or session.declared.writes)
    pulled = msgspec.structs.replace(pulled, apart=place is None and part is None and not leaves)
    answer = session.call(
        cut.call_arguments, state, elsewhere.manner, layout=elsewhere.operands, writes=writes, fetched=part is not None,
        watched=place is None, backward=pulled,
    )  # fmt: skip
    without = _finding_without_gradients(session, answer, elsewhere.is_unusual, marked)
    if without is not None:
        return without
    run = spec.run(arguments, state)
    if not spec.numpy:
        request = replace(request, own=backward(spec, arguments, state, operands, cotangents))
    spoiled = _check_recorded_call(session, request, run, answer, cut.call_arguments) if part is None else None
    if spoiled is not None:
        return spoiled
    finding = _compare_answer(session, replace(request, outputs=answer.outputs if part is None else ()), answer, place)
    if part is None:
        finding = _with_call(session, request, finding, elsewhere)
    left_out = "; ".join(filter(None, [finding.left_out, request.describe_refusals()]))
    return replace(finding, sampled=cut.share, left_out=left_out)


def _finding_without_gradients(session: Session, answer: Answer, is_unusual: bool, marked: bool) -> Finding | None:
    """What an answer without gradients says, which may be refused at an unusual place; None for one that has them."""
    if answer.raised:
        return raised("VJP:grad", answer.raised, is_unusual or any(words in answer.raised for words in _NOT_OFFERED))
    if answer.changed:
        return process_changed("VJP:grad", answer.changed)
    if answer.pulled.gradients:
        return None
    if marked:
        session.records.missing_gradients.append("inputs require gradients, and no output of the candidate does")
    why = "the candidate's outputs require no gradient"
    return replace(not_asked("VJP:grad", why), left_out=why)


def _why_unjudged(spec: Specification, run: SpecRun, arguments: CallArguments, state: State) -> str:
    """Why no gradient of a spec is judged, whatever the candidate gives; empty where gradients are."""
    tensors = (*floating(run.outputs), *floating(arguments.tensors))
    few = [t.dtype for t in tensors if not is_computed_in(t.dtype)]
    if few:
        return f"a gradient would have to be stored in {dtype_name(few[0])}, as its tensor is"
    underivable = spec.why_without_derivatives(arguments, state)
    if underivable:
        return underivable
    # Autograd would have to pass through a write to an input or a parameter; a buffer needs no gradient.
    places = zip(run.writes, run.names[len(run.outputs) :], strict=True)
    moving = [name for place, name in places if isinstance(place, int) or place in spec.parameters]
    return f"the spec writes {moving[0].removeprefix('written ')}" if moving else ""


def _with_call(session: Session, request: GradientRequest, finding: Finding, at: GradientPlace) -> Finding:
    """The finding with the call and the backward that show it, unless a second backward is wrong."""
    if finding.wrong is not None and any(line.startswith(_SECOND) for line in finding.wrong.lines):
        return finding
    pulled = _backward_call(request, None, [], at)
    call = FailingCall(request.arguments, request.state, at.operands, at.manner, backward=pulled)
    return session.attach_call(call, finding, [f"gradient of {request.label(operand)}" for operand in request.operands])


def _strides_of(cotangents: Sequence[Tensor], at: GradientPlace) -> list[list[int]]:
    """Of each cotangent at a place; none where all are contiguous."""
    return [] if at.cotangents is None else [strides_of(at.cotangents, g.shape) for g in cotangents]


def _operands_of(session: Session, arguments: CallArguments, marked: bool, only: int | str | None) -> list[int | str]:
    """The operands whose gradients are requested; `marked`: whether some inputs require grad."""
    # Of what does not vary alone there is no derivative in each element, unless somebody asks for one.
    moving = [place not in session.domain.dependent for place, t in enumerate(arguments.tensors) if is_float(t)]
    pairs = zip(floating(arguments.tensors), moving, strict=True)
    operands: list[int | str] = [i for i, (t, alone) in enumerate(pairs) if (t.requires_grad if marked else alone)]
    operands += [name for name in session.shared if name in session.spec.parameters]
    return [each for each in operands if only in (None, each)]


def _compare_answer(session: Session, request: GradientRequest, answer: Answer, place: GradientPlace | None) -> Finding:
    """Compare the gradients of an answer with the spec's; at the usual place also those of a second backward."""
    if place is not None and place.only is not None:
        return _compare_alone(session, request, answer.pulled.gradients[0])
    if place is not None:
        return _compare_gradients(session, request, answer.pulled.gradients, evident=False)
    session.history.gradients = dict(zip(request.operands, answer.pulled.gradients, strict=True))
    finding = _compare_gradients(session, request, answer.pulled.gradients, evident=True)
    if finding.is_wrong:
        return finding
    return _second_backward(session, request, answer) or finding


def cotangent_of(output: Tensor, rng: Any, layout: MemoryLayout | None = None) -> Tensor:
    """Normal numbers like an output; equal along axis 0 if their layout will be EXPANDED."""
    cotangent = torch.from_numpy(rng.standard_normal(tuple(output.shape))).to(output.device, output.dtype)
    equal = layout is MemoryLayout.EXPANDED and cotangent.numel() and cotangent.ndim
    return cotangent[:1].expand(cotangent.shape).clone() if equal else cotangent


def _compare_alone(session: Session, request: GradientRequest, gradient: Tensor | None) -> Finding:
    """Compare the gradient of the only operand that requires grad with that of the call in which all operands do."""
    (operand,) = request.operands
    known = session.history.gradients[operand]
    if gradient is None and known is not None and known.count_nonzero():
        return wrong("VJP:grad", Code.ATTRIBUTE, f"no gradient of {request.label(operand)} where it alone requires one")
    if gradient is None or known is None or same_results(gradient, known):
        return passing("VJP:grad", 0)
    return _compare_gradients(session, request, [gradient], evident=False)


def _second_backward(session: Session, request: GradientRequest, answer: Answer) -> Finding | None:
    """A finding about a second backward through the same graph, or about what came before it; None if it is right."""
    if answer.pulled.changed:
        label = request.label(request.operands[answer.pulled.changed[0]])
        title = f"the gradient of {label} was changed by the backward of a later call"
        return wrong("VJP:grad", Code.ALIASED, title)
    if session.declared.writes:  # It may have written what a second one reads.
        return None
    if answer.pulled.spent:
        return wrong("VJP:grad", Code.RAISED, f"a second backward through the same graph raised {answer.pulled.spent}")
    if not answer.pulled.again:
        return None
    finding = _compare_gradients(session, request, answer.pulled.again, evident=False)
    if not finding.is_wrong or finding.wrong is None:
        return None
    return replace(finding, wrong=finding.wrong.with_lines(_SECOND + _APART))


def _check_recorded_call(
    session: Session, request: GradientRequest, run: SpecRun, answer: Answer, at: CallArguments
) -> Finding | None:
    """A finding about a call that records gradients, if an input was written or an output is wrong; else None."""
    for i, (before, after) in enumerate(zip(at.tensors, answer.writes.after, strict=True)):
        if i not in session.declared.writes and not same_bits(before, after):
            return wrong("VJP:grad", Code.MUTATED, f"{at.label(i)} was written by the call or by its backward")
    if session.history.strayed or len(answer.outputs) != len(run.outputs) or request.arguments is not session.arguments:
        return None  # other questions report that
    # The code is CALLS:again, because with that code no evidence is recorded: the inputs belong to another question.
    finding = session.hold("CALLS:again", request.arguments, request.state, run, answer)
    if finding.wrong is None:
        return None
    return replace(finding, question="VJP:grad", wrong=finding.wrong.with_lines("call       that records gradients"))


def _backward_call(
    request: GradientRequest, part: Part | None, rows: list[int], at: GradientPlace
) -> BackwardCall:  # fmt: skip
    """The backward that the candidate must make.

    In a large problem the cotangents of all other rows are zero, so all gradients are those of the spec at `rows`.
    """
    padded = request.cotangents if part is None else [_among_zeros(g, part, rows) for g in request.cotangents]
    having = [] if part is None else [part.having[i] for i in request.inputs]
    return BackwardCall(request.inputs, request.names, padded, _strides_of(padded, at), rows, having, inner=at.inner)


def _among_zeros(cotangent: Tensor, part: Part, rows: list[int]) -> Tensor:
    whole = cotangent.new_zeros((part.count, *cotangent.shape[1:]))
    whole[rows] = cotangent
    return whole


def _compare_gradients(
    session: Session, request: GradientRequest, got: list[Tensor | None], *, evident: bool
) -> Finding:
    """Compare the gradients of a call with the spec's; `evident`: whether they are evidence for LIKELY."""
    spec, arguments, state = session.spec, request.arguments, request.state
    inputs = floating(arguments.tensors)
    names = [name for name, value in state.items() if value.dtype.is_floating_point]
    titles, computed, positions, operands = [], list[Tensor](), [], list[int | str]()
    for operand, gradient in zip(request.operands, got, strict=True):
        # A gradient that the candidate does not give at the given inputs is not required elsewhere.
        elsewhere = not evident and session.history.gradients.get(operand) is None
        if gradient is None and (elsewhere or not _is_missed(session, request, operand)):
            continue
        # A gradient that was not computed counts as zeros.
        leaf = state[operand] if isinstance(operand, str) else inputs[operand]
        titles.append(f"gradient of {request.label(operand)}{' (none, so zeros)' if gradient is None else ''}")
        operands.append(operand)
        computed.append(torch.zeros_like(leaf) if gradient is None else gradient)
        positions.append(names.index(operand) if isinstance(operand, str) else len(names) + operand)
    if not positions:
        return not_asked("VJP:grad", "no gradient is missed, and the candidate gives none")

    # Autograd adds up what the places of one tensor contribute in its dtype, whatever a kernel computes in.
    terms = replace(session.terms, intermediates=True) if arguments.has_repeats else session.terms
    facts = operands_of(spec, arguments, state)
    choices = _choices_shown(session, request, computed, positions, evident)
    if choices is None:
        return not_asked("VJP:grad", "the outputs do not show what was drawn, on which the gradients hang")
    picks, several = choices
    blank = _where_no_number_is_right(spec, arguments, state, facts, computed)
    several = [*map(operator.or_, several, blank)] if several and blank else several or blank

    def read(of: Terms) -> Sequence[Reading]:
        # The gradients in other memory layouts have the same exact values, so these are read once.
        known = session.readings if arguments is session.arguments and state is spec.state else {}
        key = (of, tuple(positions), *(table.tobytes() for table in picks.values()))
        key += tuple(to_array(g).tobytes() for g in request.cotangents)
        if key not in known:
            known[key] = read_gradients(spec, arguments, state, of, positions, request.cotangents, picks)
        return leave_out(known[key], several) if several else known[key]

    outcomes = hold_in_turn(titles, computed, read, terms, None, facts, order=1)
    # A run of a random spec by torch draws other numbers, so it cannot be compared.
    alike = not spec.numpy and not spec.is_random(arguments, state)
    if alike and any(each.wrong is not None for each in outcomes):
        own = request.evaluations(spec, operands)
        if fault(own, read(terms)) is not None:
            session.records.missing_gradients.append(_OTHER_BACKWARD)
            return not_asked("VJP:grad", _OTHER_BACKWARD)
        outcomes = hold_as_torch(outcomes, titles, computed, read, terms, own.own, facts, 1)
    how: dict[str, Any] = {"reader": read, "terms": terms, "native": None, "facts": facts, "order": 1}
    hold_beside(session.candidate, "VJP:grad", computed, outcomes, functools.partial(hold_in_turn, titles, **how))
    if evident:
        standings = leave_decays_out(outcomes, positions, spec, arguments, state)
        question = spec.question_of_gradients(arguments, state, terms, positions, request.cotangents)
        evidence = Evidence(
            "VJP:grad", tuple(titles), tuple(computed), standings, (None,) * len(titles), read, question.perturb,
            tuple(range(len(titles))), tuple(map(to_array, request.cotangents)),
        )  # fmt: skip
        session.records.evidence.append(evidence)
    return summed("VJP:grad", outcomes, arguments)


def _where_no_number_is_right(
    spec: Specification, arguments: CallArguments, state: State, facts: OperandFacts, computed: Sequence[Tensor]
) -> list[Any]:
    """Of each gradient the elements that are NaN, where the spec itself gives a NaN at numbers; none elsewhere.

    A softmax over nothing is NaN, and where that is cut out of its gradient, as by a mask, is nobody's contract.
    """
    blank = [np.isnan(to_array(gradient)) for gradient in computed]
    if facts is not OperandFacts.FINITE or not any(map(np.any, blank)):
        return []
    return blank if any(bool(y.isnan().any()) for y in floating(spec.outputs(arguments, state))) else []


def _choices_shown(
    session: Session, request: GradientRequest, computed: Sequence[Tensor], positions: Sequence[int], evident: bool
) -> tuple[Mapping[str, Any], list[Any]] | None:
    """The choices that outputs and gradients of a call show, and of each gradient the elements that are not judged.

    None if they do not show what was drawn. The arguments are those of `_compare_gradients`.
    """
    spec, arguments, state = session.spec, request.arguments, request.state
    facts = operands_of(spec, arguments, state)
    choices = choices_of(request.outputs, session.read(arguments, state, session.terms), facts)
    if choices is None or not choices[1]:
        return None if choices is None else (choices[0], [])
    read = functools.partial(spec.gradients, arguments, state, session.terms, positions, request.cotangents)
    accepts = functools.partial(are_right, facts=facts, order=1, native=None)
    settled = settle_draws(read, computed, accepts, *choices)
    if settled is None:
        return None
    if evident and len(request.operands) == len(computed):  # How often which gradient comes is a matter of LIKELY.
        widths = dict(zip(request.operands, settled[2], strict=True))
        session.records.open_gradients = _backward_call(request, None, [], GradientPlace()), widths
    return settled[:2]


def _is_missed(session: Session, request: GradientRequest, operand: int | str) -> bool:
    """Whether it is wrong that the candidate gives no gradient of an operand; if unknown, a weakness is recorded."""
    own = request.own.gradients[operand]
    if own is None or not bool(own.count_nonzero()):
        return False
    floats = [i for i, t in enumerate(request.arguments.tensors) if t.dtype.is_floating_point]
    is_data = isinstance(operand, int) and OF_TWO.keys() & session.domain.facts.get(floats[operand], ())
    if not request.owes(operand) and not is_data:
        session.records.missing_gradients.append(
            f"the candidate gives no gradient of {request.label(operand)}; give the inputs requires_grad=True that need"
            " one, and it is missed or not"
        )
    return request.owes(operand)
