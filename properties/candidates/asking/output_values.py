"""Questions about values: at the given inputs, at hostile ones, and with other parameters."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ....oracles import process
from ....oracles.bound.contract import SPREAD
from ....oracles.op.bits import same_bits
from ....oracles.specs.storage import (
    format_of,
    formats_in,
    is_computed_in,
    rounds_to_integers,
    subtracts_means,
    takes_logarithms,
    thresholds_in,
)
from ....oracles.specs.tracing import Traced
from ....oracles.verdicts.verdict import Outcome
from ....reference.choice import has_residual
from ..arguments import CallArguments, Tensor
from ..comparing import AS_WELL
from ..finding import Finding, not_asked, raised, with_lines
from ..host.calls import Answer, Manner
from ..inputs import (
    WAYS,
    altered,
    beside_ones,
    filled_tensor,
    keep,
    ladder_of,
    of_twelve_bits,
    of_whole_format,
    stand_in,
    ties_of,
)
from ..masks import PATTERNS, axes_of, fillers_of, mask_runs, takes_masks
from ..other_calls import forgetter_of
from ..records import Records
from ..rewrites import multiplies_sums
from ..row_sample import Part, draw_tensor, packed
from ..session import Asking, Session
from ..specification import SpecError
from ..thresholds import decides, exact_ties_of, largest_numbers, move_to_thresholds

#: Further arguments of a question, each with a line for the card of a fault; "" for none.
_Others = Iterator[tuple[CallArguments, str]]


def values_of_call(session: Session) -> Finding:
    """FWD:given: values at the given inputs."""
    if session.part is None:
        return session.values("FWD:given", session.arguments, sharp=True)
    answer = session.first
    if answer.raised:
        return raised("FWD:given", answer.raised)
    rows = session.rows_for("FWD:given", session.arguments)
    finding = session.compare_rows("FWD:given", session.arguments, session.spec.state, answer, rows, True)
    if finding.is_wrong:
        session.reduce_to_rows()
    return finding


def of_a_way(code: str, session: Session) -> Finding:
    """The question with this code among those of `inputs.WAYS`."""
    rng = session.generator(code)
    if not any(t.dtype.is_floating_point for t in session.arguments.tensors):
        return not_asked(code, "no argument is a floating tensor")
    if session.part is not None:
        if code not in session.packed:
            of_packed_ways(session, session.part, code)
        finding = session.packed[code]
        return _with_others(session, code, finding) if code in _OTHERS and session.rows_alone else finding
    if code == "FWD:seeds" and session.draw is not None:
        return session.values(code, CallArguments.of(session.draw(session.draws.inputs(1))))
    arguments = session.filled(session.arguments, WAYS[code], rng)
    if code == "SPECIAL:zeros":
        arguments = _with_signs(session, arguments, rng)
    finding = session.values(code, arguments, sharp=code in ("DATA:integers", "SPECIAL:zeros"))
    return _with_others(session, code, finding) if code in _OTHERS else finding


def _of_whole_format(session: Session) -> _Others:
    """Numbers of the whole format, where squares overflow or vanish; below 1, where a kernel may have other products on
    the way, as of queries and keys in place of keys and values, which overflow where those of the spec do not.
    Then numbers that all are below those with which a search for the largest may begin, 0 or -10000.
    """
    spec, rows, way, below = session.spec, session.given_rows, of_whole_format, -20_000
    if not spec.numpy and multiplies_sums(spec.traced_at(rows, spec.state).graph):
        way, below = functools.partial(of_whole_format, exponent=0), -100
    yield session.filled(rows, way, session.generator("WIDE whole")), ""
    yield session.filled(rows, lambda t, rng: below * WAYS["FWD:nearone"](t, rng), session.generator("WIDE below")), ""


def _near_ones(session: Session) -> _Others:
    """Of a spec that takes logarithms, operands at which those of numbers next to 1 are summed alone."""
    spec, rows = session.spec, session.given_rows
    if not spec.numpy and takes_logarithms(spec.traced_at(rows, spec.state).graph):
        yield from ((each, "") for each in beside_ones(rows, session.generator("NEARONE far")))


def _far_off(session: Session) -> _Others:
    """Of a spec that subtracts a mean, numbers so far from 0 that the last place of a square is as large as a variance.

    The difference of a mean of squares and the square of the mean has no digit there, and nearer to zero it depends on
    the numbers drawn whether it has lost more than the bound of a spec that subtracts the mean first.
    """
    spec, rows = session.spec, session.given_rows
    precision = max(format_of(t.dtype).precision for t in rows.tensors if t.dtype.is_floating_point)
    # Numbers of half types would all be one there.
    if precision >= 24 and not spec.numpy and subtracts_means(spec.traced_at(rows, spec.state).graph):
        far = 2.0 ** (precision // 2 - 1)
        yield session.filled(rows, lambda t, rng: far + WAYS["FWD:signs"](t, rng), session.generator("OFFSET far")), ""


def _of_masks(session: Session) -> _Others:
    """Rows with one operand masked but for stretches, where that is a mask to the spec, as to a softmax."""
    spec, rows, calls = session.spec, session.given_rows, 0
    if spec.numpy or SPREAD in (session.terms.algorithms or ()):
        return
    graph, state, other = spec.traced_at(rows, spec.state).graph, list(spec.state.values()), stand_in(rows)
    for place, axis, filler in _ways_to_mask(session):
        for pattern in range(len(PATTERNS)):
            masks = mask_runs(other, place, axis, session.generator("MASK other"), filler, pattern)
            if calls < _MASKS and takes_masks(graph, [*state, *other.tensors], [*state, *masks.tensors]):
                calls += 1
                text = f"{rows.label(place)} is {filler:g} but for a stretch of each line of axis {axis}"
                text = f"masks      {text}; --contract {session.terms.name}+{SPREAD} asks no masks"
                rng = session.generator(f"MASK {place} {axis}")
                yield mask_runs(rows, place, axis, rng, filler, pattern), text
                break


def _ways_to_mask(session: Session) -> Iterator[tuple[int, int, float]]:
    """Operands, axes of them and what fills them, where nothing that is known forbids it."""
    domain = session.domain
    for place, tensor in enumerate(session.given_rows.tensors):
        if not (domain.facts.get(place) or place in domain.integers or "positive" in domain.signs.get(place, ())):
            yield from ((place, *each) for each in itertools.product(axes_of(tensor), fillers_of(tensor)))


#: Calls with masks, at most.
_MASKS = 4
#: Further arguments of a question.
_OTHERS = {
    "FWD:offset": _far_off, "FWD:wide": _of_whole_format, "FWD:nearone": _near_ones, "SPECIAL:inf": _of_masks,
}  # fmt: skip


def _with_others(session: Session, code: str, finding: Finding) -> Finding:
    """The finding of a question, or that at one of its further arguments, if it is wrong."""
    for arguments, line in () if finding.is_wrong else _OTHERS[code](session):
        if not finding.is_wrong:
            finding = with_lines(_also(session, code, finding, arguments), *filter(None, [line]))
    return finding


def _also(session: Session, code: str, finding: Finding, arguments: CallArguments) -> Finding:
    """The finding of a question, which is not wrong, or that at these arguments, if it is."""
    forget = forgetter_of(session)
    try:
        # A residual overflows there before what it is of does.
        balls = session.read(session.given_rows, session.spec.state, session.terms)
        if has_residual(balls):
            return finding
        other = session.values(code, arguments)
    except SpecError:  # It does not take such numbers.
        return finding
    if other.is_wrong and other.wrong is not None and AS_WELL in other.wrong.lines:
        forget()
        return finding  # Who is right is not certain where torch is wrong, too.
    if other.is_wrong:
        return other
    return replace(finding, judged=finding.judged + other.judged, elements=finding.elements + other.judged)


def _with_signs(session: Session, zeros: CallArguments, rng: Any) -> CallArguments:
    """Zeros of random signs, if torch's outputs are the same as at `zeros`; else, as for 1 / x, `zeros`."""

    def signed(tensor: Tensor) -> Tensor:
        if not tensor.dtype.is_floating_point or not is_computed_in(tensor.dtype):
            return tensor
        negative = torch.tensor(rng.random(tuple(tensor.shape)) < 0.5, device=tensor.device)
        return torch.where(negative, tensor.neg(), tensor)

    arguments = zeros.changed(signed)
    plain, others = (
        [y.double().nan_to_num(0.5) for y in session.spec.outputs(each, session.spec.state)]
        for each in (zeros, arguments)
    )
    return arguments if all(map(torch.equal, plain, others)) else zeros


