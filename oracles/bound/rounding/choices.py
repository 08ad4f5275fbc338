"""A choice of algorithms: the ball that holds what each of them may give."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from ....reference.algorithms import STORED, Algorithm, Inapplicable
from ..contract import Contract
from .accumulators import sums_of_either
from .ball import RULES, Ball, magnitude_of
from .common_errors import common_of_either


def joined(a: Ball, b: Ball) -> Ball:
    """A ball around a's centre that contains both; where b is NaN in every evaluation, NaN is right, too."""
    stray = [x for x in (a.stray, b.stray) if x is not None]
    with np.errstate(all="ignore"):
        if a.bounded and b.bounded:
            reach = magnitude_of(a.centre - b.centre)
            reach += b.radii()
        else:
            same = (a.centre == b.centre) | (np.isnan(a.centre) & np.isnan(b.centre))
            reach = np.where(same, 0.0, magnitude_of(a.centre - b.centre)) + b.radii()
            lost = np.isnan(b.centre) & (b.radii() == 0) & ~np.isnan(a.centre)
            if lost.any():
                reach, stray = np.where(lost, 0.0, reach), [*stray, lost]
        reach, positive = np.maximum(a.radii(), reach), a.nonnegative and b.nonnegative
        out = Ball(a.centre, reach, a.contract, a.special or b.special, positive)
    out.bounded, out.summed, out.common = a.bounded, sums_of_either(a, b, out), common_of_either(a, b)
    out.stray = functools.reduce(np.logical_or, stray) if stray else None
    return out


def ways_of(ways: Sequence[Algorithm], contract: Contract) -> list[Algorithm]:
    """The first way, and the other ways that a contract allows."""
    names = {"", *contract.algorithms} if contract.others else set()
    if contract.others and contract.may_store(contract.stores):
        names.add(STORED)
    return [ways[0], *(way for way in ways[1:] if way.name in names)]


def without_relations(ball: Ball) -> Ball:
    """A number that may be computed twice, differently; or a result, which would keep the balls that it comes from."""
    ball.summed, ball.common, ball.chain = None, (), None
    return ball


def _among(contract: Contract, *balls: Ball, ways: Sequence[Algorithm], several: bool = False) -> Ball:
    """The ball that contains the results of every way that the contract allows, of several ways at once perhaps."""
    first, *others = ways_of(ways, contract)
    readings: Ball = first.formula(*balls)
    for way in others:
        try:
            readings = joined(readings, way.formula(*balls))
        except Inapplicable:
            continue
    return without_relations(readings) if several else readings


RULES["among"] = _among
