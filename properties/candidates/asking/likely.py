"""LIKELY, a statistical test beside the proven bound: errors are as small as random rounding errors make them."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ....oracles.bound.rounding.likeness import RISK, RUNS, Leaning, Likeness, leaning, likeness, spreads
from ....oracles.op.declaration import dtype_name, to_array
from ....oracles.verdicts.verdict import Code, Outcome
from ....oracles.verdicts.violation import Violation
from ....reference.formats import FORMATS
from ..arguments import CallArguments
from ..evidence import OF_LIKELY, Evidence
from ..finding import Finding, not_asked, passing
from ..inputs import WAYS, altered
from ..judge_draws import Draws
from ..records import Records
from ..session import Asking, Session
from .chance import frequencies
from .gradient_call import gradients_at

#: The largest cost of one evaluation (`Evaluations.work`), a tenth of a second on most machines; larger ones are judged
#: by their bound alone. Once all evaluations together cost eight times as much, no further outputs are tested.
_WORK = 2**22


class TooLongError(Exception):
    """One evaluation takes too long; the text gives its number of elements."""


def likely(session: Session) -> Finding:
    """LIKELY: a candidate is suspect if an output is within its bound but improbable, and again with fresh inputs.

    An output outside its bound at the fresh inputs is wrong, as at any other question. For a spec that draws random
    numbers the frequencies of the drawn values are tested instead.
    """
    by_chance = frequencies(session)
    if by_chance is not None:
        return by_chance
    values = [each for each in session.records.evidence if each.question in OF_LIKELY]
    gradients = [each for each in session.records.evidence if each.question == "VJP:grad"]
    # Gradients come before values at further inputs, because not all may be looked at.
    rows = [*values[:1], *gradients, *values[1:]]
    if not rows:
        return not_asked("LIKELY", f"nothing was asked at {' or '.join(OF_LIKELY)}")
    looked, asked_rows, work = 0, list[Evidence](), 0
    sides: dict[str, Leaning] = {}
    for row in rows:
        if work > 8 * _WORK:
            break
        asked_rows.append(row)
        try:
            look = compare_outputs(session, row)
        except TooLongError as err:
            return not_asked("LIKELY", str(err))
        if look.wrong is not None:
            again = _evaluate_fresh_draws(session, [row])
            if isinstance(again, Finding):
                return again
            if any(compare_outputs(session, each).wrong is not None for each in again):
                return Finding("LIKELY", Outcome.WEAK, look.wrong, looked)
        looked, work = looked + look.elements, work + look.work
        sides = _sum_leanings(sides, look.sides)
    if not looked:
        return not_asked("LIKELY", "every output is exact, or wrong, or depends on a choice that is open")
    for name, leans in sides.items():
        if any(leans.beyond):
            return _recheck_leaning(
                session, [row for row in asked_rows if row.question != "VJP:grad"], name, leans, looked
            )
    share = (
        ""
        if len(asked_rows) == len(rows)
        else f"{len(asked_rows)} of {len(rows)} sets of outputs, because evaluations take long"
    )
    return replace(passing("LIKELY", looked), sampled=share)


@dataclass(frozen=True)
class _Comparison:
    """A comparison of outputs with evaluations that have random errors.

    Attributes:
        wrong: about the first output that is improbable. elements: how many were compared. work: cost of the
            evaluations. sides: output -> the side of the exact result on which it lies.
    """

    wrong: Violation | None
    elements: int
    work: int
    sides: Mapping[str, Leaning]


def compare_outputs(session: Session, row: Evidence) -> _Comparison:
    """Compare outputs with evaluations that have random errors.

    Raises:
        TooLongError: an evaluation takes too long.
    """
    evaluations = row.draw(session.generator(f"LIKELY {row.question}"))
    first = next(evaluations)
    if evaluations.work > _WORK:
        raise TooLongError(f"{RUNS} evaluations of {evaluations.work / 2**20:.3g} million elements each take long")
    # A cast to a format of few bits leaves one or two possible numbers, neither of which is improbable.
    formats = [FORMATS.get(dtype_name(computed.dtype)) for computed in row.computed]
    pairs = zip(row.standings, formats, strict=True)
    # Where an output is explained by a choice (`picks`), the candidate may have made another one, so it is left out.
    balls = [one.ball if one.wrong is None and fmt is not None and not one.picks else None for one, fmt in pairs]
    runs = map(row.picked, itertools.chain([first], evaluations))
    spread = spreads(balls, formats, runs, cotangents=row.cotangents)
    looked, sides = 0, {}
    for i, own in enumerate(spread):
        fmt, read, native = formats[i], balls[i], row.native[i]
        if own is None or fmt is None or read is None:
            continue
        values = to_array(row.computed[i])
        closeness = likeness(values, fmt, read, own)
        if closeness is None:
            continue
        if closeness.suspect:
            return _Comparison(_far(row.names[i], row.question, closeness, session.draws), looked, evaluations.work, {})
        looked += closeness.elements
        leans = None if native is None else leaning(values, fmt, read, own, to_array(native))
        if leans is not None:
            sides[row.names[i]] = leans
    return _Comparison(None, looked, evaluations.work, sides)


def _sum_leanings(sides: Mapping[str, Leaning], others: Mapping[str, Leaning]) -> dict[str, Leaning]:
    return {**sides, **{name: sides[name] + own if name in sides else own for name, own in others.items()}}


def _recheck_leaning(session: Session, rows: Sequence[Evidence], name: str, leans: Leaning, looked: int) -> Finding:
    """A suspicion if an output lies on the same side of the exact result again, with fresh draws of all inputs.

    Args:
        rows: the calls to repeat. name, leans: of the output. looked: how many elements were compared.
    """
    again = _evaluate_fresh_draws(session, rows)
    if isinstance(again, Finding):
        return again
    fresh: dict[str, Leaning] = {}
    for row in again:
        fresh = _sum_leanings(fresh, compare_outputs(session, row).sides)
    if name in fresh and any(a * b > 0 for a, b in zip(leans.beyond, fresh[name].beyond, strict=True)):
        return Finding("LIKELY", Outcome.WEAK, _leaning_finding(name, leans, session.draws), looked)
    return passing("LIKELY", looked)


def _evaluate_fresh_draws(session: Session, rows: Sequence[Evidence]) -> list[Evidence] | Finding:
    """The evidence of the same questions with new inputs, or cotangents; a finding where a value is wrong.

    A copy of the session asks them, so that the session records nothing of it.
    """
    fresh = copy.copy(session)
    fresh.records, fresh.history = Records(), copy.copy(session.history)
    for row in rows:
        finding = _ask_again(fresh, row.question)
        if finding.is_wrong and not any(each.wrong for each in row.standings):
            return replace(finding, question="LIKELY")
    return fresh.records.evidence


def _ask_again(session: Session, question: str) -> Finding:
    rng = session.generator(f"{question} again")
    if question == "VJP:grad":
        return gradients_at(session, session.arguments, f"{question} again")
    if not any(t.dtype.is_floating_point for t in session.arguments.tensors):
        return session.values(question, session.arguments, altered(session.spec.state, rng))
    if session.draw is not None and question in ("FWD:given", "FWD:seeds"):
        arguments = session.draw(session.draws.inputs(2 + (question == "FWD:seeds")))
        return session.values(question, CallArguments.of(arguments), alone=True)
    return session.values(
        question, session.filled(session.arguments, WAYS.get(question, WAYS["FWD:seeds"]), rng), alone=True
    )


_SIDES = (("up", "down"), ("away from zero", "toward zero"))


def _far(name: str, question: str, likeness: Likeness, draws: Draws) -> Violation:
    at = f"{name}[{', '.join(map(str, likeness.at))}]" if likeness.at else name
    title = (
        f"{name} at {question}: {likeness.overall:.3g} standard deviations of rounding off,"
        f" {likeness.largest:.3g} at most"
    )
    lines = (
        f"overall    {likeness.overall:.4g}, root mean square of {likeness.elements} elements; suspect beyond"
        f" {likeness.most[1]:.3g}",
        f"largest    {likeness.largest:.4g}, of {at}; suspect beyond {likeness.most[0]:.3g}",
    )
    return Violation(Code.BIAS, title, (*lines, *_model(draws)))


def _leaning_finding(name: str, leans: Leaning, draws: Draws) -> Violation:
    sides = " and ".join(side[int(by < 0)] for side, by in zip(_SIDES, leans.beyond, strict=True) if by)
    means, torchs = leans.computed / leans.elements, leans.native / leans.elements
    lines = (
        f"up         {means[0]:.3g} half-widths, the mean of {leans.elements} elements less the exact result rounded"
        f" to nearest; {torchs[0]:.3g} of torch's",
        f"away       {means[1]:.3g} half-widths, the same with the signs of the results; {torchs[1]:.3g} of torch's",
        f"beyond     what is likely by {max(map(abs, leans.beyond)):.3g}",
    )
    return Violation(Code.BIAS, f"{name} is rounded {sides} more often than to nearest", (*lines, *_model(draws)))


def _model(draws: Draws) -> tuple[str, str]:
    return (
        f"model      {RUNS} evaluations with random errors, {draws}, and again at a fresh draw; a right output is"
        f" suspect with probability {RISK:g} at most",
        "           if errors lean to no side, at the spec's operations and at their operands: a suspicion, no proof",
    )


ASKING: dict[str, Asking] = {"LIKELY": likely}
