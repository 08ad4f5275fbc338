"""How far off an approximation may be, beside what the contract of fast functions allows."""

from __future__ import annotations

import numpy as np
import pytest

from opassay.oracles.bound.terms import APPROXIMATE_FUNCTIONS
from opassay.oracles.machine.ptx.approximations import BOUNDS


@pytest.mark.parametrize(("name", "function"), [("ex2", "exp2"), ("sqrt", "sqrt"), ("tanh", "tanh")])
def test_no_instruction_is_farther_off_than_the_contract_that_allows_it(name: str, function: str) -> None:
    y = np.linspace(0.01, 1.0, 200)
    assert (BOUNDS[name].distance(y) <= 2 * APPROXIMATE_FUNCTIONS[function] * 2.0**-24 * y).all()
