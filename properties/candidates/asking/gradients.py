"""Gradients of inputs and parameters, where the candidate offers any.

A candidate owes the gradients of what requires them: parameters that the spec trains, and the inputs that require a
gradient. Where no input says so all floating ones are asked, and one that the candidate gives no gradient of may be
data (the cosines of a rotation, a mask, a target) or a gradient that is lost: that is a weakness of the verdict.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import torch

from ....oracles.bound.terms import Terms
from ....oracles.judge.holding import OperandFacts, Reading
from ....oracles.op.bits import same_bits, same_results
from ....oracles.op.declaration import dtype_name, to_array
from ....oracles.specs.storage import is_computed_in
from ....oracles.verdicts.verdict import Code, Outcome
from ..agreement import SpecBackward, backward, fault, operands_of
from ..arguments import CallArguments, Tensor
from ..comparing import decide_by, hold_in_turn, tell_of_torch
from ..evidence import Evidence
from ..finding import FailingBackward, FailingCall, Finding, not_asked, passing, process_changed, raised, summed, wrong
from ..host.calls import Answer, BackwardCall, Manner, floating
from ..inputs import altered, of_all_magnitudes, stand_in
from ..layouts import MemoryLayout, strides_of
from ..layouts import place as place_in_memory
from ..open_readings import OpenReading
from ..results import SpecRun
from ..row_sample import Part
from ..session import Asking, Session
from ..specification import SpecError
from .gradient_request import GradientPlace, GradientRequest

#: What a candidate without gradients says: by its own exception, or by that of an operator registered without any, or
#: of an operation of torch that has none.
_NOT_OFFERED = ("NotImplementedError", "no autograd formula was registered", "derivative for aten::")
#: Why gradients are not held where the spec has another backward than its text: a straight-through estimator, say.
_OTHER_BACKWARD = "the spec's own backward is not the derivative of its text, so gradients were not held"

#: The line of a card that says which gradients it is about.
_SECOND = "call       second backward through the same graph"
#: Layouts of operands and of cotangents in which gradients are asked: one of both is contiguous, so that it is known
#: which of them a candidate refuses.
_LAYOUTS = (
    (None, MemoryLayout.EXPANDED),
    (None, MemoryLayout.TRANSPOSED),
    (MemoryLayout.ROWS, None),
    (MemoryLayout.TRANSPOSED, None),
)
#: How many operands are asked alone, in a call in which no other requires a gradient.
_ALONE = 4


def gradients(session: Session) -> Finding:
    """GRAD: reverse mode, with cotangents that are drawn; the gradients of the spec come from its own text.

    Where gradients are right at the given inputs, they are asked at others, with other parameters, and in other memory.
    """
    finding = gradients_at(session, session.arguments, "GRAD")
    if finding.outcome not in (Outcome.VERIFIED, Outcome.WEAK) or session.part is not None:
        return finding
    state = altered(session.spec.state, session.generator("PARAMS")) if session.controlled else session.spec.state
    others = [(_unlike(session), "GRAD elsewhere", GradientPlace(state))]
    others += [(session.arguments, "GRAD", GradientPlace(None, *layouts)) for layouts in _LAYOUTS]
    alone = list(session.history.gradients)[:_ALONE]
    others += [(session.arguments, "GRAD", GradientPlace(only=each, manner=Manner.PARAMETERS)) for each in alone]
    refusals = []
    for arguments, draws, place in others:
        try:
            other = gradients_at(session, arguments, draws, place)
        except SpecError:
            continue  # Inputs that were drawn may be outside of what the spec takes.
        if other.is_wrong and other.wrong is not None:
            return replace(other, wrong=other.wrong.with_lines(place.text))
        refusals += [f"raised with {place.text.split(maxsplit=1)[1]}"] if other.outcome is Outcome.REFUSED else []
        finding = replace(finding, judged=finding.judged + other.judged, elements=finding.elements + other.elements)
    return replace(finding, left_out="; ".join(filter(None, [finding.left_out, *refusals])))


def _unlike(session: Session) -> CallArguments:
    """Normal numbers and smaller ones as arguments, which require gradients where those given do.

    What is done to small inputs alone may be lost in the values, and shows in their gradients. Other ranges would ask
    right formulas for what they do not have: around -100 the gradient of x / (1 + exp(-x)) is NaN, and around 1 that of
    a log-sum-exp in pieces has other digits.
    """
    tensors = session.arguments.tensors
    changed = session.filled(session.arguments, of_all_magnitudes, session.generator("GRAD elsewhere"))
    pairs = zip(changed.tensors, tensors, strict=True)
    return changed.with_tensors([t.requires_grad_() if was.requires_grad else t for t, was in pairs])


def gradients_at(session: Session, at: CallArguments, stream: str, place: GradientPlace | None = None) -> Finding:
    """GRAD at some arguments, with cotangents of the generator of a name; `place`: where else than usual, if at all."""
    spec, rng, elsewhere = session.spec, session.generator(stream), place or GradientPlace()
    state = spec.state if elsewhere.state is None else elsewhere.state
    cut = session.cut_for("GRAD", at)
    part, arguments = None if cut.rows is None else session.part, cut.spec_arguments
    # What is asked hangs on what the spec gives; its values are computed when the candidate has answered.
    others = stand_in(arguments)
    run = spec.run(others, state)
    outputs = floating(run.outputs)
    few = [t.dtype for t in (*outputs, *floating(arguments.tensors)) if not is_computed_in(t.dtype)]
    if few:
        return not_asked("GRAD", f"a gradient would have to be stored in {dtype_name(few[0])}, as its tensor is")
    if spec.has_residuals(arguments, state):
        return not_asked("GRAD", "the spec gives what is judged by its residual, of which no gradient is judged")
    # A buffer that is written needs no gradient; what does must not be written where autograd is to go through it.
    places = zip(run.writes, run.names[len(run.outputs) :], strict=True)
    moving = [name for place, name in places if isinstance(place, int) or place in spec.parameters]
    if moving:
        return not_asked("GRAD", f"the spec writes {moving[0].removeprefix('written ')}")
    marked = any(t.requires_grad for t in floating(arguments.tensors))
    operands = _operands_of(session, arguments, marked, elsewhere.only)
    if not outputs or not operands:
        return not_asked("GRAD", "no output, or no operand, is floating")
    cotangents = [_cotangent_of(y, rng, elsewhere.cotangents) for y in outputs]
    if spec.numpy:  # The dtypes of its outputs are the candidate's.
        dtypes = [y.dtype for y in session.first.outputs]
        if len(dtypes) != len(cotangents):
            return not_asked("GRAD", "the candidate's outputs are not as many as the spec's")
        cotangents = [g.to(dtype) for g, dtype in zip(cotangents, dtypes, strict=True)]
        own = SpecBackward({operand: torch.ones(()) for operand in operands})
    else:
        own = backward(spec, others, state, operands, cotangents)
    owed = [operand for operand in operands if operand not in own.refusals]
    request = GradientRequest(arguments, state, cotangents, owed, own, marked)
    if not owed:
        return not_asked("GRAD", f"torch gives no gradients of the spec: {next(iter(own.refusals.values()))}")
    writes = msgspec.structs.replace(session.writes_at(arguments, state), after=part is None)
    answer = session.call(
        cut.call_arguments, state, elsewhere.manner, layout=elsewhere.operands, writes=writes, fetched=part is not None,
        watched=place is None, backward=_backward_call(request, part, cut.rows or [], elsewhere.cotangents),
    )  # fmt: skip
    if answer.raised:
        refusable = elsewhere.operands is not None or elsewhere.manner is Manner.COMPILED
        return raised("GRAD", answer.raised, refusable or any(words in answer.raised for words in _NOT_OFFERED))
    if answer.changed:
        return process_changed("GRAD", answer.changed)
    if not answer.pulled.gradients:
        if marked:
            session.records.missing_gradients.append("inputs require gradients, and no output of the candidate does")
        return not_asked("GRAD", "the candidate's outputs require no gradient")
    run = spec.run(arguments, state)
    if not spec.numpy:
        request = replace(request, own=backward(spec, arguments, state, operands, cotangents))
    spoiled = _spoiled(session, request, run, answer, cut.call_arguments) if part is None else None
    if spoiled is not None:
        return spoiled
    finding = _held_answer(session, replace(request, outputs=answer.outputs if part is None else ()), answer, place)
    if part is None:
        finding = _with_call(session, request, finding, elsewhere)
    return replace(finding, sampled=cut.share, left_out=request.describe_refusals())


def _with_call(session: Session, request: GradientRequest, finding: Finding, at: GradientPlace) -> Finding:
    """A finding with the call and the backward that show it; a second backward is shown by none."""
    if finding.wrong is not None and _SECOND in finding.wrong.lines:
        return finding
    cotangents = [
        g if at.cotangents is None else place_in_memory(g, strides_of(at.cotangents, g.shape))
        for g in request.cotangents
    ]
    call = FailingCall(
        request.arguments, request.state, at.operands, at.manner, backward=FailingBackward(request.operands, cotangents)
    )
    return session.shown_by(call, finding, [f"gradient of {request.label(operand)}" for operand in request.operands])


def _operands_of(session: Session, arguments: CallArguments, marked: bool, only: int | str | None) -> list[int | str]:
    """The operands whose gradients are asked; `marked`: whether some inputs say that they require them."""
    operands: list[int | str] = [i for i, t in enumerate(floating(arguments.tensors)) if t.requires_grad or not marked]
    operands += [name for name in session.shared if name in session.spec.parameters]
    return [each for each in operands if only in (None, each)]


def _held_answer(session: Session, request: GradientRequest, answer: Answer, place: GradientPlace | None) -> Finding:
    """Hold the gradients of an answer; those at the given place by a second backward, too."""
    if place is not None and place.only is not None:
        return _held_alone(session, request, answer.pulled.gradients[0])
    if place is not None:
        return _held_gradients(session, request, answer.pulled.gradients, evident=False)
    session.history.gradients = dict(zip(request.operands, answer.pulled.gradients, strict=True))
    finding = _held_gradients(session, request, answer.pulled.gradients, evident=True)
    if finding.is_wrong:
        return finding
    return _second_backward(session, request, answer) or finding


def _cotangent_of(output: Tensor, rng: Any, layout: MemoryLayout | None) -> Tensor:
    """Normal numbers like an output; the same along axis 0 where they will be expanded."""
    cotangent = torch.from_numpy(rng.standard_normal(tuple(output.shape))).to(output.device, output.dtype)
    equal = layout is MemoryLayout.EXPANDED and cotangent.numel() and cotangent.ndim
    return cotangent[:1].expand(cotangent.shape).clone() if equal else cotangent


def _held_alone(session: Session, request: GradientRequest, gradient: Tensor | None) -> Finding:
    """Hold the gradient of an operand that alone requires one; that of a call in which all do is known."""
    (operand,) = request.operands
    known = session.history.gradients[operand]
    if gradient is None and known is not None and known.count_nonzero():
        return wrong("GRAD", Code.ATTRIBUTE, f"no gradient of {request.label(operand)} where it alone requires one")
    if gradient is None or known is None or same_results(gradient, known):
        return passing("GRAD", 0)
    return _held_gradients(session, request, [gradient], evident=False)


def _second_backward(session: Session, request: GradientRequest, answer: Answer) -> Finding | None:
    """What is wrong with a second backward through the same graph; None where nothing is."""
    if answer.pulled.spent:
        return wrong("GRAD", Code.RAISED, f"a second backward through the same graph raised {answer.pulled.spent}")
    if not answer.pulled.again:
        return None
    finding = _held_gradients(session, request, answer.pulled.again, evident=False)
    if not finding.is_wrong or finding.wrong is None:
        return None
    return replace(finding, wrong=finding.wrong.with_lines(_SECOND))


def _spoiled(
    session: Session, request: GradientRequest, run: SpecRun, answer: Answer, called: CallArguments
) -> Finding | None:
    """What is wrong with a call that records gradients besides these: an input that backward wrote, or an output."""
    for i, (before, after) in enumerate(zip(called.tensors, answer.writes.after, strict=True)):
        if not same_bits(before, after):
            return wrong("GRAD", Code.MUTATED, f"{called.label(i)} was written by the call or by its backward")
    if session.history.strayed or len(answer.outputs) != len(run.outputs) or request.arguments is not session.arguments:
        return None  # other questions tell of that
    # As AGAIN, whose outputs say nothing of the spec where they are equal: the inputs are those of another question.
    finding = session.hold("AGAIN", request.arguments, request.state, run, answer)
    if finding.wrong is None:
        return None
    return replace(finding, question="GRAD", wrong=finding.wrong.with_lines("call       that records gradients"))


def _backward_call(
    request: GradientRequest, part: Part | None, rows: list[int], layout: MemoryLayout | None
) -> BackwardCall:  # fmt: skip
    """What the candidate is asked; `layout`: of the cotangents, where it is another than contiguous.

    Of a large problem the other rows have no cotangent; so all gradients are those of the spec at these rows alone.
    """
    padded = request.cotangents if part is None else [_among_zeros(g, part, rows) for g in request.cotangents]
    having = [] if part is None else [part.having[i] for i in request.inputs]
    strides = [] if layout is None else [strides_of(layout, g.shape) for g in padded]
    return BackwardCall(request.inputs, request.names, padded, strides, rows, having)


def _among_zeros(cotangent: Tensor, part: Part, rows: list[int]) -> Tensor:
    whole = cotangent.new_zeros((part.count, *cotangent.shape[1:]))
    whole[rows] = cotangent
    return whole


def _held_gradients(session: Session, request: GradientRequest, got: list[Tensor | None], *, evident: bool) -> Finding:
    """Hold the gradients of a call; `evident`: whether LIKELY reads them again."""
    spec, arguments, state = session.spec, request.arguments, request.state
    inputs = floating(arguments.tensors)
    names = [name for name, value in state.items() if value.dtype.is_floating_point]
    titles, computed, positions, operands = [], list[Tensor](), [], list[int | str]()
    for operand, gradient in zip(request.operands, got, strict=True):
        # What the candidate gives no gradient of at the given inputs is not missed elsewhere.
        elsewhere = not evident and session.history.gradients.get(operand) is None
        if gradient is None and (elsewhere or not _is_missed(session, request, operand)):
            continue
        # A gradient that was not computed stands for zeros.
        leaf = state[operand] if isinstance(operand, str) else inputs[operand]
        titles.append(f"gradient of {request.label(operand)}{' (none, so zeros)' if gradient is None else ''}")
        operands.append(operand)
        computed.append(torch.zeros_like(leaf) if gradient is None else gradient)
        positions.append(names.index(operand) if isinstance(operand, str) else len(names) + operand)
    if not positions:
        return not_asked("GRAD", "no gradient is missed, and the candidate gives none")

    facts = operands_of(spec, arguments, state)
    picks = _choices_of(request, session.read(arguments, state, session.terms), facts)
    if picks is None:
        return not_asked("GRAD", "the outputs do not show what was drawn, on which the gradients hang")

    def read(terms: Terms) -> Sequence[Reading]:
        # In other memory the gradients are the same, so that they are read once.
        known = session.readings if arguments is session.arguments and state is spec.state else {}
        key = (terms, tuple(positions), *(table.tobytes() for table in picks.values()))
        key += tuple(to_array(g).tobytes() for g in request.cotangents)
        if key not in known:
            known[key] = spec.gradients(arguments, state, terms, positions, request.cotangents, picks)
        return known[key]

    outcomes = hold_in_turn(titles, computed, read, session.terms, None, facts, order=1)
    # torch draws for itself.
    alike = not spec.numpy and not spec.is_random(arguments, state)
    if alike and any(each.wrong is not None for each in outcomes):
        own = request.evaluations(spec, operands)
        if fault(own, read(session.terms), session.terms) is not None:
            session.records.missing_gradients.append(_OTHER_BACKWARD)
            return not_asked("GRAD", _OTHER_BACKWARD)
        outcomes = tell_of_torch(outcomes, own.own, session.terms, facts, 1)
    if evident:
        draws = functools.partial(spec.drawn_gradients, arguments, state, session.terms, positions, request.cotangents)
        evidence = Evidence(
            "GRAD", tuple(titles), tuple(computed), tuple(outcomes), (None,) * len(titles), read, draws,
            tuple(range(len(titles))), tuple(map(to_array, request.cotangents)),
        )  # fmt: skip
        session.records.evidence.append(evidence)
    return summed("GRAD", outcomes, arguments)


def _choices_of(request: GradientRequest, readings: Sequence[Reading], facts: OperandFacts) -> Mapping[str, Any] | None:
    """The choices that the outputs of a call show; None where they do not show what was drawn.

    Args:
        request: with the outputs. readings: the readings of the outputs. facts: of the operands.
    """
    choices = next((each.choices for each in readings if isinstance(each, OpenReading)), None)
    if choices is None:
        return {}
    if not choices.are_drawn:
        return choices.named_by(dict(enumerate(request.outputs)))
    if not request.outputs:
        return None
    decision = decide_by(request.outputs, readings[: len(request.outputs)], facts, every=True)
    return decision.picks if decision.is_unique and not decision.beyond else None


def _is_missed(session: Session, request: GradientRequest, operand: int | str) -> bool:
    """Whether a gradient that the candidate does not give is wrong; a weakness is noted where that is not known."""
    own = request.own.gradients[operand]
    if own is None or not bool(own.count_nonzero()):
        return False
    if not request.owes(operand):
        session.records.missing_gradients.append(
            f"the candidate gives no gradient of {request.label(operand)}; give the inputs requires_grad=True that need"
            " one, and it is missed or not"
        )
    return request.owes(operand)


def compiled(session: Session) -> Finding:
    """COMPILED: values and gradients by way of torch.compile; a candidate that cannot be traced may say so."""
    finding = session.values("COMPILED", session.arguments, manner=Manner.COMPILED, refusable=True, alone=True)
    if finding.outcome is not Outcome.VERIFIED or not session.history.gradients:
        return finding
    slopes = gradients_at(session, session.arguments, "GRAD", GradientPlace(manner=Manner.COMPILED))
    return replace(slopes, question="COMPILED") if slopes.is_wrong else finding


ASKING: dict[str, Asking] = {"GRAD": gradients, "COMPILED": compiled}
