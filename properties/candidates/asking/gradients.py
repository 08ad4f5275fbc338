"""Gradients of inputs and parameters, if the candidate offers any: at the given call, elsewhere, and at other calls."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from ....oracles.verdicts.verdict import Code, Outcome
from ..agreement import backward
from ..arguments import CallArguments, floating
from ..comparing import AS_WELL
from ..decays import has_decays
from ..domain.copies import safe_calls
from ..finding import Finding
from ..host.calls import BackwardCall, Manner
from ..inputs import Way, altered, of_all_magnitudes, of_whole_format, one_for_several, stand_in
from ..layouts import MemoryLayout
from ..other_calls import (
    STANDS_OUT,
    OtherCall,
    calls_at_branches,
    calls_of_sizes,
    calls_of_values,
    joint_calls,
    suspicion_of,
    worth_reading,
)
from ..results import Distance, distance_from
from ..session import Asking, Session
from ..specification import SpecError
from ..workload import CallLimit, calls_within, limit_of, work_at
from .gradient_call import cotangent_of, gradients_at
from .gradient_request import GradientPlace

#: Layouts of operands and of cotangents; one of the two is contiguous, so that an exception shows which one is refused.
_LAYOUTS = (
    (None, MemoryLayout.EXPANDED),
    (None, MemoryLayout.TRANSPOSED),
    (MemoryLayout.ROWS, None),
    (MemoryLayout.TRANSPOSED, None),
)
#: For how many operands there is a call in which no other operand requires grad.
_ALONE = 4
#: Operations of the spec in all calls at sizes where kernels may take another branch.
_OPERATIONS = 1500
#: About how many times as long as a call one with its backward takes.
_WITH_BACKWARD = 4.0


def gradients(session: Session) -> Finding:
    """VJP:grad: reverse mode with random cotangents; the spec's gradients are derivatives of its own text.

    If they are right at the given inputs, further ones are requested at other inputs and parameters, and in other
    memory layouts.
    """
    finding = gradients_at(session, session.arguments, "VJP:grad")
    if finding.outcome not in (Outcome.VERIFIED, Outcome.WEAK) or session.part is not None:
        return finding
    state = altered(session.spec.state, session.generator("PARAMS")) if session.controlled else session.spec.state
    least = functools.partial(of_whole_format, exponent=0)  # down to numbers whose squares vanish
    elsewhere = GradientPlace(state, inner=True)
    places = (
        (of_all_magnitudes, "VJP:grad elsewhere", elsewhere),
        (least, "VJP:grad least", GradientPlace(session.spec.state)),
    )
    others = [(_unlike(session, way, draws), draws, at) for way, draws, at in places]
    others += [(session.arguments, "VJP:grad", GradientPlace(None, *layouts)) for layouts in _LAYOUTS]
    alone = list(session.history.gradients)[:_ALONE]
    others += [(session.arguments, "VJP:grad", GradientPlace(only=each, manner=Manner.PARAMETERS)) for each in alone]
    floats = [i for i, t in enumerate(session.arguments.tensors) if t.dtype.is_floating_point]
    without = [i for n, i in enumerate(floats) if session.history.gradients.get(n) is None]
    same = one_for_several(session.arguments, without, session.domain)
    others += [] if same is None else [(same[1], "VJP:grad", GradientPlace(one_as=same[0]))]
    limit = limit_of(session, _WITH_BACKWARD)
    farthest = ((each, "VJP:grad", GradientPlace(other=True)) for each in _farthest_of_other_calls(session, limit))
    refusals, doubt = [], None
    for arguments, draws, place in itertools.chain(others, farthest):
        try:
            other = gradients_at(session, arguments, draws, place)
        except SpecError:
            continue  # The spec may not accept the drawn inputs.
        if other.is_wrong and other.wrong is not None:
            if draws == "VJP:grad least" and (other.wrong.code is not Code.SPECIAL or AS_WELL in other.wrong.lines):
                continue  # Right formulas lose digits there, or are as wrong as torch; a NaN by its own is a fault.
            if place.other and (suspicion := suspicion_of(session, other, arguments)):
                doubt = doubt or suspicion
                continue
            return replace(other, wrong=other.wrong.with_lines(place.text))
        refusals += [f"raised with {place.text.split(maxsplit=1)[1]}"] if other.outcome is Outcome.REFUSED else []
        finding = replace(finding, judged=finding.judged + other.judged, elements=finding.elements + other.elements)
    return doubt or replace(finding, left_out="; ".join(filter(None, [finding.left_out, *refusals, limit.text])))


def _farthest_of_other_calls(session: Session, limit: CallLimit) -> Iterator[CallArguments]:
    """Calls at other sizes, integers and options, at which the gradients differ most from torch's."""
    if session.spec.numpy or session.share or not any(g is not None for g in session.history.gradients.values()):
        return
    rng = session.generator("GRAD calls")
    calls = itertools.chain(
        joint_calls(session, rng), calls_of_values(session, rng), calls_of_sizes(session, rng, limit),
        itertools.islice(calls_at_branches(session, rng), calls_within(session, _OPERATIONS)),
    )  # fmt: skip
    rated = []
    for arguments in safe_calls(session.spec, calls):
        work = work_at(session, arguments, limit) if len(arguments.tensors) == len(session.arguments.tensors) else None
        if work is not None:
            at = mark_as_given(session, arguments)
            rated.append(OtherCall(at, _distances_at(session, at, rng, limit), work.seconds))
    # Of a kernel by chunks the bound of a loop is too sharp at some sizes, so only what stands out is held there.
    least = 0.0
    if has_decays(session.spec, session.arguments, session.spec.state):
        at = mark_as_given(session, session.arguments)
        least = STANDS_OUT * OtherCall(at, _distances_at(session, at, rng, limit), 0.0).distance(itertools.repeat(0.0))
    yield from (each.arguments for each in worth_reading(rated, session.domain.shapes.start, least))


