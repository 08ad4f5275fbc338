"""Memory of a size that nobody has."""

from __future__ import annotations

import mmap
import resource

import pytest
import torch

from opassay.oracles.machine.reserved import repeat_rows, rows_in_pages, untouched


@pytest.mark.parametrize("columns", [1, 3, 96, 1000, 1024, 70_000])
def test_rows_are_there_again_and_again(columns: int) -> None:
    count = rows_in_pages([4 * columns], 2**20)
    assert count * 4 * columns % mmap.PAGESIZE == 0
    assert all((count * 4 * columns) % 2**power or 2**power % (count * 4 * columns) for power in range(31, 37))
    rows = torch.arange(count * columns, dtype=torch.int32).view(count, columns)
    many = repeat_rows(rows, 2**31 // columns + 50)
    assert many.shape == (2**31 // columns + 50, columns)
    numbers = [0, count - 1, count, 2**30 // columns, len(many) - 1]
    assert torch.equal(many[numbers], rows[[number % count for number in numbers]])
    assert 2**32 * 4 % (count * 4 * columns)


def test_several_tensors_have_as_many_rows() -> None:
    count = rows_in_pages([4, 12, 8192], 2**20)
    assert all(count * size % mmap.PAGESIZE == 0 for size in (4, 12, 8192))


def test_memory_that_nobody_touches_costs_nothing() -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    zeros = untouched(2**33, torch.float32)
    zeros[2**32] = 1
    assert [float(zeros[i]) for i in (0, 2**32, 2**33 - 1)] == [0, 1, 0]
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**16
