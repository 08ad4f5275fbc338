"""Tolerances that are derived from a bound: they cover every allowed evaluation, barely, and tell what they miss."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import opassay
from opassay.properties.candidates.spoils import SPOILS
from opassay.properties.candidates.tolerances import AtolRtol, derive_tolerances, fit, round_up

SPECS = """
import torch

def softmax(x):
    return torch.softmax(x, -1)

def cancelling(x):
    return torch.cat([x * 1e-3, (x + 1e7) - 1e7], -1)

def both(x):
    return x.exp(), (x > 0).sum(-1), x.sum(-1)

def zero(x):
    return x.amax(1, keepdim=True) - x.amax(1, keepdim=True).mean(1, keepdim=True)

def expanded(x):
    return x.amax(1, keepdim=True).expand(8, 3) * 2

def overflowing(x):
    return torch.exp(x * 80) / 2

def inputs(n=16):
    return (torch.randn(8, n),)
"""


@pytest.fixture(name="specs")
def _specs(tmp_path: Path) -> str:
    (tmp_path / "specs.py").write_text(SPECS)
    return str(tmp_path / "specs.py")


def test_the_ends_of_accept_sets_are_covered_and_nothing_far_beyond(specs: str) -> None:
    (row,) = derive_tolerances(f"{specs}:softmax", ["float32"], [{"n": 16}], "torch", draws=4)
    reach = []
    for seed in range(4):
        torch.manual_seed(seed)
        x = torch.randn(8, 16)
        edges = opassay.bound(lambda x: torch.softmax(x, -1), x)
        assert isinstance(edges, opassay.Bound)
        low, high = edges.centre - edges.half_width, edges.centre + edges.half_width
        assert row.pair.covers(high.numpy(), low.numpy())
        assert row.pair.covers(low.numpy(), high.numpy())
        assert row.exact.covers(high.numpy(), edges.centre.float().double().numpy())
        reach.append((2 * edges.half_width / (row.pair.atol + row.pair.rtol * low)).max())
    assert max(reach) > 0.9
    assert (row.faults.misses, row.unbounded, row.elements) == ((), 0, 512)
    assert row.faults.sees >= len(SPOILS)


def test_a_fault_that_one_tolerance_for_all_elements_hides_is_named(specs: str) -> None:
    (row,) = derive_tolerances(f"{specs}:cancelling", ["float32"], [{}], "torch")
    assert row.pair.atol > 1
    assert {"all times 1.05", "rounded to bfloat16"} <= set(row.faults.misses)
    assert not {"one NaN", "the other sign", "all zeros"} & set(row.faults.misses)


def test_each_dtype_case_and_floating_output_has_a_row(specs: str) -> None:
    rows = list(derive_tolerances(f"{specs}:both", ["float32", "bfloat16"], [{"n": 4}, {"n": 9}], "torch", draws=1))
    assert [(row.dtype, row.case, row.output) for row in rows[:4]] == [
        ("float32", "n=4", "out[0]"), ("float32", "n=4", "out[2]"),
        ("float32", "n=9", "out[0]"), ("float32", "n=9", "out[2]"),
    ]  # fmt: skip
    assert rows[4].pair.rtol > 100 * rows[0].pair.rtol


def test_elements_that_may_overflow_are_counted(specs: str) -> None:
    (row,) = derive_tolerances(f"{specs}:overflowing", ["float32"], [{}], "torch", draws=1)
    assert row.unbounded > 0
    assert np.isfinite(row.pair).all()


def test_a_pair_of_somebody_is_tried_and_a_constant_output_is_told(specs: str) -> None:
    (loose,) = derive_tolerances(f"{specs}:softmax", ["float32"], [{}], "torch", own=AtolRtol(1e-2, 1e-2))
    assert loose.pair == (1e-2, 1e-2)
    assert "all of it in bfloat16" in loose.faults.misses
    assert not loose.constant
    (tight,) = derive_tolerances(f"{specs}:softmax", ["float32"], [{}], "torch", own=AtolRtol(0.0, 0.0))
    assert tight.faults.misses == ()
    (constant,) = derive_tolerances(f"{specs}:zero", ["float32"], [{}], "torch", own=AtolRtol(1e-5, 1e-8))
    assert constant.constant
    assert constant.rms == np.inf


def test_a_change_of_the_spec_that_raises_is_counted(specs: str) -> None:
    # Without amax, 16 columns cannot be expanded to 3.
    (row,) = derive_tolerances(f"{specs}:expanded", ["float32"], [{}], "torch", draws=1)
    assert (row.faults.misses, row.faults.untried) == ((), 1)
    (row,) = derive_tolerances(f"{specs}:softmax", ["float32"], [{}], "torch", draws=1)
    assert row.faults.untried == 0


@pytest.mark.parametrize(
    ("sizes", "errors", "pair"),
    [
        ([1.0, 2.0, 4.0], [0.125, 0.25, 0.5], AtolRtol(0.0, 0.13)),
        ([1.0, 2.0, 4.0], [0.25, 0.25, 0.25], AtolRtol(0.25, 0.0)),
        ([0.0, 4.0], [0.25, 1.25], AtolRtol(0.25, 0.25)),
        ([0.0, 0.0], [0.0, 0.5], AtolRtol(0.5, 0.0)),
        ([1.0, 3.0], [0.5, 0.125], AtolRtol(0.5, 0.0)),
        ([], [], AtolRtol(0.0, 0.0)),
    ],
)
def test_the_least_pair_covers_all_points(sizes: list[float], errors: list[float], pair: AtolRtol) -> None:
    result = fit(np.array(sizes), np.array(errors))
    assert result == pair
    assert result.covers(np.array(sizes) + errors, np.array(sizes))


def test_of_random_points_every_one_is_covered() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        sizes, errors = rng.random(20) * rng.choice([0, 1, 1e6]), rng.random(20) ** 3
        pair = fit(sizes, errors)
        assert (errors <= (pair.atol + pair.rtol * sizes) * (1 + 1e-15)).all()


def test_numbers_are_rounded_upwards_to_two_digits() -> None:
    assert [round_up(x) for x in (0.0, 0.101, 0.1, 9.91, 1234.0, 5e-324)] == [0.0, 0.11, 0.1, 10.0, 1300.0, 5e-324]
