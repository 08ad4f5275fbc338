"""SIZE: faults that begin at a threshold of one dim, or at an address, and which sizes a cell says that it saw."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch

from opassay import Cell, Code, Op, Outcome, Settings, run_cell
from opassay.properties.catalog.loading import load_op

Tensor = torch.Tensor


def cell(op: Op, subject: str = "faulty", dtype: str = "float32") -> Cell:
    return Cell(op.name, "SIZE", dtype, "cpu", subject)


def off_where(name: str, when: Callable[..., bool]) -> Op:
    """The op, of whose first output the last element is doubled where `when` holds of the arguments."""
    declared = load_op(name)
    right = declared.subjects["opassay"]

    def faulty(*args: Any) -> Any:
        result = right(*args)
        first = result[0] if isinstance(result, tuple) else result
        if not when(*args) or not first.numel():
            return result
        factors = torch.ones(first.numel(), dtype=first.dtype)
        factors[-1] = 2
        changed = first * factors.reshape(first.shape)
        return (changed, *result[1:]) if isinstance(result, tuple) else changed

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty, "right": right})
    return fault


def with_slopes_off_where(name: str, when: Callable[..., bool]) -> Op:
    """The op, whose values are right and whose gradients by the first argument are doubled where `when` holds."""
    declared = load_op(name)
    right = declared.subjects["opassay"]

    def faulty(*args: Any) -> Any:
        x = args[0]
        return right(2 * x - x.detach(), *args[1:]) if when(*args) else right(*args)

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty, "right": right})
    return fault


def unaligned(tensor: Tensor) -> bool:
    return tensor.data_ptr() % 16 != 0


#: op, profile, and where it is wrong
FAULTS: dict[str, tuple[str, str, Callable[..., bool]]] = {
    "from 65 rows on": ("softmax", "commit", lambda x, dim, to: x.dim() == 2 and dim == -1 and x.shape[0] >= 65),
    "at 1024 elements of a row alone": (
        "layer_norm", "commit", lambda x, s, *_: x.numel() > 1024 and torch.Size(s).numel() == 1024,
    ),
    "odd rows above 512": (
        "log_softmax", "commit", lambda x, dim, to: x.dim() > 0 and x.shape[dim] > 512 and x.shape[dim] % 2 == 1,
    ),
    "from 65536 classes on": ("cross_entropy", "commit", lambda x, *_: x.shape[x.dim() > 1] >= 65_536),
    "from 65536 channels on": ("batch_norm", "commit", lambda x, *_: x.shape[1] >= 65_536),
    "from 4096 positions on": ("group_norm", "commit", lambda x, *_: x[0, 0].numel() >= 4096),
    "from 65536 images on": ("cross_map_lrn2d", "commit", lambda x, *_: x.shape[0] >= 65_536),
    "at an unaligned address": ("log_sigmoid", "brief", unaligned),
    "at one alignment of sixteen": ("softmax", "commit", lambda x, *_: x.data_ptr() // 4 % 16 == 13),
    "a part from 4096 on": ("scatter", "commit", lambda sizes, dim, x: max(x.shape) >= 4096),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_that_begins_at_a_size_or_an_address_is_refused(name: str) -> None:
    op_name, profile, when = FAULTS[name]
    for op in (off_where(op_name, when), with_slopes_off_where(op_name, when)):
        verdict = run_cell(cell(op), Settings(profile, simpler=False), op)
        assert verdict.outcome == Outcome.FAIL, verdict.reason
    right = run_cell(cell(op, "right"), Settings("brief"), op)
    assert right.outcome == Outcome.VERIFIED, right.reason


def test_memory_around_an_operand_is_neither_read_nor_written() -> None:
    declared = load_op("layer_norm")

    def writes(x: Tensor, *rest: Any) -> Any:
        with torch.no_grad():
            if x.storage_offset():
                x.detach().as_strided((1,), (1,), x.storage_offset() - 1).fill_(0)
        return declared.subjects["opassay"](x, *rest)

    op = dataclasses.replace(declared, subjects={"faulty": writes})
    verdict = run_cell(cell(op), Settings("brief", simpler=False), op)
    assert (verdict.outcome, verdict.code) == (Outcome.FAIL, Code.MUTATED), verdict.reason


def test_a_cell_says_which_sizes_it_saw() -> None:
    verdict = run_cell(Cell("layer_norm", "SIZE", "float32", "cpu", "opassay"), Settings("commit"))
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    assert "row of " in verdict.reason
    assert "rows of " in verdict.reason
    for extent in ("65536", "1024", "1025", "4096"):
        assert extent in verdict.reason
