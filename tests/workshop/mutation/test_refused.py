"""Mistakes of the ops that one question alone sees: planted in the text, each is refused in the cell that is named."""

from __future__ import annotations

import pytest

from opassay import Cell, Outcome, Settings, run_cell
from workshop.mutation.mutants import Mutant, mutants_of
from workshop.mutation.planting import FOLDER, plant_mutant

#: By name: the file, the function, the text there, what stands in its place, and the cell.
MISTAKES: dict[str, tuple[str, str, str, str, tuple[str, str, str]]] = {
    "a gradient lost beside that of a gradient": (
        "softmax/rules.py", "_forward_rules.<locals>.backward", "grad is not None", "False",
        ("log_softmax", "NEEDS", "bfloat16"),
    ),
    "the gradient of a gradient lost beside that of an output": (
        "softmax/rules.py", "_forward_rules.<locals>.backward",
        "op(raised(grad), output, shift, dim, through.dtype) + through",
        "op(raised(grad), output, shift, dim, through.dtype)",
        ("softmax", "NEEDS", "bfloat16"),
    ),
    "a tangent that an argument gets by a write": (
        "function/rules.py", "_with_tangent", "forward_ad.make_dual(primal, tangent)", "primal",
        ("function", "NEEDS", "bfloat16"),
    ),
    "a gradient counted once for every slice": (
        "function/vmapify.py", "_of_one_slice", "cotangent.new_zeros((batch_size, *cotangent.shape))",
        "cotangent.new_ones((batch_size, *cotangent.shape))", ("function", "VJP", "float32"),
    ),
    "a vector cut into pieces": (
        "softmax/kernels_cpu.py", "_half", "axis == dim", "axis != dim", ("log_softmax", "SIZE", "float16"),
    ),
    "pieces along a dim that is not there": (
        "softmax/kernels_cpu.py", "_half", "x.dim() - 1", "x.dim()", ("softmax", "SIZE", "float16"),
    ),
    "strides of a copy, with deterministic algorithms": (
        "softmax/kernels_cpu.py", "_softmax",
        "torch.softmax(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim).contiguous()",
        "torch.softmax(x.movedim(dim, -1).contiguous(), -1).movedim(-1, dim)",
        ("softmax", "WAYS", "float32"),
    ),
    "a wrong count in a message": (
        "losses/nll_loss/kernels_cpu.py", "out_of_range",
        "((index < 0) | (index >= classes)) & (index != ignore_index)", "(index < 0) | (index >= classes)",
        ("cross_entropy", "ERROR", "float32"),
    ),
}  # fmt: skip


def _mutant(file: str, function: str, old: str, new: str) -> Mutant:
    text = (FOLDER / file).read_text(encoding="utf-8")
    return next(m for m in mutants_of(file, text) if (m.function, m.old, m.new) == (function, old, new))


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_refused(name: str) -> None:
    file, function, old, new, (op, code, dtype) = MISTAKES[name]
    with plant_mutant(_mutant(file, function, old, new)):
        verdict = run_cell(Cell(op, code, dtype, "cpu", "opassay"), Settings("brief", simpler=False))
    assert verdict.outcome == Outcome.FAIL, verdict.reason