def of_packed_ways(
    session: Session, part: Part, first: str, places: Sequence[int] = (), manner: Manner = Manner.PLAIN
) -> Answer:
    """Answer the questions of `inputs.WAYS` by one call, in which each has rows of its own, as far as the rows suffice.

    Args:
        session: of a large problem. part: how it is cut. first: the question that must be among them.
        places: rows of the outputs of the earlier call to read again after this call. manner: of the call.

    Returns:
        The answer to the call; if it did not raise and there are `places`, an answer with these rows as `earlier`.
    """
    codes = [first, *(code for code in WAYS if code != first and code not in session.packed)][: part.count]
    arguments, rows = packed(part, session.arguments, codes, session.generator(f"ways of {first}"))
    arguments = keep(arguments, session.domain, session.generator(f"facts {first}"))
    answer = session.call(arguments, manner=manner, fetched=True)
    state = session.spec.state
    for code in codes:
        if answer.raised:
            session.packed[code] = raised(code, answer.raised)
            continue
        own = part.rows(session.generator(code), rows[code])
        sharp = code in ("DATA:integers", "SPECIAL:zeros")
        session.packed[code] = session.compare_rows(code, arguments, state, answer, own, sharp)
    return answer if answer.raised or not places else session.candidate.fetch(places, earlier=True)


