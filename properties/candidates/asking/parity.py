"""PARITY: why two candidates differ, and which of them is worse.

What this is for: training and serving have two implementations of one layer, and their numbers differ. Somebody has to
know whether the order of sums explains it, or whether one of them rounds where the other does not, leans to one side,
or is wrong. Distances alone tell nothing of that: what an order of sums may do depends on the spec and on the operands.

The rule, of which the first case that is true is the answer:
- equal: all results of all calls have the same bits; the signs of zeros, and what a NaN carries, are not compared;
- wrong: one is outside of the contract, raises where the other does not, or gives another shape;
- precision: one keeps the bound of stricter terms than the other, or is within it and farther off than random errors;
- bias: within one bound one lies above the other, or farther from zero, in nearly all of many independent calls. Where
  roundings alone differ, each side is as probable as the other (sign test; risk 1e-6);
- order: both keep the strictest bound of the spec's dtype, which holds in every order of sums.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from ....oracles.bound.rounding.likeness import RISK
from ....oracles.bound.terms import LADDER, OF_ONE, PRESETS, Terms, terms
from ....oracles.judge.holding import OperandFacts
from ....oracles.op.declaration import Tensor, is_float, to_array
from ....oracles.specs.storage import format_of
from ....oracles.verdicts.verdict import Code, Outcome
from ....oracles.verdicts.violation import Violation
from ....reference.formats import ulp_array
from ..arguments import CallArguments
from ..beside import Beside, Miss, Place
from ..comparing import hold_all
from ..evidence import OF_ARITHMETIC, Evidence
from ..finding import Finding, not_asked
from ..inputs import WAYS
from ..precision import Rung, strictest_rung
from ..reasons import Reason, likely_reason
from ..session import Asking, Session
from .likely import TooLongError, compare_outputs

#: The rungs of precision, and the exponential that kernels make of exp2.
_RUNGS: tuple[tuple[Terms, str], ...] = (
    *LADDER[:2], (terms("strict+exp2"), f"{{dtype}}, sums in {{sums}}, {OF_ONE['exp2']}"), *LADDER[2:],
)  # fmt: skip
#: The rung of every order of sums in the spec's dtype; what is rounded once is within it.
_ORDER = 1
#: Independent calls of the sign test, and seconds after which no other one is made.
_CALLS, _SECONDS = 48, 10.0
_SIDES = ("above", "farther from zero than")


def parity(session: Session) -> Finding:
    """PARITY: see the module."""
    pair = session.candidate
    if not isinstance(pair, Beside):
        return not_asked("PARITY", "no other candidate is asked beside this one, as `opassay parity A B` does")
    if not session.spec.numpy and session.spec.is_random(session.arguments, session.spec.state):
        return not_asked("PARITY", "the spec draws random numbers, of which each candidate has its own")
    elements = sum(each.elements for each in pair.agreements.values())
    lines = [f"A          {pair.first.name}", f"B          {pair.second.name}", *_lines_of_places(session, pair)]
    if at_fault := _fault(session, pair):
        outcome = Outcome.WEAK if at_fault[0].startswith("precision") else Outcome.FAIL
        return Finding("PARITY", outcome, Violation(Code.PARITY, at_fault[0], (*lines, *at_fault[1])), elements)
    differing = sum(each.differing for each in pair.agreements.values())
    if not differing:
        calls = max((each.calls for each in pair.agreements.values()), default=0)
        title = f"equal: A and B have the same bits in {elements} elements of {calls} calls"
        return Finding("PARITY", Outcome.VERIFIED, Violation(Code.PARITY, title, tuple(lines)), elements)
    ulps = max(each.ulps for each in pair.agreements.values())
    scope = f"{differing} of {elements} elements differ, by at most {ulps:.3g} ulp"
    relation, more = _relation(session, pair)
    outcome = Outcome.VERIFIED if relation.startswith("order") else Outcome.WEAK
    violation = Violation(Code.PARITY, f"{relation}; {scope}", (*lines, *more, *_ratio_lines(session, pair)))
    return Finding("PARITY", outcome, violation, elements)


def _fault(session: Session, pair: Beside) -> tuple[str, tuple[str, ...]] | None:
    """What makes one of them wrong, or only of less precision than the contract has; a title, and lines."""
    if pair.fault:
        return f"wrong: of B {pair.fault}", ()
    if not pair.wrong:
        return None
    who = " and ".join(sorted(pair.wrong))
    first = pair.wrong[min(pair.wrong)][0]
    evidence = _evidence(session, pair).get(who, [])
    reason = _why_less_precise(session, evidence, session.terms)
    text = f"precision: {who} is of less precision than the contract {session.terms.name} has"
    if len(pair.wrong) == 1 and (allowance := _least_allowance(session, pair.wrong[who])):
        return f"{text}: {OF_ONE[allowance]} (+{allowance} allows it)", _lines_of(first, session, pair)
    known = {each.question for each in evidence}
    last = _rounded_last(evidence) if all(miss.question in known for miss in pair.wrong[who[0]]) else ""
    if last or (reason is not None and reason.rounds):
        return f"{text}: {last or reason}", _lines_of(first, session, pair)
    likely = () if reason is None else (f"likely     {reason}",)
    return f"wrong: {who} at {first.question}: {first.card.title}", (*first.card.lines, *likely)


def _lines_of(miss: Miss, session: Session, pair: Beside) -> tuple[str, ...]:
    return *miss.card.lines, *_ratio_lines(session, pair)


def _rounded_last(evidence: Sequence[Evidence]) -> str:
    """Which results are rounded to a half type in the end, where that explains all that is outside; empty for none."""
    every = [row for each in evidence for row in zip(each.names, each.computed, each.standings, strict=True)]
    wrong = [(name, y, standing.ball) for name, y, standing in every if standing.wrong is not None]
    for half in (torch.bfloat16, torch.float16) if wrong and all(is_float(y) for _, y, _ in wrong) else ():
        ulps = [ulp_array(format_of(half), to_array(y)) for _, y, _ in wrong]
        on_grid = all(torch.equal(y.to(half).to(y.dtype), y) for _, y, _ in wrong)
        if on_grid and all(
            ball is not None and bool(np.all(np.abs(to_array(y) - ball.centre) <= ball.radius + ulp / 2))
            for (_, y, ball), ulp in zip(wrong, ulps, strict=True)
        ):
            return f"{wrong[0][0]} rounded to {str(half).removeprefix('torch.')}"
    return ""


def _least_allowance(session: Session, misses: Sequence[Miss]) -> str:
    """The allowance by which all that is outside is inside; empty for none."""
    own = session.terms.name
    for name in OF_ONE if PRESETS.get(own.partition("+")[0]) else ():
        allowed = terms(f"{own}+{name}")
        if not any(standing.wrong for miss in misses for standing in miss.hold(terms=allowed)):
            return name
    return ""


def _evidence(session: Session, pair: Beside) -> dict[str, list[Evidence]]:
    """By "A" and "B" what both computed at the same calls, with their standings under the session's terms."""
    own = [each for each in session.records.evidence if each.question in (*OF_ARITHMETIC, "VJP:grad")]
    both = [(each, pair.evidence_of(each)) for each in own]
    rows = [(one, _held_again(session, other)) for one, other in both if other is not None]
    return {"A": [one for one, _ in rows], "B": [other for _, other in rows]}


