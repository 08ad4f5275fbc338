"""Where wrong elements lie, in words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from opassay.oracles.judge.location import box_of, describe_place, describe_relation, draw_map

PLACES: list[tuple[tuple[int, ...], list[Any], str]] = [
    ((8, 96), [np.s_[:, 64:96]], "only columns 64 to 95 (the last tile of 32)"),
    ((8, 100), [np.s_[:, 96:]], "only columns 96 to 99 (the rest after tiles of 32)"),
    ((8, 96), [np.s_[1:]], "all rows but the first"),
    ((8, 96), [np.s_[:7]], "all rows but the last"),
    ((8, 96), [np.s_[7]], "only row 7 (the last)"),
    ((8, 96), [np.s_[::2]], "rows 0, 2, 4 and so on, by steps of 2"),
    ((8, 96), [np.s_[1], np.s_[4]], "only rows 1, 4"),
    ((9, 96), [np.s_[[0, 1, 4, 5, 7]]], "5 of the 9 rows, each as a whole"),
    ((8, 96), [np.s_[3, 5]], "only in [3, 5]"),
    ((8, 96), [np.s_[2, 70:90], np.s_[:, 95], np.s_[1, 64]], "only in columns 64 to 95 (the last tile of 32)"),
    ((8, 8), [np.s_[0, 3], np.s_[5, 1]], "only in [0:6, 1:4]"),
    ((40,), [np.s_[30:]], "only elements 30 to 39"),
    ((4, 8, 8), [np.s_[2]], "only index 2 of axis 0"),
    ((4, 8, 8), [np.s_[1:3]], "only indices 1 to 2 of axis 0"),
    ((8, 8), [np.s_[:]], "all elements"),
    ((8, 8), [np.s_[0, 0], np.s_[7, 7], np.s_[3, 1]], ""),
    ((1,), [np.s_[0]], ""),
]


@pytest.mark.parametrize(("shape", "parts", "text"), PLACES, ids=[text or "none" for *_, text in PLACES])
def test_a_place_is_said_where_it_is_true_of_all(shape: tuple[int, ...], parts: list[Any], text: str) -> None:
    outside = np.zeros(shape, dtype=bool)
    for part in parts:
        outside[part] = True
    assert describe_place(outside) == text
    first = tuple(low for low, _ in box_of(outside))
    assert all(low == at.min() for low, at in zip(first, np.nonzero(outside), strict=True))


def _numbers() -> Any:
    return np.random.default_rng(3).standard_normal((8, 16))


RELATIONS = {
    "off by the factor 2": lambda y: 2 * y,
    "off by the factor 1.01": lambda y: 1.01 * y,
    "off by 1e-05 of itself": lambda y: (1 + 1e-5) * y,
    "off by the factor -3": lambda y: -3 * y,
    "of the other sign": lambda y: -y,
    "off by +0.5": lambda y: y + 0.5,
    "all of these are zero": lambda y: 0 * y,
    "all of these are NaN": lambda y: y * np.nan,
    "shifted by one: row 1 holds what belongs into 0, and so on": lambda y: np.roll(y, 1, 0),
    "shifted by one: column 0 holds what belongs into 1, and so on": lambda y: np.roll(y, -1, 1),
    "": lambda y: y * (1 + _numbers()),
}


@pytest.mark.parametrize("text", RELATIONS)
def test_a_relation_is_said_where_it_is_true_of_all(text: str) -> None:
    exact = _numbers()
    computed = RELATIONS[text](exact)
    outside = np.ones(exact.shape, dtype=bool)
    assert describe_relation(computed, exact, outside) == text
    if text and not text.startswith(("shifted", "all")):
        computed[0, 0] += 9.0
        assert describe_relation(computed, exact, outside) == ""


def test_errors_of_numbers_that_are_nearly_equal_are_no_shift() -> None:
    exact = 1.0 + _numbers() / 64
    computed = exact + np.random.default_rng(4).standard_normal(exact.shape) / 64
    assert describe_relation(computed, exact, np.ones(exact.shape, dtype=bool)) == ""


def test_nothing_is_said_of_what_cannot_be_compared() -> None:
    exact = np.array([1.0, np.inf])
    assert describe_relation(np.array([2.0, 1.0]), exact, np.array([True, True])) == ""
    assert describe_relation(np.array([2.0, np.inf]), np.array([1.0, 2.0]), np.array([True, True])) == ""
    assert describe_relation(np.array([2.0, 1.0]), np.array([1.0, 1.0]), np.array([True, False])) == ""


MAPS: list[tuple[tuple[int, ...], list[Any], list[str]]] = [
    ((4, 8), [np.s_[0, 1:3], np.s_[3, 7]], [".##.....", "........", "........", ".......#"]),
    ((16, 128), [np.s_[::2, :64], np.s_[1, 1]], ["8" + "5" * 31 + "." * 32, *["5" * 32 + "." * 32] * 7]),
    ((2, 4, 4), [np.s_[0, 1], np.s_[:, 2, 2], np.s_[1, 3, 3]], ["....", "5555", "..#.", "...5"]),
    ((20, 1, 1), [np.s_[3:5], np.s_[9]], []),
    ((20, 1, 1), [np.s_[3:5], np.s_[[9, 11, 13]]], ["...##....#.#.#......"]),
    ((130,), [np.s_[[1, 44, 47, 61]], np.s_[128:]], ["3..........5...3................#"]),
    ((9, 4), [np.s_[0], np.s_[8, 0]], ["5555", "....", "....", "....", "#..."]),
    ((4, 8), [np.s_[:]], []),
    ((4, 8), [np.s_[1:3, 2:5]], []),
    ((3, 5), [np.s_[0, 0], np.s_[2, 2]], []),
    ((64, 256), [np.s_[::2, ::2]], []),
    ((), [np.s_[...]], []),
]


@pytest.mark.parametrize(("shape", "parts", "lines"), MAPS, ids=[str(shape) for shape, *_ in MAPS])
def test_a_map_has_a_cell_for_each_tile(shape: tuple[int, ...], parts: list[Any], lines: list[str]) -> None:
    outside = np.zeros(shape, dtype=bool)
    for part in parts:
        outside[part] = True
    assert draw_map(outside)[1:] == lines
    assert len(lines) <= 8
    assert all(len(line) <= 64 for line in lines)