def bits(session: Session) -> Finding:
    """DATA:bits: a few operands in turn have 12 bits; the first finding that is wrong, else the last."""
    finding = session.packed.get("DATA:bits") or not_asked("DATA:bits", "no operand is a floating tensor")
    for turn in bits_in_turn(session, after=int("DATA:bits" in session.packed)):
        finding = turn
        if finding.is_wrong:
            break
    return finding


def bits_in_turn(session: Session, manner: Manner = Manner.PLAIN, after: int = 0) -> Iterator[Finding]:
    """The findings of DATA:bits, one for each operand that has 12 bits while the others have small integers.

    Args:
        session: of the candidate. manner: of the calls. after: how many operands are skipped.
    """
    state = session.spec.state if session.controlled else {}
    fill = filled_tensor if session.part is None else draw_tensor
    for arguments, other in of_twelve_bits(session.arguments, state, session.generator("BITS"), fill, after):
        # The call for the first operand has the given size; calls for others may have a few rows.
        yield session.values(
            "DATA:bits", arguments, {**session.spec.state, **other}, manner, sharp=True, alone=after > 0
        )


def ties(session: Session) -> Finding:
    """FWD:ties: values at numbers of formats to which the spec casts, between two of them, and next to thresholds."""
    finding = not_asked("FWD:ties", "no argument of a torch spec is a floating tensor")
    if session.spec.numpy or not any(t.dtype.is_floating_point for t in session.arguments.tensors):
        return finding
    traced = session.spec.traced_at(session.arguments, session.spec.state)
    finding = not_asked(
        "FWD:ties", "the spec casts to no format of few bits, rounds to no integers, and compares nothing"
    )
    for arguments, sharp in _on_thresholds(session, traced, session.generator("TIES")):
        finding = session.values("FWD:ties", arguments, sharp=sharp, alone=True)
        if finding.is_wrong:
            break
    return finding


