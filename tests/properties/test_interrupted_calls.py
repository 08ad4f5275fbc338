"""A call that fails half way: what a block puts back is back, and what nobody puts back is seen."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from opassay.properties.checks.calls.independence import call_interrupted

X = torch.ones(2)


def _in_a_block() -> Tensor:
    with torch.no_grad():
        y = torch.exp(X)
    return torch.sin(y)


def _by_hand() -> Tensor:
    torch.set_grad_enabled(False)
    y = torch.exp(X)
    torch.set_grad_enabled(True)
    return torch.sin(y)


@pytest.mark.parametrize(("call", "states"), [(_in_a_block, [True, True, True]), (_by_hand, [False, True, True])])
def test_how_gradients_are_left_at_every_call_of_torch_that_fails(
    call: Callable[[], Tensor], states: list[bool]
) -> None:
    """At exp, at sin, and at neither of them; nothing else can fail."""
    results: list[bool] = []

    def watched() -> None:
        try:
            call()
        finally:
            results.append(torch.is_grad_enabled())

    assert [call_interrupted(watched, number) for number in (1, 2, 3)] == [True, True, False]
    assert results == states
    assert torch.is_grad_enabled()
