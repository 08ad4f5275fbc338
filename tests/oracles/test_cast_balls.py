"""Casts to formats of few bits: a ball becomes the numbers that its points become, and no others."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.rounding.casts import before_cast, cast_ball
from opassay.oracles.specs.storage import STORAGE_DTYPES, format_of
from opassay.reference.array import cast
from opassay.reference.dtypes import E4M3FN, E4M3FNUZ, E5M2, E8M0FNU, STORAGE_FORMATS, Format
from opassay.reference.exact import exact, to_float_pair
from opassay.reference.formats import bits_to_float64, cast_array

ALL = list(STORAGE_FORMATS.values())
FLOAT32 = contract("float32")
by_name = pytest.mark.parametrize("fmt", ALL, ids=lambda fmt: fmt.name)


def balls_around_steps(fmt: Format, seed: int = 0) -> Ball:
    """Balls around numbers of a format and the middles of two of them, most of them small, within its range."""
    rng = np.random.default_rng(seed)
    grid = np.unique(bits_to_float64(fmt, np.arange(1 << fmt.bits)))
    grid = grid[np.isfinite(grid)]
    low, high = grid[:-1], grid[1:]
    sites = np.repeat(np.concatenate([low, (low + high) / 2]), 4)
    gaps = np.repeat(np.concatenate([high - low] * 2), 4)
    radii = gaps * rng.choice([0.0, 2.0**-20, 0.31, 1.73], sites.size)
    centres = sites + gaps * rng.choice([0.0, 2.0**-21, -(2.0**-21), 0.2], sites.size)
    inside = np.abs(centres) + radii < fmt.max
    inside &= (centres > radii) | (fmt != E8M0FNU)  # which has magnitudes, so that a ball over 0 has none below it
    return Ball(centres[inside], radii[inside], FLOAT32)


@by_name
def test_a_ball_becomes_what_its_points_become(fmt: Format) -> None:
    ball = balls_around_steps(fmt)
    out = cast_ball(FLOAT32, ball, fmt)
    shares = np.linspace(-1.0, 1.0, 129)[:, None]
    points = cast_array(fmt, ball.centre + shares * ball.radii())
    assert (np.abs(points - out.centre) <= out.radii()).all()
    # The ends are reached, and a ball within one step has no error at all.
    assert (np.max(np.abs(points - out.centre), axis=0) == out.radii()).all()
    assert np.count_nonzero(out.radii() == 0) > out.centre.size / 4


@by_name
def test_an_output_is_accepted_where_some_point_of_the_ball_becomes_it(fmt: Format) -> None:
    ball = balls_around_steps(fmt, 1)
    grid = np.unique(bits_to_float64(fmt, np.arange(1 << fmt.bits)))
    grid = grid[np.isfinite(grid)]
    points = np.sort(cast_array(fmt, ball.centre + np.linspace(-1.0, 1.0, 513)[:, None] * ball.radii()), axis=0)
    rounded = before_cast(ball, fmt)
    for value in grid:
        accepted = accept.place_in_accept_sets(np.full(ball.shape, value), fmt, rounded, None).accepted
        assert (accepted == ((points[0] <= value) & (value <= points[-1]))).all(), value


@pytest.mark.parametrize("fmt", [E4M3FN, E4M3FNUZ, E5M2], ids=lambda fmt: fmt.name)
def test_what_is_beyond_must_be_what_the_format_has_for_it(fmt: Format) -> None:
    strange = np.inf if fmt == E5M2 else np.nan
    ball = Ball(np.array([4 * fmt.max, -4 * fmt.max, fmt.max, 0.0]), None, FLOAT32)
    for value, need in ((strange, [True, fmt != E5M2, False, False]), (fmt.max, [False, False, True, False])):
        elements = accept.place_in_accept_sets(np.full(4, value), fmt, ball, None)
        assert elements.accepted.tolist() == need
    saturating = Format(**{**vars(fmt), "saturates": True})
    elements = accept.place_in_accept_sets(np.array([fmt.max, -fmt.max, fmt.max, np.nan]), saturating, ball, None)
    assert elements.accepted.tolist() == [True, True, True, False]


def test_a_ball_over_the_largest_number_has_no_bound() -> None:
    ball = Ball(np.array([464.0, 464.0, 1e4, np.nan]), np.array([0.0, 1.0, 1.0, 0.0]), FLOAT32)
    out = cast_ball(FLOAT32, ball, E4M3FN)
    assert out.radii().tolist() == [0.0, np.inf, 0.0, 0.0]
    assert np.isnan(out.centre[2:]).all()
    assert out.centre[0] == 448.0
    saturated = cast_ball(FLOAT32, ball, Format(**{**vars(E4M3FN), "saturates": True}))
    assert saturated.centre[:3].tolist() == [448.0] * 3
    assert saturated.radii().tolist() == [0.0] * 4


def test_infinities_become_what_the_cast_gives() -> None:
    ball = Ball(np.array([np.inf, -np.inf, np.nan, 2.0]), None, FLOAT32, special=True)
    saturating = Format(**{**vars(E4M3FN), "saturates": True})
    assert before_cast(ball, saturating).centre[:2].tolist() == [448.0, -448.0]
    assert np.isnan(before_cast(ball, E4M3FNUZ).centre[:3]).all()
    assert before_cast(ball, E5M2).centre[:2].tolist() == [np.inf, -np.inf]
    assert before_cast(Ball(np.array([-3.0]), None, FLOAT32), E8M0FNU).centre.tolist() == [3.0]


@by_name
def test_the_exact_reading_rounds_as_arrays_do(fmt: Format) -> None:
    values = balls_around_steps(fmt, 2).centre
    values = np.concatenate([values, [0.0, 1e300, -1e300, 5e-324]])
    for saturates in (True, fmt.saturates):
        high, low = to_float_pair(cast(exact(values), fmt.name, saturates))
        numbers = cast(values, fmt.name, saturates)
        assert ((high == numbers) | (np.isnan(high) & np.isnan(numbers))).all()
        assert not np.nan_to_num(low).any()


def test_torch_is_asked_whether_its_casts_saturate() -> None:
    for dtype in STORAGE_DTYPES:
        beyond = float(torch.tensor(2.0**126).to(dtype))
        assert cast_array(format_of(dtype), 2.0**126) == beyond or np.isnan(beyond)
