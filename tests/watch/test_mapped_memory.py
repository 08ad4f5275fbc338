"""Copies that lie in a file have the bits and strides of their tensors, and their room serves again."""

from __future__ import annotations

import gc
from pathlib import Path

import pytest
import torch

from opassay.oracles.op.bits import same_bits
from opassay.properties.watch.mapped_memory import MappedMemory, note_read

#: Of squares: less than a page, and many pages.
_SIDES = (3, 300)


@pytest.mark.parametrize("side", _SIDES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.bool, torch.int64])
def test_a_copy_has_the_bits_and_the_strides(side: int, dtype: torch.dtype) -> None:
    memory, x = MappedMemory(), torch.randn(side, side, dtype=torch.complex64)
    x = (x if dtype.is_complex else x.real * 100).to(dtype)
    for tensor in (x, x.t(), x[:, ::2], x[1:]):
        copied = memory.copy(tensor)
        assert same_bits(copied, tensor)
        assert copied.stride() == tensor.clone().stride()
    assert same_bits(memory.copy(x.conj()), x.conj().resolve_conj())


def test_a_copy_stays_as_it_was_when_its_tensor_is_written() -> None:
    memory, x = MappedMemory(), torch.zeros(100_000)
    copied = memory.copy(x)
    x.fill_(1)
    assert not copied.any()


def test_room_that_nobody_uses_any_more_is_used_again() -> None:
    memory = MappedMemory()
    first = memory.copy(torch.ones(100))
    start, _ = memory.place_of(first)
    view = first[:10]
    del first
    gc.collect()
    assert memory.nbytes == 448  # 400, in steps of 64
    del view
    gc.collect()
    assert memory.nbytes == 0
    assert memory.place_of(memory.copy(torch.zeros(100))) == (start, (1,))


def test_a_tensor_of_other_memory_is_copied_into_the_file(tmp_path: Path) -> None:
    memory, x = MappedMemory(tmp_path / "tensors"), torch.arange(4.0)
    start, _ = memory.place_of(x)
    assert (tmp_path / "tensors").read_bytes()[start : start + 16] == x.numpy().tobytes()


def _mapped() -> int:
    """Bytes of files that are memory of this process now."""
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("RssFile")]
    return 1024 * int(line.split()[1])


def test_copies_that_were_read_are_no_memory_of_the_process() -> None:
    """A pass over all calls, as for the first NaN, would else have as much of it as the whole recording."""
    memory, part = MappedMemory(), torch.ones(2**22)
    copies = [memory.copy(part) for _ in range(12)]
    before = _mapped()
    assert sum(int(each[-1]) + int(each.sum() > 0) for each in copies) == 24
    assert _mapped() - before > 10 * part.nbytes
    for each in copies:
        assert each[0] == 1
        each.sum()
        note_read(each.nbytes)
    assert _mapped() - before < 6 * part.nbytes
