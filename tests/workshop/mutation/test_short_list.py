"""The short list: mutants of every family of ops, each refused by the question that is there for such a mistake."""

from __future__ import annotations

import functools
from typing import NamedTuple

import pytest

from opassay import Cell, Settings, run_cell
from workshop.mutation import campaign
from workshop.mutation.mutants import Mutant, mutants_of
from workshop.mutation.planting import plant_mutant
from workshop.mutation.trial import FEW, KILLING


class Short(NamedTuple):
    """A mutant by its place and texts, and the cell that refuses it."""

    file: str
    function: str
    old: str
    new: str
    op: str
    code: str
    dtype: str = "float32"

    @property
    def cell(self) -> Cell:
        return Cell(self.op, self.code, self.dtype, "cpu", "opassay")


_NLL, _LRN = "losses/nll_loss/expressions.py", "response_norm/expressions.py"
_NORM = "norms/expressions.py"
_RETURNED = "g * at.p0 - at.kappa * (at.a * at.mirrored(g * at.a * at.p1))"
LIST = (
    Short("softmax/expressions.py", "moved_output", "t - total(p * t, dim)", "t", "softmax", "JVP"),
    Short("softmax/expressions.py", "softmax_gradient", "total(p * g, dim)", "p * g", "softmax", "ORD2"),
    Short("softmax/kernels_cpu.py", "forward_kernel.<locals>.kernel", "dtype is None", "dtype is not None", "softmax",
          "FWD"),
    Short("softmax/rules.py", "_batched_softmax", "args.dim + 1", "args.dim", "log_softmax", "VMAP"),
    Short(_NORM, "Row.centre", "t - self.along(self.bar(t))", "t + self.along(self.bar(t))", "layer_norm", "JVP"),
    Short(_NORM, "row_statistics", "var + eps", "var", "layer_norm", "ORD2"),
    Short("norms/kernels_cpu/operands.py", "normalize_single", "mean - mean", "mean + mean", "layer_norm", "FWD"),
    Short("norms/kernels_cpu/layer_norm.py", "layer_norm", "weight.float()", "weight", "layer_norm", "FWD",
          "bfloat16"),
    Short(_NLL, "Form.value", "1.0 - self.smoothing", "1.0", "cross_entropy", "ORD2"),
    Short(_NLL, "Form.to_weight", "out * (1.0 - self.smoothing)", "out", "cross_entropy", "VJP"),
    Short(_LRN, "images_gradient", _RETURNED, "g * at.p0", "cross_map_lrn2d", "ORD2"),
    Short(_LRN, "_base", "-beta", "beta", "cross_map_lrn2d", "JVP"),
    Short("pointwise/log_sigmoid.py", "_curved", "-x", "x", "log_sigmoid", "ORD2"),
    Short("pointwise/log_sigmoid.py", "_curved", "-_backward(_backward(weight, x, buffer), -x, buffer)",
          "_backward(_backward(weight, x, buffer), -x, buffer)", "log_sigmoid_backward", "VJP"),
    Short("pointwise/log_sigmoid.py", "_backward_tangent",
          "(torch.zeros_like(x) if out is None else out).to(args.input.dtype)",
          "torch.zeros_like(x) if out is None else out", "log_sigmoid_backward", "JVP", "bfloat16"),
    Short("pointwise/log_sigmoid.py", "log_sigmoid_backward", "require_tensor(name, 'buffer', buffer)", "pass",
          "log_sigmoid_backward", "ERROR"),
    Short("linalg/trace.py", "_matrices", "grad.new_zeros((*grad.shape, rows, columns))",
          "grad.new_ones((*grad.shape, rows, columns))", "trace", "VJP"),
    Short("linalg/trace.py", "trace", "input.dim() != 2", "False", "trace", "ERROR"),
    Short("linalg/trace.py", "trace", "require_floating_tensor('trace', 'input', input)",
          "require_floating_tensor('input', 'trace', input)", "trace", "ERROR"),
    Short("linalg/trace.py", "<lambda>", "2", "3", "trace", "FAKE"),  # the shape rule, wrong for batches alone
    Short("operator/arguments.py", "require_tensor", "not isinstance(value, Tensor)", "False", "trace", "ERROR"),
    Short("operator/batching.py", "one_more_dim", "0", "1", "trace", "VMAP"),
)  # fmt: skip


@functools.cache
def _mutants(file: str) -> list[Mutant]:
    return mutants_of(file, (campaign.folder() / file).read_text())


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("short", LIST, ids=lambda short: f"{short.function} {short.new}"[:60])
def test_mutant_is_refused(short: Short) -> None:
    results = [m for m in _mutants(short.file) if (m.function, m.old, m.new) == short[1:4]]
    assert results, "no such mutant of the present text"
    with plant_mutant(results[0]):
        verdict = run_cell(short.cell, Settings("brief", max_examples=FEW, simpler=False))
    assert verdict.outcome in KILLING, verdict.reason


@pytest.mark.parametrize("cell", sorted({short.cell for short in LIST}, key=lambda cell: cell.key)[::5], ids=str)
def test_the_right_op_holds_after_the_mutants_are_gone(cell: Cell) -> None:
    verdict = run_cell(cell, Settings("brief", max_examples=FEW, simpler=False))
    assert verdict.outcome == "verified", verdict.reason
