"""COMP finds what a compiler took from one call for all of them, and what only compiled code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import Op, Sample
from opassay.properties.checks.compiling.compilation import check_compilation
from opassay.properties.checks.compiling.variants import change_sizes, change_values
from tests.oracles.planted_ops import declared, judge, sample, scaled, violation

FACTOR = 2.0
ROWS = 4


def _times(x: Tensor, w: Tensor, factor: float, flip: bool) -> Tensor:
    """The right op: x w times a factor, with the other sign if asked."""
    return scaled(x, w) * (-factor if flip else factor)


def _op(subject: Callable[..., Any]) -> Op:
    return declared(subject, reference=lambda x, w, factor, flip: x * w * (-factor if flip else factor))


def _sample(seed: int = 1, dtype: str = "float32") -> Sample:
    case = sample(seed, dtype, (ROWS,), 5)
    return case.with_args([*case.args, FACTOR, False])


def _when_compiled(other: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: other(*args) if torch.compiler.is_compiling() else _times(*args)


def _when_exported(other: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args: other(*args) if torch.compiler.is_exporting() else _times(*args)


def _broken_graph(*args: Any) -> Tensor:
    torch._dynamo.graph_break()
    return _times(*args)


def _mean_of_four(x: Tensor, w: Tensor, factor: float, flip: bool) -> Tensor:
    """A sum over the rows divided by how many there were in the sample."""
    return _times(x, w, factor, flip) * (torch.ones_like(x[:, :1]).sum() / ROWS)


class _SumsFourRows(torch.autograd.Function):
    """x w, whose gradient in w is a sum over as many rows as there were in the sample."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor]:
        x, w = ctx.saved_tensors
        return g * w, (g * x)[:ROWS].sum(0)


_sums_four_rows: Callable[..., Tensor] = _SumsFourRows.apply

FAULTS: dict[str, tuple[Callable[..., Any], str, str]] = {
    "a number is baked in": (
        _when_compiled(lambda x, w, factor, flip: _times(x, w, FACTOR, flip)), "VALUE", "factor=",
    ),
    "a truth value is baked in": (
        _when_compiled(lambda x, w, factor, flip: _times(x, w, factor, False)), "VALUE", "flip=True",
    ),
    "a size is baked in": (_when_compiled(_mean_of_four), "VALUE", "then axes of 4 elements with 8"),
    "specialises on a size": (
        _when_compiled(lambda x, *rest: _times(x.clone() if x.shape[0] == ROWS else x, *rest)), "RAISED", "Constraint",
    ),
    "compiled anew for a size": (
        _when_compiled(lambda x, *rest: _times(x.clone() if x.shape[0] > 6 else x, *rest)),
        "ATTRIBUTE", "compiled anew for axes of",
    ),
    "the gradient knows a size": (
        _when_compiled(lambda x, w, factor, flip: _sums_four_rows(x, w) * (-factor if flip else factor)),
        "VALUE", "then axes of 4 elements with 8, vjp",
    ),
    "no gradient where compiled": (
        _when_compiled(lambda x, w, *rest: _times(x, w.detach(), *rest)), "VALUE", "d_w",
    ),
    "another dtype where compiled": (
        _when_compiled(lambda *args: _times(*args).double()), "ATTRIBUTE", "has dtype float64",
    ),
    "a graph break": (_broken_graph, "RAISED", "raised"),
    "a size is baked into the export": (_when_exported(_mean_of_four), "VALUE", "exported and reloaded, then axes"),
    "another value where exported": (_when_exported(lambda *args: _times(*args) * 1.001), "VALUE", "exported"),
}  # fmt: skip


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, code, text = FAULTS[name]
    result = violation(check_compilation, _op(subject), _sample())
    assert result is not None
    assert result.code.name == code, result.message
    assert text in result.message


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_the_right_op_passes(dtype: str) -> None:
    assert judge(check_compilation, _op(_times), _sample(2, dtype), dtype).judged > 100


@pytest.mark.slow
def test_an_op_that_promises_no_single_graph_is_told_how_many_there_were() -> None:
    op = _op(_broken_graph)
    tally = judge(check_compilation, op.changed(one_graph=False), _sample())
    assert tally.notes == ["1 graph break"]


def test_a_size_that_an_op_asserts_is_told_and_no_fault() -> None:
    def of_five_columns(x: Tensor, *rest: Any) -> Tensor:
        assert x.shape[1] == 5, f"need 5 columns, not {x.shape[1]}"
        return _times(x, *rest)

    tally = judge(check_compilation, _op(of_five_columns), _sample())
    assert tally.notes == ["another size was not asked: AssertionError need 5 columns, not 10"]
    wrong = _when_compiled(lambda x, *rest: _mean_of_four(x, *rest) if x.shape[1] == 5 else 1 / 0)
    result = violation(check_compilation, _op(lambda *args: of_five_columns(*args) * 0 + wrong(*args)), _sample())
    assert result is not None
    assert "then axes of 4 elements with 8" in result.message


def test_other_arguments_are_ones_that_the_op_takes() -> None:
    judge = Judge(_op(_times), "opassay", contract("float32"))
    shapes = {tuple(tuple(a.shape) for a in size.args[:2]) for size in change_sizes(judge, _sample())}
    assert shapes == {((4, 10), (10,)), ((8, 5), (5,)), ((12, 15), (15,))}
    changed = [args[2:] for _, args in change_values(judge, _sample(), apart=False)]
    assert changed == [(2.25, True)]
    assert [args[2:] for _, args in change_values(judge, _sample(), apart=True)] == [(2.25, False), (FACTOR, True)]
