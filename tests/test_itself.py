"""A function of torch, judged by itself, is green by every way of asking."""

from __future__ import annotations

import pytest

from tests.itself import FUNCTIONS, SAMPLE, WAYS

#: The other ways ask every property, of attention for 19 s, and `opassay run` starts processes for each function.
_FAST = {("judge", name) for name in SAMPLE} | {("pytest", "sigmoid")}


@pytest.mark.fast_cases("judge-sigmoid", "judge-cross_entropy", "pytest-sigmoid")
@pytest.mark.parametrize(
    ("way", "name"),
    [
        pytest.param(way, name, marks=[] if (way, name) in _FAST else pytest.mark.slow)
        for way in WAYS
        for name in FUNCTIONS
    ],
)
def test_a_function_of_torch_is_green_against_itself(way: str, name: str) -> None:
    assert WAYS[way](name) == []