def _relation(session: Session, pair: Beside) -> tuple[str, list[str]]:
    """Why results that are right differ: a sentence, which begins with the word for it, and further lines."""
    evidence = _evidence(session, pair)
    rungs = {name: strictest_rung(each, _RUNGS) for name, each in evidence.items()}
    a, b = rungs["A"], rungs["B"]
    if a is None or b is None:
        return "open: of what differs nothing is floating, and no bound says why", []
    lines = [f"{name} keeps    {rung.text}" for name, rung in (("A", a), ("B", b))]
    if a.wide or b.wide:
        return "open: the bounds are wider than the results, and say nothing of their difference", lines
    numbers = [max(rung.number, _ORDER) for rung in (a, b)]
    if numbers[0] != numbers[1]:
        less, best = ("A", b) if numbers[0] > numbers[1] else ("B", a)
        worse = a if less == "A" else b
        stricter = next((rung for rung, _ in _RUNGS if rung.name == best.name), None)
        reason = None if stricter is None else _why_less_precise(session, evidence[less], stricter)
        why = [] if reason is None else [f"likely     {reason}"]
        text = (
            f"precision: {less} is of less precision, {worse.words}; {'B' if less == 'A' else 'A'} keeps {best.words}"
        )
        return text, lines + why
    if far := _farther_off(session, evidence):
        return far[0], lines + far[1]
    if side := _leaning(session, pair):
        return side, lines + _mean_errors(evidence)
    if numbers[0] == _ORDER:
        return f"order: the order of sums explains it, and neither is of less precision: {_least(a, b).words}", lines
    return f"order: both have the same roundings beside those of sums: {a.words}", lines


