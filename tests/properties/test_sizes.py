"""SIZE: faults that begin at a threshold of one dim, or at an address, and which sizes a cell says that it saw."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch

from opassay import Cell, Code, Draft, Op, Outcome, Settings, custom_kernel, run_cell
from opassay.impl.losses.cross_entropy import kernels_cpu
from opassay.properties.catalog.loading import load_op
from opassay.properties.declaring import strategies
from opassay.properties.engine import cells, sizes
from opassay.properties.engine.draft_filters import longest
from opassay.properties.picking import drafting

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


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("size", [1024, 1025])
def test_a_fault_of_two_rows_of_a_size_is_refused_whatever_the_seed(size: int, seed: int) -> None:
    op = off_where("layer_norm", lambda x, s, *_: x.numel() > size and torch.Size(s).numel() == size)
    assert run_cell(cell(op), Settings("commit", seed, simpler=False), op).outcome == Outcome.FAIL


def without_a_largest(x: Tensor, dim: int, to: torch.dtype | None = None) -> Tensor:
    """Log-softmax of which the smallest number of a row is subtracted first, and not the largest.

    It is right where no exponential overflows in float32.
    """
    centred = x.double() - x.detach().amin(dim, keepdim=True)
    exponentials = centred.exp().masked_fill(centred > math.log(torch.finfo(torch.float32).max), math.inf)
    return (centred - exponentials.sum(dim, keepdim=True).log()).to(to or x.dtype)


def overflows_where(name: str, wrong: Callable[..., Any], when: Callable[..., bool]) -> Op:
    """The op, computed in a way that overflows where `when` holds of the arguments."""
    declared = load_op(name)
    right = declared.subjects["opassay"]

    def faulty(*args: Any) -> Any:
        return wrong(*args) if when(*args) else right(*args)

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty, "right": right})
    return fault


def is_filled(x: Tensor, *_: Any) -> bool:
    return x.numel() >= 512


#: op -> what overflows where numbers are far apart, which those of a benign sample are not, and of which inputs
OVERFLOWS: dict[str, tuple[Callable[..., Any], Callable[..., bool]]] = {
    "softmax": (lambda x, dim, to: without_a_largest(x, dim, torch.float64).exp().to(to or x.dtype), is_filled),
    "log_softmax": (without_a_largest, is_filled),
    "log_sigmoid": (lambda x: -torch.log1p(torch.exp(-x)), is_filled),
}


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_what_overflows_at_a_size_alone_is_refused_in_brief(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    wrong, when = OVERFLOWS[name]
    op = overflows_where(name, wrong, when)
    for seed in range(2):
        verdict = run_cell(cell(op), Settings("brief", seed, simpler=False), op)
        assert verdict.outcome == Outcome.FAIL, verdict.reason
    monkeypatch.setattr(strategies, "OUTLYING", "none")
    verdict = run_cell(cell(op), Settings("brief", 2, simpler=False), op)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


@pytest.mark.slow
def test_narrow_rows_far_apart_are_drawn_in_brief(monkeypatch: pytest.MonkeyPatch) -> None:
    right = kernels_cpu._log_probabilities

    def faulty(x: Tensor, dim: int) -> Tensor:
        return without_a_largest(x, dim) if kernels_cpu._is_narrow(x, dim) else right(x, dim)

    monkeypatch.setattr(kernels_cpu, "_log_probabilities", faulty)
    op = load_op("cross_entropy")
    for seed in range(3):
        cells_of_op = (cell(op, "opassay", dtype) for dtype in ("float32", "bfloat16", "float16"))
        outcomes = (run_cell(one, Settings("brief", seed, simpler=False), op).outcome for one in cells_of_op)
        assert Outcome.FAIL in outcomes


def test_an_op_of_which_numbers_far_apart_cannot_be_judged_is_verified_still() -> None:
    def exponentials(x: Tensor) -> Tensor:
        return x.exp().sum().log()

    op = custom_kernel(exponentials, exponentials, {"x": ("N", "n")})
    for seed in range(3):
        verdict = run_cell(cell(op, "opassay"), Settings("brief", seed), op)
        assert verdict.outcome == Outcome.VERIFIED, verdict.reason


def of_sizes(choice: sizes.Sizes, drafts: Iterable[Draft]) -> list[Draft]:
    """The drafts that are judged."""
    judged: list[Draft] = []
    for draft in drafts:
        if choice.wants(draft):
            judged.append(draft)
            if not choice.took(draft, draft.sample(0)):
                break
    return judged


#: op -> the axes of which rows are made; of the others a row is.
ROWS = {
    "layer_norm": ("rows",),
    "softmax": ("rows",),
    "cross_entropy": ("batch", "positions", "targets of a mean"),
    "group_norm": ("n", "groups"),
    "batch_norm": ("channels",),
    "cross_map_lrn2d": ("images", "positions"),
}


@pytest.mark.slow
@pytest.mark.parametrize("op_name", ROWS)
def test_of_each_band_of_sizes_there_is_a_sample_of_two_rows_whatever_the_seed(op_name: str) -> None:
    op = load_op(op_name)
    judge = cells.open_cell(cell(op, "opassay"), light=True).judge
    wanted = {band for band in strategies.SIZE_BANDS if band[0] < 2**17}
    for seed in range(4):
        pool = drafting.drafts(op, "float32", "sizes", seed)
        judged = of_sizes(sizes.Sizes(judge, 24), (one.draft for one in pool.after(0)))
        vectors = [each for each in judged if math.prod(each.extents.values()) == longest(each)[1] >= 2**16]
        assert len(vectors) <= 1
        assert len(judged) == 24 + len(vectors)
        bands = set()
        for draft in (each for each in judged if each not in vectors):
            axis, extent = longest(draft)
            rows = math.prod(draft.extents.get(name, 1) for name in ROWS[op_name])
            assert rows > 1, draft.extents
            assert axis not in ROWS[op_name] or math.prod(draft.extents.values()) > extent, draft.extents
            bands |= {band for band in wanted if extent in band}
        assert bands == wanted


def test_a_long_axis_is_alone_only_where_no_draft_has_another_beside_it() -> None:
    op = load_op("layer_norm")
    judge = cells.open_cell(cell(op, "opassay"), light=True).judge
    alone, beside = (Draft(lambda rng: (), "benign", {"rows": rows, "row": 1024}) for rows in (1, 2))
    assert of_sizes(sizes.Sizes(judge, 1), [alone, *[beside] * 3]) == [beside]
    assert of_sizes(sizes.Sizes(judge, 1), [beside, *[alone] * 400])[0] is beside
    assert of_sizes(sizes.Sizes(judge, 1), [alone] * 400) == [alone]


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


@pytest.mark.slow
def test_a_cell_says_which_sizes_it_saw() -> None:
    verdict = run_cell(Cell("layer_norm", "SIZE", "float32", "cpu", "opassay"), Settings("commit"))
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    assert "row of " in verdict.reason
    assert "rows of " in verdict.reason
    for extent in ("65536", "1024", "1025", "4096"):
        assert extent in verdict.reason