def _distances_at(session: Session, arguments: CallArguments, rng: Any, limit: CallLimit) -> list[Distance]:
    """How far each gradient of the candidate is from torch's; none where either gives none."""
    spec, state = session.spec, session.spec.state
    operands = [operand for operand, gradient in session.history.gradients.items() if gradient is not None]
    try:
        outputs = floating(spec.outputs(stand_in(arguments), state))
    except SpecError:
        return []
    cotangents = [cotangent_of(y, rng) for y in outputs]
    inputs = [each for each in operands if isinstance(each, int)]
    names = [each for each in operands if isinstance(each, str)]
    answer = session.call(arguments, backward=BackwardCall(inputs, names, cotangents))
    limit.note(arguments, _WITH_BACKWARD * answer.repeat.seconds)
    if answer.raised or len(answer.pulled.gradients) != len(operands):
        return []
    own = backward(spec, arguments, state, operands, cotangents).gradients
    pairs = zip(answer.pulled.gradients, map(own.get, operands), strict=True)
    return [Distance(0.0, 0.0) if a is None or b is None else distance_from(a, b) for a, b in pairs]


def mark_as_given(session: Session, arguments: CallArguments) -> CallArguments:
    """The arguments, which require grad where the given ones do."""
    pairs = zip(arguments.tensors, session.arguments.tensors, strict=True)
    return arguments.with_tensors([t.requires_grad_() if was.requires_grad else t for t, was in pairs])


def _unlike(session: Session, way: Way, draws: str) -> CallArguments:
    """Other numbers as arguments, which require grad where the given ones do: normal ones and smaller ones, say.

    A fault at small inputs may be lost in the rounding of values and still show in gradients. In other ranges right
    formulas have wrong gradients: around -100 the gradient of x / (1 + exp(-x)) is NaN, and around 1 the gradient of a
    log-sum-exp in pieces has other digits.
    """
    changed = session.filled(session.arguments, way, session.generator(draws))
    return mark_as_given(session, changed)


def compiled(session: Session) -> Finding:
    """COMP:compiled: values and gradients under torch.compile; a candidate that cannot be traced may raise."""
    finding = session.values("COMP:compiled", session.arguments, manner=Manner.COMPILED, refusable=True, alone=True)
    if finding.outcome is not Outcome.VERIFIED or not session.history.gradients:
        return finding
    slopes = gradients_at(session, session.arguments, "VJP:grad", GradientPlace(manner=Manner.COMPILED))
    return replace(slopes, question="COMP:compiled") if slopes.is_wrong else finding


ASKING: dict[str, Asking] = {"VJP:grad": gradients, "COMP:compiled": compiled}