def _least(a: Rung, b: Rung) -> Rung:
    return a if a.number >= b.number else b


def _held_again(session: Session, each: Evidence, allowed: Terms | None = None) -> Evidence:
    """The evidence with its own standings, under the session's terms or others."""
    readings = each.picked(each.read(allowed or session.terms))
    order = int(each.cotangents is not None)
    standings = hold_all(each.names, each.computed, readings, allowed, None, OperandFacts.FINITE, order)
    return replace(each, standings=tuple(standings))


def _why_less_precise(session: Session, evidence: Sequence[Evidence], allowed: Terms) -> Reason | None:
    """Which operation computes something else than some terms allow, where that is known."""
    again = [_held_again(session, each, allowed) for each in evidence if each.call]
    first = next((each for each in again if any(standing.wrong for standing in each.standings)), None)
    return None if first is None else likely_reason(session.spec, again, first, allowed)


def _farther_off(session: Session, evidence: dict[str, list[Evidence]]) -> tuple[str, list[str]] | None:
    """Whether one alone of them is improbable among evaluations with random errors."""
    looks: dict[str, Violation] = {}
    for name, rows in evidence.items():
        for row in rows[:2]:
            try:
                look = compare_outputs(session, row).wrong
            except TooLongError:
                return None
            if look is not None:
                looks.setdefault(name, look)
    if len(looks) != 1:
        return None
    ((name, look),) = looks.items()
    return f"precision: {name} is farther off than its roundings are likely to bring it: {look.title}", list(look.lines)


def _leaning(session: Session, pair: Beside) -> str:
    """On which side of B's results A's lie in too many calls for chance; empty for neither, and of large problems."""
    if session.part is not None:
        return ""
    signs: dict[tuple[Place, str], list[float]] = {}
    for _ in _independent_calls(session):
        for place, (one, other) in pair.last.items():
            if is_float(one):
                for side, total in zip(_SIDES, _sides_of(one, other), strict=True):
                    signs.setdefault((place, side), []).append(np.sign(total))
    for (place, side), every in signs.items():
        above, below = sum(sign > 0 for sign in every), sum(sign < 0 for sign in every)
        if _chance(max(above, below), above + below) * len(signs) < RISK:
            more, less = ("A", "B") if above > below else ("B", "A")
            label = _label(session, place)
            count = f"{max(above, below)} of {len(every)} independent calls"
            return f"bias: {more}'s {label} lies {side} {less}'s in the mean of {count}, within one bound"
    return ""


def _independent_calls(session: Session) -> Iterator[CallArguments]:
    """Calls at fresh draws of all that is floating, which are made; none any more where they take long."""
    began, rng = time.monotonic(), session.generator("PARITY")
    for number in range(_CALLS):
        if session.draw is not None:
            arguments = CallArguments.of(session.draw(session.draws.inputs(100 + number)))
        else:
            arguments = session.filled(session.arguments, WAYS["FWD:seeds"], rng)
        session.call(arguments)
        yield arguments
        if time.monotonic() - began > _SECONDS:
            return


