"""Two samples of calls, compared: no alarm of equal ones, and an alarm of what is drawn otherwise."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from opassay.oracles.bound import frequencies
from opassay.oracles.bound.frequencies import RISK, compare

CALLS, SHAPE = 100, (6, 10)
Draw = Callable[[np.random.Generator], Any]


def _tossed(share: float = 0.5) -> Draw:
    return lambda rng: rng.random(SHAPE) < share


def _calls(draw: Draw, rng: np.random.Generator) -> list[Any]:
    return [np.stack([draw(rng) for _ in range(CALLS)]).astype(float)]


def _constant_element(rng: np.random.Generator) -> Any:
    tossed = _tossed()(rng)
    tossed[2, 3] = True
    return tossed


_PLACES = np.random.default_rng(1).permutation(60)


@pytest.mark.slow
def test_copies_among_more_elements_than_are_paired_are_found() -> None:
    """Four copies each, anywhere: the share of elements varies twice as much from call to call."""
    size = 4 * frequencies._PAIRED
    places, rng = np.random.default_rng(1).permutation(size), np.random.default_rng(0)
    copies = [np.stack([np.tile(rng.random(size // 4) < 0.5, 4)[places] for _ in range(512)])]
    comparison = compare(copies, [rng.random((512, size)) < 0.5])
    assert comparison.worst.is_wrong, comparison


BIASED: dict[str, Draw] = {
    "another share": _tossed(0.7),
    "one row for all": lambda rng: np.broadcast_to(rng.random(SHAPE[1:]) < 0.5, SHAPE),
    "one column for all": lambda rng: np.broadcast_to(rng.random((SHAPE[0], 1)) < 0.5, SHAPE),
    "neighbours alike": lambda rng: np.repeat(rng.random((SHAPE[0], SHAPE[1] // 2)) < 0.5, 2, axis=1),
    "neighbours unlike": lambda rng: np.stack([t := rng.random((6, 5)) < 0.5, ~t], axis=-1).reshape(SHAPE),
    "a period of 3": lambda rng: np.tile(rng.random(3) < 0.5, 20).reshape(SHAPE),
    "copies 5 apart": lambda rng: np.tile(rng.random((SHAPE[0], 5)) < 0.5, 2),
    "halves that mirror each other": lambda rng: np.hstack([t := rng.random((6, 5)) < 0.5, t[:, ::-1]]),
    "pairs in other places": lambda rng: np.tile(rng.random(30) < 0.5, 2)[_PLACES].reshape(SHAPE),
    "one element is constant": _constant_element,
    "the same in every call": lambda rng: np.random.default_rng(3).random(SHAPE) < 0.5,
    "another scale": lambda rng: 2.0 * _tossed()(rng),
}


@pytest.mark.parametrize("name", BIASED)
def test_what_is_drawn_otherwise_is_found(name: str) -> None:
    rng = np.random.default_rng(0)
    comparison = compare(_calls(BIASED[name], rng), _calls(_tossed(), rng))
    assert comparison.worst.is_wrong, comparison


def test_calls_in_turn_by_two_seeds_are_found() -> None:
    rng, count = np.random.default_rng(0), iter(range(1000))

    def in_turn(_: np.random.Generator) -> Any:
        return np.random.default_rng(next(count) % 2).random(SHAPE) < 0.5

    assert compare(_calls(in_turn, rng), _calls(_tossed(), rng)).worst.is_wrong


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize(
    "draw",
    [
        _tossed(),
        _tossed(0.05),
        lambda rng: rng.standard_normal(SHAPE),
        lambda rng: np.broadcast_to(rng.random(SHAPE[1:]) < 0.5, SHAPE),
        lambda rng: np.zeros(SHAPE),
        lambda rng: rng.standard_cauchy(SHAPE),
    ],
)
def test_equal_samples_are_never_an_alarm(draw: Draw) -> None:
    """With a risk of 1e-9 none of these may be near it, and no right implementation may lose by its roundings."""
    for seed in range(25):
        rng = np.random.default_rng(seed)
        ones, others = _calls(draw, rng), _calls(draw, rng)
        worst = compare(ones, others).worst
        assert worst.risk * worst.tests > 1e-6
        rounded = [one * (1 + 2.0**-10) for one in ones]
        widths = [np.abs(one).max(0) * 2.0**-9 for one in ones]
        assert not compare(rounded, others, widths).worst.is_wrong


def test_the_tails_are_those_of_the_hypergeometric_distribution() -> None:
    tails = frequencies._tails(CALLS)
    for k in (0, 1, 37, 100, 163, 200):
        for a in range(max(0, k - CALLS), min(k, CALLS) + 1):
            mass = [math.comb(CALLS, i) * math.comb(CALLS, k - i) for i in range(max(0, k - CALLS), min(k, CALLS) + 1)]
            split = a - max(0, k - CALLS)
            need = min(sum(mass[: split + 1]), sum(mass[split:])) / math.comb(2 * CALLS, k)
            assert need <= tails[k, a] <= need * (1 + 1e-5)


def test_the_least_visible_difference_is_seen_and_a_smaller_one_is_not() -> None:
    rng = np.random.default_rng(0)
    comparison = compare(_calls(_constant_element, rng), _calls(_tossed(), rng))
    assert comparison.worst.what.startswith("an element"), comparison  # whose tests are counted
    ones = round(CALLS * (1 + comparison.visible) / 2)
    tail = frequencies._tails(CALLS)
    assert tail[CALLS, ones] * comparison.worst.tests < RISK <= tail[CALLS, ones - 1] * comparison.worst.tests
