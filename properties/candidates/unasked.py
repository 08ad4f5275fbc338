"""What a judgement did not ask and its verdict has to say: arguments that no call changed, inputs without influence.

What this is for: questions are asked around the given call. A candidate that ignores a mask which is all true in every
call, or a scale of 1.0, is right at all of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.rounding import Ball
from ...oracles.op.bits import same_results
from ...oracles.verdicts.verdict import Outcome
from .arguments import Tensor
from .finding import Finding
from .inputs import WAYS, Way, filled_tensor
from .records import balls_meet
from .session import Session
from .specification import SpecError

#: Questions that a candidate may refuse by an exception. It then counts for what was given, and for no more.
REFUSABLE = ("LAYOUT:strides", "LAYOUT:align", "VJP:grad", "SIZE:sizes")
#: Numbers that a formula may leave out unseen: a factor of 1, a term of 0, a switch, nothing.
_NEUTRAL = (0, 1)
#: Draws after which an output that has not moved is said not to depend on an input; of no large numbers, whose
#: rounding errors would move it.
_DRAWS = ("FWD:signs", "FWD:small")
#: Times the largest radius at the given inputs from which on values are told apart without a reading, to save its time.
_MANY = 64


def with_options(session: Session, finding: Finding) -> Finding:
    """The finding at the given inputs, saying which numbers and texts had one value in all calls."""
    rows = [row for row in _list_unchanged(session) if not _hides_faults(*row[1:])]
    if not rows or finding.question != "FWD:given" or finding.wrong is not None:
        return finding
    options = ", ".join(f"{name}={value!r}" for name, _, value in rows)
    return replace(finding, left_out="; ".join(filter(None, [finding.left_out, f"{options} in all calls"])))


def find_weaknesses(session: Session, findings: Sequence[Finding]) -> list[str]:
    """What was not asked, so that the verdict says little: a sentence each."""
    texts = [*_unchanged(session), *_without_numbers(session), *_refusals(findings)]
    return texts if any(each.is_wrong for each in findings) else [*texts, *_without_influence(session)]


def _unchanged(session: Session) -> Iterator[str]:
    rows = [row for row in _list_unchanged(session) if _hides_faults(*row[1:])]
    if rows:
        many = [f"{name} (all {value})" if size > 1 else f"{name} ({value})" for name, size, value in rows]
        yield f"never changed: {', '.join(many)}; let `inputs` draw others, by a seed"


def _list_unchanged(session: Session) -> list[tuple[str, int, Any]]:
    """Name, number of elements and value of each argument that had one value in all calls."""
    leaves, names = session.arguments.leaves, session.arguments.names
    return [
        (names[i] if names else f"argument {i}", leaf.numel() if isinstance(leaf := leaves[i], Tensor) else 1, value)
        for i, value in (session.records.unchanged.values or {}).items()
    ]


def _hides_faults(size: int, value: Any) -> bool:
    """Whether a candidate that ignores such an argument is likely to be right: all of a mask, a factor of 1."""
    is_number = isinstance(value, int | float)
    return size > 1 or value is None or isinstance(value, bool) or (is_number and value in _NEUTRAL)


def _without_numbers(session: Session) -> Iterator[str]:
    """Given inputs of which every element is NaN: each output is NaN there, whatever computes it."""
    for i, tensor in enumerate(session.arguments.tensors):
        if tensor.is_floating_point() and tensor.numel() and bool(torch.isnan(tensor.float()).all()):
            yield f"all elements of {session.arguments.label(i)} are NaN in the given inputs"


def _without_influence(session: Session) -> Iterator[str]:
    """Floating inputs at two draws of which the right values of all that the spec gives and writes are those given.

    An input that the spec does not read is none of these, and its author knows: NaN in its place reaches no output.
    """
    arguments, native = session.given_rows, session.native
    if not any(output.is_floating_point() for output in native.outputs + native.values):
        return  # A rank or a place is the same for most inputs.
    if session.spec.is_random(arguments, session.spec.state):
        return  # What is drawn covers what it is added to.
    for i, tensor in enumerate(arguments.tensors):
        if not tensor.is_floating_point() or i in native.writes:
            continue
        nan = np.full(tuple(tensor.shape), np.nan)
        if not any(_moves(session, i, WAYS[way]) for way in _DRAWS) and _moves(session, i, lambda *_, nan=nan: nan):
            yield f"no output depends on {arguments.label(i)}"


def _moves(session: Session, place: int, way: Way) -> bool:
    """Whether the spec's values at another draw of an input cannot be those at the given ones."""
    arguments, state, native = session.given_rows, session.spec.state, session.native
    tensors = list(arguments.tensors)
    tensors[place] = filled_tensor(tensors[place], way, session.generator(f"influence {place}"))
    other = arguments.with_tensors(tensors)
    try:
        run = session.spec.run(other, state)
        pairs = list(zip(run.outputs + run.values, native.outputs + native.values, strict=True))
        moved = [i for i, pair in enumerate(pairs) if not same_results(*pair)]
        first: Sequence[Any] = session.read(arguments, state, session.terms) if moved else ()
        if any(not isinstance(first[i], Ball) or _is_far(first[i], pairs[i][0]) for i in moved):
            return True
        # What differs by about a rounding error may be none: x - mean(x) of one element is 0, and torch's is not.
        balls: Sequence[Any] = session.spec.read(other, state, session.terms) if moved else ()
    except (SpecError, ReadingError):
        return True
    return not all(isinstance(balls[i], Ball) and balls_meet(first[i], balls[i]) for i in moved)


def _is_far(ball: Ball, value: Tensor) -> bool:
    """Whether a value is so far outside of a ball that no reading is needed to tell them apart."""
    if ball.shape != tuple(value.shape):
        return True
    with np.errstate(all="ignore"):
        distance = np.abs(value.detach().cpu().double().numpy() - ball.centre)
        radii = ball.radii()  # An element without a bound, as where a result overflows, is no reason to be near.
        return not bool(np.all(distance <= _MANY * np.max(radii[np.isfinite(radii)], initial=0.0)))


def _refusals(findings: Sequence[Finding]) -> Iterator[str]:
    codes = [each.question for each in findings if each.outcome is Outcome.REFUSED and each.question in REFUSABLE]
    if len(codes) > 1:
        yield f"the candidate refuses {', '.join(codes)}: it was judged at the given sizes and layouts alone"
