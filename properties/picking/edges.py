"""Samples whose results lie next to a rounding boundary: the middle between two numbers of the output's format.

A result is rounded to a half type once, from a number that has three times as many digits. An evaluation that rounds
once more on the way has another result only where the exact one lies right beside such a middle, as in few samples. So
a draft is filled many times, the formula is read at every filling, and the filling that comes closest is judged.
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
    """Whether outputs are stored in a narrower format than they are computed in; else errors hide the boundary."""
    return judge.contract.stores.precision < judge.contract.accumulate.precision and not judge.compiled


def closest(judge: Judge, sample: Sample) -> float:
    """The smallest distance of a decisive result from a middle between two numbers of its format, in ulp; at most 0.5.

    A result is decisive if its distance is larger than its bound: then only one of the two numbers is right.
    """
    dtypes = judge.op.promises.dtypes(sample.args)
    if not dtypes:  # A call that is refused has no results.
        return 0.5
    problem = Problem(judge.op, sample.args, sample.originals)
    with judge.tally.clock("generate"):
        readings = balls(problem.formula((), len(dtypes)), problem.arrays(), judge.contract_of(0))
    nearest = 0.5
    for ball, dtype in zip(readings, dtypes, strict=False):
        centre = np.asarray(ball.centre, dtype=np.float64)
        with np.errstate(all="ignore"):
            unit = ulp_array(FORMATS[dtype_name(dtype)], centre)
            apart = np.abs(np.abs(centre / unit) % 1.0 - 0.5)
            decisive = np.isfinite(centre) & (centre != 0) & (ball.radii() < apart * unit)
        nearest = min(nearest, float(np.min(apart[decisive], initial=0.5)))
    return nearest
