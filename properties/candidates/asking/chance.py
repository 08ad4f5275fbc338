"""The random numbers of a candidate against those of the spec: frequencies, scale and independence in many calls."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....oracles import process
from ....oracles.bound.frequencies import RISK, SampleComparison, compare
from ....oracles.bound.rounding import Ball
from ....oracles.op.declaration import is_float, to_array
from ....oracles.specs.storage import format_of
from ....oracles.verdicts.verdict import Code, Outcome
from ....oracles.verdicts.violation import Violation
from ..agreement import backward
from ..arguments import Tensor
from ..finding import Finding, not_asked, passing, raised
from ..session import Session

#: Seconds that the calls of the spec and of the candidate may take together, and the least and largest number of calls.
_SECONDS, _LEAST, _MOST = 8.0, 64, 512
#: The number of calls of which gradients are compared.
_OF_GRADIENTS = 128
#: The largest number of elements of all calls together.
_ELEMENTS = 2**24


def frequencies(session: Session) -> Finding | None:
    """LIKELY for a spec that draws random numbers; None for another spec."""
    spec, state, operands = session.spec, session.spec.state, session.arguments
    if not spec.is_random(session.given_rows, state):
        return None
    if session.part is not None:
        return not_asked("LIKELY", "of a problem as large as this too few calls can be made to know frequencies")
    start = time.monotonic()
    own = [_arrays(spec.outputs(operands, state))]
    answer = session.call(operands)
    if answer.raised:
        return raised("LIKELY", answer.raised)
    computed = [_arrays(answer.outputs)]
    shapes = [[y.shape for y in sample[0]] for sample in (computed, own)]
    if shapes[0] != shapes[1]:
        return not_asked("LIKELY", "the outputs have other shapes than the spec's")
    each = max(time.monotonic() - start, 1e-9)
    size = max(sum(y.size for y in own[0]), 1)
    calls = max(_LEAST, min(_MOST, int(_SECONDS / each), _ELEMENTS // size))
    with process.seeded(session.draws.inputs(7)):
        own += [_arrays(spec.outputs(operands, state)) for _ in range(calls - 1)]
    for _ in range(calls - 1):
        answer = session.call(operands)
        if answer.raised:
            return raised("LIKELY", answer.raised)
        computed.append(_arrays(answer.outputs))
    comparison = compare(_stack_calls(computed), _stack_calls(own), _widths(session, answer.outputs))
    if comparison.worst.is_wrong:
        return Finding("LIKELY", Outcome.FAIL, _card(comparison), size)
    of_gradients = _compare_gradients(session)
    if of_gradients is not None and of_gradients.worst.is_wrong:
        return Finding("LIKELY", Outcome.FAIL, _card(of_gradients, "gradient"), size)
    session.records.sampled = spec.drawn_outputs(operands, state)
    return Finding("LIKELY", passing("LIKELY", size).outcome, None, size, sampled=_visible(comparison))


def _compare_gradients(session: Session) -> SampleComparison | None:
    """A comparison of gradients at the given inputs, where outputs leave open what was drawn; None elsewhere."""
    if session.records.open_gradients is None:
        return None
    pulled, widths = session.records.open_gradients
    names: list[int | str] = [*pulled.moving, *pulled.wanted]
    spec, state, operands = session.spec, session.spec.state, session.arguments
    answers = [session.call(operands, backward=pulled).pulled.gradients for _ in range(_OF_GRADIENTS)]
    with process.seeded(session.draws.inputs(8)):
        native = [backward(spec, operands, state, names, pulled.cotangents).gradients for _ in range(_OF_GRADIENTS)]
    own = [[gradients[name] for name in names] for gradients in native]
    present = [
        i for i, name in enumerate(names)
        if name in widths and all(len(each) > i and each[i] is not None for each in (*answers, *own))
    ]  # fmt: skip
    if not present:
        return None
    every: tuple[Any, ...] = answers, own
    computed, others = ([_arrays([each[i] for i in present]) for each in calls] for calls in every)
    return compare(_stack_calls(computed), _stack_calls(others), [widths[names[i]] for i in present])


def _arrays(outputs: Sequence[Tensor]) -> list[Any]:
    return [to_array(y) if is_float(y) else y.detach().cpu().numpy() for y in outputs]


def _stack_calls(calls: Sequence[Sequence[Any]]) -> list[Any]:
    return [np.stack(each) for each in zip(*calls, strict=True)]


def _widths(session: Session, outputs: Sequence[Tensor]) -> list[Any]:
    """The largest difference of one number as a candidate and as torch round it: the width of its accept set."""
    widths: list[Any] = []
    readings = session.spec.read_still(session.given_rows, session.spec.state, session.terms)
    for output, ball in zip(outputs, readings, strict=False):
        width: Any = 0.0
        if isinstance(ball, Ball) and is_float(output):
            with np.errstate(all="ignore"):
                width = 2 * ball.half_widths(format_of(output.dtype))
        widths.append(np.where(np.isfinite(width), width, 0.0))
    return widths


def _visible(comparison: SampleComparison) -> str:
    text = f"{comparison.calls} calls, which show a frequency of an element that is off by {comparison.visible:.2g}"
    return text + (
        f", and a share of elements off by {comparison.visible_mean:.2g}" if comparison.visible_mean > 0 else ""
    )


def _card(comparison: SampleComparison, of: str = "") -> Violation:
    worst = comparison.worst
    lines = [
        f"event      {worst.what}",
        f"frequency  {worst.computed:.4g} of {comparison.calls} calls, need about {worst.own:.4g}, as of the spec's",
    ]
    if worst.values is not None:
        lines[1] = f"mean       {worst.values[0]:.4g} over {comparison.calls} calls, need about {worst.values[1]:.4g}"
        lines.append(f"frequency  above the median of all calls in {worst.computed:.4g}, need about {worst.own:.4g}")
    lines += [
        f"chance     {worst.risk:.2g} for so much by one test of {worst.tests}; all together have a risk of {RISK:g}",
        f"sees       {_visible(comparison)}",
    ]
    what = worst.what.replace("output", of) if of else worst.what
    return Violation(Code.BIAS, f"what is drawn is distributed otherwise: {what}", tuple(lines))
