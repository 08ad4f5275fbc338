"""What is likely, beside what is proven: whether outputs are as near as independent rounding errors leave them."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from ....oracles.op import dtype_name, to_array
from ....oracles.rounding import Ball
from ....oracles.rounding.chance import RISK, RUNS, Likeness, likeness, spreads
from ....oracles.verdict import Code
from ....reference.formats import FORMATS
from ..comparing import Wrong
from ..evidence import Evidence, Gradients
from ..finding import Finding, held, not_asked
from ..questions import OF_LIKELY, Standing
from ..session import Asking, Session

#: One evaluation may take so many seconds of the processor; of a larger one the worst case has to do. No further set of
#: outputs is looked at once all evaluations together took so many.
_SECONDS, _ALL_SECONDS = 0.1, 1.0


def likely(session: Session) -> Finding:
    """LIKELY: never wrong, but suspect, where an output lies within its bound and beyond what is likely."""
    rows = _accepted(session)
    if not rows:
        return not_asked("LIKELY", f"nothing was asked at {' or '.join(OF_LIKELY)}")
    looked, sets, start = 0, 0, time.process_time()
    for question, each in rows:
        if time.process_time() - start > _ALL_SECONDS:
            break
        sets += 1
        draws = session.generator(f"LIKELY {question}")
        begun = time.process_time()
        endless = each.drawn(draws)
        first = next(endless)
        seconds = time.process_time() - begun
        if seconds > _SECONDS:
            return not_asked("LIKELY", f"{RUNS} evaluations of {seconds:.2g} s each take long")
        balls = [one.ball if one.wrong is None else None for one in each.held]
        spread = spreads(balls, itertools.chain([first], endless))
        for name, computed, read, sigma in zip(each.names, each.computed, balls, spread, strict=False):
            if not isinstance(read, Ball):
                continue
            found = likeness(to_array(computed), FORMATS[dtype_name(computed.dtype)], read, sigma)
            if found is not None and found.suspect:
                return Finding("LIKELY", Standing.SUSPECT, _told(name, question, found, session.seed), looked)
            looked += 0 if found is None else found.elements
    if not looked:
        return not_asked("LIKELY", "every output is exact, or wrong")
    told = "" if sets == len(rows) else f"{sets} of {len(rows)} sets of outputs, because evaluations take long"
    return replace(held("LIKELY", looked), sampled=told)


def _accepted(session: Session) -> list[tuple[str, Gradients]]:
    """What is looked at, with the question that asked for it."""
    rows = []
    for each in session.evidence:
        if each.question in OF_LIKELY:
            drawn = functools.partial(_drawn, session, each)
            rows.append((each.question, Gradients(each.names, each.computed, each.held, drawn)))
    return [*rows, *(("GRAD", each) for each in session.gradients)]


def _drawn(session: Session, each: Evidence, draws: np.random.Generator) -> Iterator[tuple[Any, ...]]:
    """Evaluations with random errors of what was held."""
    return map(each.picked, session.spec.drawn(each.arguments, each.state, session.terms, draws))


def _told(name: str, question: str, found: Likeness, seed: int) -> Wrong:
    at = f"{name}[{', '.join(map(str, found.at))}]" if found.at else name
    title = (
        f"{name} at {question}: {found.overall:.3g} standard deviations of rounding off, {found.largest:.3g} at most"
    )
    lines = (
        f"overall    {found.overall:.4g}, root mean square of {found.elements} elements; suspect beyond"
        f" {found.most[1]:.3g}",
        f"largest    {found.largest:.4g}, of {at}; suspect beyond {found.most[0]:.3g}",
        f"model      {RUNS} evaluations with random errors, seed {seed}; a right output is suspect with probability"
        f" {RISK:g} at most",
        "           if rounding errors are independent and lean to no side: a suspicion, no proof",
    )
    return Wrong(Code.BIAS, title, lines)


ASKING: dict[str, Asking] = {"LIKELY": likely}
