"""Specs with torch's operators that take functions: what they call in turn is read, and mistakes are rejected."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as map_rows
from torch._higher_order_ops.map import map_impl

import opassay
from opassay.oracles.specs.loops import LOOPS
from tests.traced_once import traced_once

_DECAY = 0.5


def _recur(x: Tensor) -> Any:
    """A linear recurrence along the rows: the last state, and all of them."""
    return scan(lambda state, row: (state * _DECAY + row, state * _DECAY + row), torch.zeros_like(x[0]), x)


def _row_by_row(x: Tensor, decay: float = _DECAY, start: int = 0) -> tuple[Tensor, Tensor]:
    state, states = torch.zeros_like(x[0]), []
    for row in x[start:]:
        state = state * decay + row
        states.append(state)
    return state, torch.stack([states[0]] * start + states)


def _repeat(x: Tensor, count: Tensor) -> Any:
    def body(i: Tensor, n: Tensor, y: Tensor) -> tuple[Tensor, ...]:
        return i + 1, n.clone(), torch.tanh(y) * 2

    return while_loop(lambda i, n, y: i < n, body, (torch.tensor(0), count, x))[2]


def _times(x: Tensor, count: int) -> Tensor:
    for _ in range(count):
        x = torch.tanh(x) * 2
    return x


def _choose(x: Tensor, count: Tensor) -> Any:
    return torch.cond(count > 2, lambda y: y.exp(), lambda y: y * 3, (x,))


def _centre(x: Tensor) -> Any:
    untyped: Any = map_rows
    return untyped(lambda row: row - row.mean(), x)


_SPECS: dict[str, tuple[Callable[..., Any], list[Callable[..., Any]], list[Callable[..., Any]]]] = {
    "scan": (
        _recur,
        [_row_by_row],
        [
            lambda x: _row_by_row(x, 0.25),
            lambda x: _row_by_row(x, start=1),
            lambda x: (_row_by_row(x)[0], _row_by_row(x)[1].roll(1, 0)),
        ],
    ),
    "while_loop": (
        _repeat,
        [lambda x, n: _times(x, int(n))],
        [
            lambda x, n: _times(x, int(n) + 1),
            lambda x, n: _times(x, int(n) - 1),
            lambda x, n: x.tanh() * 2,
        ],
    ),
    "cond": (
        _choose,
        [lambda x, n: x.exp() if n > 2 else x * 3],
        [lambda x, n: x * 3, lambda x, n: x.exp() * 3, lambda x, n: x.exp2()],
    ),
    "map": (
        _centre,
        [lambda x: x - x.mean(-1, keepdim=True)],
        [lambda x: x - x.mean(), lambda x: x - x.mean(0), lambda x: x - x.amax(-1, keepdim=True)],
    ),
}
_CASES = [(name, kernel, right) for name, (_, *both) in _SPECS.items() for right, some in zip((1, 0), both, strict=True)
          for kernel in some]  # fmt: skip


@pytest.mark.one_fast_in(11)
@pytest.mark.parametrize(("name", "kernel", "right"), _CASES)
def test_loops_are_read_as_what_they_call(name: str, kernel: Callable[..., Any], right: int) -> None:
    spec = _SPECS[name][0]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    inputs = (x,) if name in ("scan", "map") else (x, torch.tensor(3))
    judgement = opassay.judge(kernel, traced_once(spec), inputs, questions=["FWD:given", "VJP:grad"], seed=0)
    assert judgement.verdict == ("accepted" if right else "rejected"), str(judgement)


def test_a_branch_that_hangs_on_floating_numbers_is_not_read() -> None:
    def spec(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda y: y * 2, lambda y: y * 3, (x,))

    judgement = opassay.judge(spec, spec, (torch.ones(3),), questions=["FWD:given"])
    assert "depends on values of floating tensors" in judgement.error


def test_a_map_that_writes_to_its_operands_is_not_read() -> None:
    with pytest.raises(NotImplementedError, match="mutated_arg_indices='0': a function under map must not write"):
        LOOPS[map_impl](torch.exp, [torch.ones(2)], [], mutated_arg_indices="0")
