"""Memory of which pages exist when they are touched, and operands by their shapes and strides."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import executor
from opassay.oracles.machine.ptx.account import ACCOUNT
from opassay.oracles.machine.ptx.extents import Extent
from opassay.oracles.machine.ptx.far import FarCall, choose_blocks
from opassay.oracles.machine.ptx.space import Access
from opassay.oracles.machine.ptx.sparse import PAGE, SparseSpace, StorageRegion
from opassay.oracles.verdicts.violation import Code, Violation
from tests.oracles.machine.ptx.running import at, entry, run


def _space(size: int) -> tuple[SparseSpace, np.ndarray]:
    """A storage of so many numbers, behind a guard, of which every second one is an operand's."""
    content = np.arange(size, dtype=np.uint32).view(np.uint8)
    extent = Extent("x", 4096, 4, (size // 2,), (8,))
    return SparseSpace([StorageRegion(4096, content)], [extent], 4096 + content.size + 4096, 1, 32, 0xFF), content


def _access(*addresses: int) -> Access:
    return Access(np.array(addresses), np.arange(len(addresses)), 4, 1, "here")


def test_pages_exist_when_they_are_touched() -> None:
    space, content = _space(1 << 20)
    last = 4096 + content.size - 8
    assert space.load(_access(4096, last))[0].tolist() == [0, (1 << 20) - 2]
    space.store(_access(4104, 8192), [np.array([7, 9], np.uint32)])
    assert sorted(space.changes()) == [4, 8]
    assert len(space._pages) == 4
    assert content[8:12].tolist() != [7, 0, 0, 0]
    space.write_back()
    assert content[8:12].tolist() == [7, 0, 0, 0]


@pytest.mark.parametrize("address", [4100, 0, 4096 - 4, 4096 + (4 << 20) - 4, 4096 + (4 << 20)])
def test_what_no_element_has_is_outside(address: int) -> None:
    space, _ = _space(1 << 20)
    with pytest.raises(Violation) as failure:
        space.load(_access(4096, address))
    assert failure.value.code is Code.OUT_OF_BOUNDS
    assert f"byte {address} of global memory" in failure.value.message


def test_many_pages_are_kept_apart() -> None:
    space, _ = _space(1 << 20)
    addresses = 4096 + 2 * PAGE * np.arange(200)
    for number in range(0, 200, 40):
        some = addresses[number : number + 40]
        space.store(Access(some, np.arange(40) % 32, 4, 1, "here"), [some.astype(np.uint32)])
    loaded = space.load(Access(addresses[:32], np.arange(32), 4, 1, "here"))[0]
    assert loaded.tolist() == addresses[:32].tolist()


@pytest.mark.parametrize("shape", [(5, 7), (2, 3, 4)])
def test_an_extent_holds_what_its_elements_take(shape: tuple[int, ...]) -> None:
    whole = torch.empty(4000, dtype=torch.float16)
    strides = [(40, 3), (2, 17)] if len(shape) == 2 else [(100, 30, 2), (4, 50, 12)]
    for stride in strides:
        tensor = whole.as_strided(shape, stride, 5)
        numbers = np.arange(tensor.numel()).reshape(shape)
        owner = np.full(8000, -1)
        for index in np.ndindex(shape):
            first = 2 * (5 + int(np.dot(index, stride)))
            owner[first : first + 2] = numbers[index]
        extent = Extent.of(tensor)
        everywhere = np.arange(8000)
        assert (extent.holds(everywhere) == (owner >= 0)).all()
        inside = np.flatnonzero(owner >= 0)
        assert (extent.index(inside, 0) == np.unravel_index(owner[inside], shape)[0]).all()
        rows = np.flatnonzero(np.isin(owner, numbers[1]) & (everywhere % 2 == 0))
        assert sorted(extent.places(1).tolist()) == rows.tolist()


def test_elements_over_each_other_are_all_held() -> None:
    tensor = torch.empty(100).as_strided((10, 8), (2, 1))
    assert Extent.of(tensor).holds(np.arange(4 * (9 * 2 + 8))).all()


def test_a_launch_on_sparse_memory_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    body = f"{at(0, 4)}ld.global.b32 %r1, [%rd60];\nadd.s32 %r1, %r1, 3;\nst.global.b32 [%rd60], %r1;"
    x = torch.arange(32, dtype=torch.int32)
    monkeypatch.setattr(executor, "_SPARSE", 0)
    run(entry(body, 1), [x])
    assert x.tolist() == list(range(3, 35))


def test_blocks_are_chosen_at_both_sides_of_where_indices_end() -> None:
    rows = 2**31 // 1000 + 5000
    extents = [Extent("x", 0, 4, (rows, 1000), (4000, 4))]
    assert choose_blocks((256, 1, 1), 128, extents) is None
    blocks = choose_blocks((rows, 1, 1), 128, extents)
    assert blocks is not None
    assert {0, 1, rows - 1} <= {*blocks.tolist()}
    for end in (2**31 // 1000, 2**31 // 4000, 2**32 // 4000):
        assert {end - 2, end + 2} <= {*blocks.tolist()}
    assert (np.diff(blocks) > 0).all()
    tiles = choose_blocks((rows, 3, 2), 128, extents)
    assert tiles is not None
    last = tiles[tiles % rows == rows - 1]
    assert last.tolist() == [rows - 1 + rows * number for number in range(6)]


def test_what_wraps_on_the_way_to_an_address_is_named() -> None:
    call = ACCOUNT.far = FarCall(math.inf)
    body = f"mul.lo.s32 %r1, %t, 1073741824;\nshr.u32 %r2, %r1, 30;\n{at(0, 4, '%r2')}st.global.b32 [%rd60], %t;"
    x = torch.full((32,), -1, dtype=torch.int32)
    try:
        with pytest.raises(Violation):  # threads that differ write one element
            run(entry(body, 1), [x])
        run(entry(f"mul.lo.s32 %r1, %t, 1073741824;\n{at(0, 4)}st.global.b32 [%rd60], %r1;", 1), [x])
        assert not call.wraps
        run(entry(body.replace("1073741824", "536870912").replace("30", "29").replace("%t;", "%r2;"), 1), [x])
    finally:
        ACCOUNT.far = None
    (line,) = call.wraps
    assert "mul.lo.s32: 4 * 536870912 = 2147483648 does not fit into 32 bits" in line


def test_blocks_pass_barriers_beside_memory_of_pages() -> None:
    x, y = torch.arange(float((1 << 20) + 5)), torch.zeros(96)
    copied = f"ld.global.f32 %r1, [%rd60];\nbar.sync 0;\n{at(1, 4, '%r2')}\nst.global.f32 [%rd60], %r1;"
    run(entry(f"mad.lo.u32 %r2, %c, 32, %t;\n{at(0, 4, '%r2')}\n{copied}", 2), [x, y], blocks=3)
    assert torch.equal(y, x[:96])