def _sides_of(one: Tensor, other: Tensor) -> tuple[float, float]:
    """By how many units of the last place, in sum, one lies above another, and farther from zero."""
    a, b = to_array(one), to_array(other)
    with np.errstate(all="ignore"):
        apart = np.nan_to_num(
            (a - b) / ulp_array(format_of(one.dtype), np.maximum(np.abs(a), np.abs(b))), posinf=0, neginf=0
        )
    return float(apart.sum()), float((apart * np.sign(a)).sum())


def _chance(most: int, count: int) -> float:
    """How probable it is that one of two sides comes so often among so many fair ones, or more often."""
    return float(min(1.0, 2 * sum(math.comb(count, k) for k in range(most, count + 1)) / 2**count))


def _mean_errors(evidence: dict[str, list[Evidence]]) -> list[str]:
    """Of each the mean of its errors, which says who leans."""
    lines = []
    for name, rows in evidence.items():
        errors = [
            (to_array(y) - one.ball.centre) / ulp_array(format_of(y.dtype), one.ball.centre)
            for row in rows for y, one in zip(row.computed, row.standings, strict=True)
            if one.ball is not None and is_float(y)
        ]  # fmt: skip
        every = np.concatenate([np.ravel(each) for each in errors]) if errors else np.zeros(1)
        lines.append(f"{name} errs     by {float(np.mean(every[np.isfinite(every)])):+.3g} ulp in the mean")
    return lines


def _label(session: Session, place: Place) -> str:
    kind, name = place
    if kind == "out" and isinstance(name, int):
        return session.native.names[name]
    floats = [i for i, t in enumerate(session.arguments.tensors) if t.dtype.is_floating_point]
    return f"gradient of {session.arguments.label(floats[name]) if isinstance(name, int) else name}"


def _lines_of_places(session: Session, pair: Beside) -> list[str]:
    lines = []
    for place, each in pair.agreements.items():
        if each.differing:
            scope = f"{each.differing} of {each.elements} elements, {each.calls} calls, at most {each.ulps:.3g} ulp"
            scope += f"; of {each.odd} one alone is finite" if each.odd else ""
            lines += [f"differs    {_label(session, place)}: {scope}", f"           {each.example}"]
    zeros = sum(each.zeros for each in pair.agreements.values())
    lines += [f"zeros      {zeros} of other signs, not counted"] if zeros else []
    return lines + [f"refuses    B, {len(pair.refusals)} calls: {each}" for each in pair.refusals[:1]]


def _ratio_lines(session: Session, pair: Beside) -> list[str]:
    """What differences do to a policy's ratios, where outputs may be logarithms of probabilities."""
    first = next((each for each in session.records.evidence if each.question == "FWD:given"), None)
    other = None if first is None else pair.evidence_of(first)
    if first is None or other is None or not is_float(first.computed[0]):
        return []
    a, b = to_array(first.computed[0]), to_array(other.computed[0])
    if not a.size or not (np.all(a <= 0) and np.all(b <= 0) and np.isfinite(a).all() and np.isfinite(b).all()):
        return []
    gap = a - b
    ratios = np.exp(gap)
    clipped = int(np.count_nonzero(np.abs(ratios - 1) > _CLIP))
    return [
        f"ratio      as log-probabilities: exp(A - B) is {ratios.min():.6g} to {ratios.max():.6g},"
        f" {ratios.mean():.6g} in the mean; a clip range of {_CLIP} cuts {clipped} of {a.size}",
        f"KL         (r - 1) - log r in the mean: {float(np.mean(np.expm1(gap) - gap)):.3g}",
    ]


#: The clip range of PPO's ratios (Schulman et al., 2017, arXiv:1707.06347).
_CLIP = 0.2

ASKING: dict[str, Asking] = {"PARITY": parity}
