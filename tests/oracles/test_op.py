"""What a declaration says of its arguments, `*args` included."""

from __future__ import annotations

from typing import Any

import torch

from opassay.oracles.op.declaration import Op, Promises, to_array


def _variadic(scale: Any, *rest: Any) -> tuple[Any, ...]:
    return tuple(scale * x for x in rest)


def _op(*differentiable: str) -> Op:
    promises = Promises(lambda args: ())
    return Op("scaled", _variadic, {}, lambda dtype, kind: None, differentiable, promises, mutates=("rest",))


def test_each_of_any_number_of_arguments_has_the_one_declared_name() -> None:
    op = _op("rest")
    assert op.arguments == ("scale", "rest")
    assert [op.argument(i) for i in range(4)] == ["scale", "rest", "rest", "rest"]
    assert [op.label(i) for i in range(3)] == ["scale", "rest[0]", "rest[1]"]


def test_positions_of_any_number_of_arguments() -> None:
    t = torch.ones(1)
    assert _op("rest").differentiable_positions((t, t, 3, t)) == (1, 3)
    assert _op("scale").differentiable_positions((t, t, t)) == (0,)
    assert _op().mutated_positions((t, t, t)) == (1, 2)


def test_zeros_without_memory_are_read_as_zeros() -> None:
    """Forward AD makes ZeroTensors; torch's own array of one that is not contiguous is memory that nobody wrote."""
    for _ in range(20):
        tensors = [torch.full((count,), torch.nan, dtype=torch.float64) for count in (7, 14, 7, 14)]
        del tensors  # memory that is handed out again has these numbers in it
        zeros = torch._efficientzerotensor((7, 2), dtype=torch.float64).select(1, 0)
        assert to_array(zeros).tolist() == [0.0] * 7
