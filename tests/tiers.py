"""Parameters of tests in two tiers: some are fast, and the others slow (`README.md` says what that is)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest


def one_fast_in(every: int, values: Iterable[Any]) -> list[Any]:
    """Values as parameters: the first, and one in so many after it, are fast, and the others are slow.

    The mark `one_fast_in` (conftest.py) does so with all parameters of a test together.
    """
    slow = pytest.mark.slow
    return [pytest.param(value, marks=slow if number % every else []) for number, value in enumerate(values)]
