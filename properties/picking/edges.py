"""Samples on a knife's edge: results next to where the rounding to the output's format turns over.

A result is rounded to a half type once, from a number that has three times as many digits; an evaluation that rounds
once more on the way gives another result only where the exact one lies right beside the middle of two numbers of the
format. Few samples do. So a draft is filled many times, the formula alone is read, and the filling that comes closest
is judged.
"""

from __future__ import annotations

import numpy as np

from ...oracles.bound.rounding import balls
from ...oracles.judge.judge import Judge
from ...oracles.op.declaration import Sample, dtype_name
from ...oracles.op.paths import Problem
from ...reference.formats import FORMATS, ulp_array

#: How many fillings of a draft are compared.
FILLINGS = 48


def rounds_once_more(judge: Judge) -> bool:
    """Whether outputs are stored in a narrower format than they are computed in; elsewhere errors hide the edge."""
    return judge.contract.stores.precision < judge.contract.accumulate.precision and not judge.compiled


def closest(judge: Judge, sample: Sample) -> float:
    """How far the nearest telling result is from a middle between two numbers of its format, in ulp: 0.5 at most.

    A result tells if its distance is larger than its bound: then one of the two numbers alone is right.
    """
    dtypes = judge.op.promises.dtypes(sample.args)
    problem = Problem(judge.op, sample.args, sample.kept)
    with judge.tally.clock("generate"):
        read = balls(problem.formula((), len(dtypes)), problem.arrays(), judge.contract_of(0))
    nearest = 0.5
    for ball, dtype in zip(read, dtypes, strict=False):
        centre = np.asarray(ball.centre, dtype=np.float64)
        with np.errstate(all="ignore"):
            unit = ulp_array(FORMATS[dtype_name(dtype)], centre)
            apart = np.abs(np.abs(centre / unit) % 1.0 - 0.5)
            telling = np.isfinite(centre) & (centre != 0) & (ball.radii() < apart * unit)
        nearest = min(nearest, float(np.min(apart[telling], initial=0.5)))
    return nearest