def _on_thresholds(session: Session, traced: Traced, rng: Any) -> Iterator[tuple[CallArguments, bool]]:
    """The arguments of the calls of FWD:ties, and whether what is exact must be returned exactly there."""
    graph, arguments = traced.graph, session.arguments
    formats = formats_in(graph)
    # A format of precision 1 has only powers of two, the scales of other formats, so it counts only if it is alone.
    ladders = [ladder_of(fmt) for fmt in formats if fmt.precision > 1 or len(formats) == 1]
    ladders += [np.arange(-128.0, 128.0)] if rounds_to_integers(graph) else []
    edges = thresholds_in(graph)
    dtypes = {output.dtype for output in traced.outputs} - {torch.bool}
    if len(edges) > 1 and not all(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
        ladders.append(np.unique([*edges, *(-x for x in edges)]))
    if ladders:
        yield session.filled(arguments, ties_of(ladders), rng), False
    count = max(t.numel() for t in arguments.tensors if t.dtype.is_floating_point)
    limits = largest_numbers(graph)
    for ladder in ladders:
        for largest in limits or [float(np.max(np.abs(ladder)))]:
            yield session.filled(arguments, exact_ties_of(ladder, largest, count), rng), True
    if decides(graph):
        near = session.filled(arguments, WAYS["FWD:seeds"], rng)
        own = list(session.spec.state.values())
        operands = move_to_thresholds(graph, [*own, *near.tensors], range(len(own), len(own) + len(near.tensors)), rng)
        yield near.with_tensors(operands[len(own) :]), True


def params(session: Session) -> Finding:
    """FWD:params: values with other parameters and buffers, with other objects in their place, and in evaluation."""
    findings = [_other_parameters(session)]
    if findings[0].outcome in (Outcome.VERIFIED, Outcome.WEAK):
        # The tensors that are replaced keep the values of the call before.
        findings.append(session.values("FWD:params", session.arguments, manner=Manner.ASSIGNED, alone=True))
        findings[-1] = with_lines(findings[-1], "call       after load_state_dict(assign=True)")
    evaluation = None if findings[-1].is_wrong else _in_evaluation(session)
    if evaluation is None:
        return findings[-1]
    if evaluation.outcome is Outcome.REFUSED:
        why, was_asked = f"in evaluation: {evaluation.text}", findings[-1].outcome is not Outcome.UNSUPPORTED
        return replace(findings[-1], left_out=why) if was_asked else not_asked("FWD:params", why)
    left_out = findings[-1].text if findings[-1].outcome is Outcome.UNSUPPORTED and session.spec.state else ""
    return with_lines(replace(evaluation, left_out=left_out), "call       in evaluation")


def _in_evaluation(session: Session) -> Finding | None:
    """Values in evaluation, of a module in training; None where the spec's values are the same there."""
    spec = session.spec
    if session.part is not None or not getattr(spec.function, "training", False):
        return None
    other, state = replace(spec, evaluation=True), spec.state
    with process.seeded(0):
        usual = spec.run(session.arguments, state)
    with process.seeded(0):
        run = other.run(session.arguments, state)
    if usual.writes == run.writes and all(map(same_bits, usual.outputs, run.outputs)):
        return None
    if session.controlled:
        state = altered(state, session.generator("PARAMS"))
    fresh = replace(session, spec=other, records=Records(), readings={})
    return fresh.values("FWD:params", session.arguments, state, Manner.EVALUATION, refusable=True)


def _other_parameters(session: Session) -> Finding:
    if not session.spec.state:
        return not_asked("FWD:params", "the spec has no parameters or buffers")
    if not session.controlled:
        lacking = [name for name in session.spec.state if name not in session.shared]
        return not_asked("FWD:params", f"the candidate has no {', '.join(lacking[:3])} of the spec's shape")
    state = altered(session.spec.state, session.generator("PARAMS"))
    return session.values("FWD:params", session.arguments, state, alone=True)


ASKING: dict[str, Asking] = {
    "FWD:given": values_of_call,
    **{code: functools.partial(of_a_way, code) for code in WAYS},
    "DATA:bits": bits,
    "FWD:ties": ties,
    "FWD:params": params,
}
