"""Blocks of a cluster: its barrier, shared memory of each other, and copies to several of them."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.block_order import BlockOrder
from opassay.oracles.machine.ptx.chunk import Geometry
from opassay.oracles.machine.ptx.clusters import whole_clusters
from opassay.oracles.machine.ptx.cuda_source import ptx_kernel
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.running import at, entry, run

_SHARED = ".shared .align 128 .b8 tile[1024];\n.shared .align 8 .b8 gate[16];\n"
_REGISTERS = (
    ".reg .b32 %g;\n.reg .b32 %rank;\n.reg .b32 %other;\n.reg .b32 %far;\n.reg .b32 %near;\n.reg .b64 %wide;\n"
    ".reg .pred %done;\n.reg .b16 %mask;\n"
)
#: Where a thread's word is in its own block, %near, and in the other block of the cluster, %far.
_PLACES = """
mov.u32 %rank, %cluster_ctarank;
xor.b32 %other, %rank, 1;
mov.b32 %r2, tile;
mad.lo.s32 %near, %t, 4, %r2;
mapa.shared::cluster.u32 %far, %near, %other;
mad.lo.s32 %r9, %c, 1000, %t;
mov.b32 %r1, -1;
"""
_ARRIVE, _WAIT = "barrier.cluster.arrive.aligned;\n", "barrier.cluster.wait.aligned;\n"
_RELAXED, _FENCE = "barrier.cluster.arrive.relaxed;\n", "fence.acq_rel.cluster;\n"
_PUT_NEAR, _GET_NEAR = "st.shared.b32 [%near], %r9;\n", "ld.shared.b32 %r1, [%near];\n"
_PUT_FAR, _GET_FAR = "st.shared::cluster.b32 [%far], %r9;\n", "ld.shared::cluster.b32 %r1, [%far];\n"
_ANSWER = "mad.lo.s32 %r8, %c, 64, %t;\n" + at(0, 4, "%r8") + "st.global.b32 [%rd60], %r1;\n"


def _exchange(*steps: str, order: str = "together", blocks: int = 4) -> list[int]:
    """What each thread of some clusters of two blocks has at the end."""
    y = torch.zeros(64 * blocks, dtype=torch.int32)
    body = _PLACES + "".join(steps) + _ANSWER
    on = hardware.Hardware(order=order)
    run(entry(body, 1, _REGISTERS, _SHARED), [y], blocks=blocks, warps=2, on=on, cluster=(2,))
    return [int(n) for n in y]


#: What each thread of four blocks has from the other block of its cluster.
_FROM_OTHER = [1000 * (block ^ 1) + thread for block in range(4) for thread in range(64)]


@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize(
    "steps",
    [
        (_PUT_NEAR, _ARRIVE, _WAIT, _GET_FAR, _ARRIVE, _WAIT),
        (_PUT_FAR, _ARRIVE, _WAIT, _GET_NEAR),
        (_PUT_NEAR, _FENCE, _RELAXED, _WAIT, _GET_FAR, _ARRIVE, _WAIT),
        (_PUT_NEAR, _ARRIVE, _WAIT, "cvt.u64.u32 %wide, %near;\ncvta.shared.u64 %wide, %wide;\n",
         "mapa.u64 %wide, %wide, %other;\nld.b32 %r1, [%wide];\n", _ARRIVE, _WAIT),
        ("st.shared.b32 [%near], 0;\n", _ARRIVE, _WAIT, "red.shared::cluster.add.u32 [%far], %r9;\n", _ARRIVE, _WAIT,
         _GET_NEAR),
    ],
)  # fmt: skip
def test_a_cluster_s_barrier_orders_what_blocks_do(steps: tuple[str, ...], order: str) -> None:
    assert _exchange(*steps, order=order) == _FROM_OTHER


@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize(
    "steps",
    [
        (_PUT_NEAR, _GET_FAR, _ARRIVE, _WAIT),
        (_PUT_NEAR, "bar.sync 0;\n", _GET_FAR, _ARRIVE, _WAIT),
        (_PUT_NEAR, _RELAXED, _WAIT, _GET_FAR, _ARRIVE, _WAIT),
        (_ARRIVE, _PUT_NEAR, _WAIT, _GET_FAR, _ARRIVE, _WAIT),
        (_PUT_NEAR, _ARRIVE, _WAIT, _GET_FAR, "bar.sync 0;\nst.shared.b32 [%near], 7;\n", _ARRIVE, _WAIT),
        (_PUT_FAR, "bar.sync 0;\n", _GET_NEAR, _ARRIVE, _WAIT),
        (_PUT_FAR, _PUT_NEAR, _ARRIVE, _WAIT),
    ],
)  # fmt: skip
def test_what_no_barrier_of_the_cluster_orders_is_a_race(steps: tuple[str, ...], order: str) -> None:
    with pytest.raises(Violation) as error:
        _exchange(*steps, order=order, blocks=2)
    assert error.value.code is Code.RACE
    assert all(f"of block {number}" in str(error.value) for number in (0, 1)), str(error.value)


def test_blocks_of_several_clusters_are_named() -> None:
    late = "setp.lt.u32 %p1, %c, 400;\n@%p1 bra $fine;\n" + _PUT_NEAR + _GET_FAR + "$fine:\n"
    with pytest.raises(Violation, match=r"thread \d+ of block 40[01] reads .* of block 40[01] wrote"):
        _exchange(late, _ARRIVE, _WAIT, blocks=402)


@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize(
    ("steps", "code", "words"),
    [
        ((_WAIT,), Code.DIVERGENT, "waits and has not arrived"),
        ((_ARRIVE, _ARRIVE), Code.DIVERGENT, "arrives again and has not waited"),
        (("setp.eq.s32 %p1, %t, 3;\n@%p1 barrier.cluster.arrive.aligned;\n",), Code.DIVERGENT, "does not come with"),
        (("setp.eq.s32 %p1, %rank, 1;\n@%p1 bra $loop;\n", _ARRIVE, _WAIT, "$loop:\nbar.sync 1, 96;\n"),
         Code.DIVERGENT, "waits at a barrier that others do not come to"),
        (("mapa.shared::cluster.u32 %far, %near, 2;\n",), Code.UNDEFINED, "names block 2 of a cluster of 2"),
        (("add.s32 %far, %far, 1024;\n", _GET_FAR), Code.OUT_OF_BOUNDS, "touches 4 bytes of shared memory"),
        (("add.s32 %far, %far, 1;\n", _GET_FAR), Code.MISALIGNED, "no multiple of 4"),
        # An address of another block is none of one's own.
        (("ld.shared.b32 %r1, [%far];\n",), Code.OUT_OF_BOUNDS, "touches 4 bytes of shared memory"),
        (("setp.eq.s32 %p1, %rank, 1;\n@%p1 exit;\n", "add.s32 %r7, %t, 0;\n" * 3, _ARRIVE, _WAIT, _GET_FAR),
         Code.UNDEFINED, "block 1, which has ended"),
        (("bar.sync %t, 32;\n",), Code.UNDEFINED, "names none of 16 barriers"),
    ],
)  # fmt: skip
def test_what_a_cluster_does_not_allow(steps: tuple[str, ...], code: Code, words: str, order: str) -> None:
    with pytest.raises(Violation, match=words) as error:
        _exchange(*steps, order=order, blocks=2)
    assert error.value.code is code


def test_blocks_know_their_places_in_clusters() -> None:
    names = ["cluster_ctaid.x", "cluster_ctaid.y", "cluster_ctaid.z", "clusterid.x", "clusterid.y", "clusterid.z",
             "cluster_ctarank", "cluster_nctarank", "cluster_nctaid.x", "cluster_nctaid.y", "nclusterid.x",
             "nclusterid.y", "nclusterid.z"]  # fmt: skip
    grid, cluster = (4, 6, 2), (2, 3, 1)
    body = "mov.u32 %r2, %ctaid.y;\nmov.u32 %r3, %ctaid.z;\nmad.lo.s32 %r4, %r3, 6, %r2;\nmad.lo.s32 %r4, %r4, 4, %c;\n"
    body += f"mul.lo.s32 %r4, %r4, {4 * len(names)};\ncvt.u64.u32 %rd9, %r4;\nadd.s64 %rd9, %rd9, %rd0;\n"
    body += "".join(f"mov.u32 %r5, %{name};\nst.global.b32 [%rd9+{4 * i}], %r5;\n" for i, name in enumerate(names))
    y = torch.zeros(2, 6, 4, len(names), dtype=torch.int32)
    run(entry(body, 1), [y], grid=grid, block=(1,), cluster=cluster)
    for z, row, column in itertools.product(range(2), range(6), range(4)):
        expected = [column % 2, row % 3, 0, column // 2, row // 3, z, column % 2 + row % 3 * 2, 6, 2, 3, 2, 2, 2]
        assert y[z, row, column].tolist() == expected


def test_chosen_blocks_come_with_their_clusters() -> None:
    geometry = Geometry("kernel", (4, 4, 1), (32, 1, 1), 0, (2, 2, 1))
    assert whole_clusters(geometry, np.array([15, 1])).tolist() == [0, 1, 4, 5, 10, 11, 14, 15]
    assert sorted(whole_clusters(geometry, np.arange(16))) == [*range(16)]


#: A barrier in memory of each block, for so many arrivals, that all blocks know of.
_GATE = "mov.b32 %g, gate;\nsetp.eq.s32 %p1, %t, 0;\n@%p1 mbarrier.init.shared::cta.b64 [%g], {count};\n"
_GATE += "fence.mbarrier_init.release.cluster;\n" + _RELAXED + _WAIT
_STAY = _ARRIVE + _WAIT
_TELL = "mapa.shared::cluster.u32 %r3, %g, %other;\nmbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r3];\n"
_TOLD = "w:\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %done, [%g], 0;\n@!%done bra w;\n"


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_threads_arrive_at_barriers_of_other_blocks(order: str) -> None:
    gate, alone = _GATE.format(count=64), _GATE.format(count=1)
    assert _exchange(gate, _PUT_FAR, _TELL, _TOLD, _GET_NEAR, _STAY, order=order) == _FROM_OTHER
    # One thread tells for all of its block, behind a barrier of that.
    for_all = "bar.sync 0;\n@%p1 " + _TELL.replace("\n", "\n@%p1 ", 1)
    assert _exchange(alone, _PUT_FAR, for_all, _TOLD, _GET_NEAR, _STAY, order=order) == _FROM_OTHER
    for steps in (
        (gate, _TELL, _PUT_FAR, _TOLD, _GET_NEAR, _STAY),
        (gate, _PUT_FAR, _TELL, _GET_NEAR, _STAY),
        (alone, _PUT_FAR, for_all.replace("bar.sync 0;\n", ""), _TOLD, _GET_NEAR, _STAY),
    ):
        with pytest.raises(Violation) as error:
            _exchange(*steps, order=order)
        assert error.value.code is Code.RACE
    with pytest.raises(Violation, match=r"finds no barrier at byte 1024 of shared memory of block [01]"):
        _exchange(_GATE.format(count=1).partition("setp")[0], _TELL, order=order, blocks=2)


_SEND = "mapa.shared::cluster.u32 %r3, %g, %other;\n@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%g], {bytes};\n"
_SEND += "st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%far], %r9, [%r3];\n"


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_stores_to_other_blocks_are_there_after_the_wait(order: str) -> None:
    gate, send = _GATE.format(count=1), _SEND.format(bytes=256)
    assert _exchange(gate, send, _TOLD, _GET_NEAR, _STAY, order=order) == _FROM_OTHER
    vector = "{\n.reg .v2 .s32 pair;\nmov.s32 pair.x, %r9;\nmov.s32 pair.y, 5;\n"
    vector += send.replace("256", "512").replace("bytes.b32", "bytes.v2.s32").replace("%r9", "pair") + "}\n"
    wide = "mad.lo.s32 %near, %t, 4, %near;\nmapa.shared::cluster.u32 %far, %near, %other;\n"
    assert _exchange(gate, wide, vector, _TOLD, _GET_NEAR, _STAY, order=order) == _FROM_OTHER
    second = _TOLD + "ld.shared.b32 %r1, [%near+4];\n"
    assert _exchange(gate, wide, vector, second, _STAY, order=order) == [5] * 256
    wrong = [((gate, send, _GET_NEAR), Code.RACE), ((gate, send, "bar.sync 0;\n", _GET_NEAR), Code.RACE),
             ((gate, _SEND.format(bytes=252), _TOLD, _GET_NEAR), Code.DIVERGENT)]  # fmt: skip
    for steps, code in wrong:
        with pytest.raises(Violation) as error:
            _exchange(*steps, _STAY, order=order)
        assert error.value.code is code
    with pytest.raises(Unsupported, match="a barrier in another block than the place"):
        _exchange(gate, send.replace("[%r3]", "[%g]"), order=order)


#: Block 0 copies 64 words to all blocks of a mask, each of which expects them.
_SPREAD = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%g], 256;\nmov.b16 %mask, {mask};\n"
_SPREAD += "setp.eq.and.s32 %p2, %rank, 0, %p1;\n@%p2 cp.async.bulk.shared::cluster.global"
_SPREAD += ".mbarrier::complete_tx::bytes.multicast::cluster [%r2], [%rd1], 256, [%g], %mask;\n"


def _spread(*steps: str, mask: int = 3, order: str = "together") -> list[int]:
    x, y = torch.arange(64, dtype=torch.int32) + 500, torch.zeros(128, dtype=torch.int32)
    body = _PLACES + _GATE.format(count=1) + _SPREAD.format(mask=mask) + "".join(steps) + _STAY + _ANSWER
    on = hardware.Hardware(order=order)
    run(entry(body, 2, _REGISTERS, _SHARED), [y, x], blocks=2, warps=2, on=on, cluster=(2,))
    return [int(n) for n in y]


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_copy_goes_to_all_blocks_of_its_mask(order: str) -> None:
    assert _spread(_TOLD, _GET_NEAR, order=order) == [*range(500, 564)] * 2
    for mask, steps, code in (
        (3, (_GET_NEAR,), Code.RACE), (1, (_TOLD, _GET_NEAR), Code.DIVERGENT), (2, (_TOLD, _GET_NEAR), Code.DIVERGENT),
        (7, (_TOLD, _GET_NEAR), Code.UNDEFINED), (3, (_PUT_FAR, _TOLD, _GET_NEAR), Code.RACE),
    ):  # fmt: skip
        with pytest.raises(Violation) as error:
            _spread(*steps, mask=mask, order=order)
        assert error.value.code is code


def test_kernels_say_their_clusters_or_the_launch_does() -> None:
    text = entry(_PLACES + _PUT_FAR + _ARRIVE + _WAIT + _GET_NEAR + _ANSWER, 1, _REGISTERS, _SHARED)
    fixed = text.replace(")\n{", ")\n.explicitcluster\n.reqnctapercluster 2, 1, 1\n{", 1)
    for source, cluster in ((text, 2), (fixed, 1), (fixed, (2, 1))):
        y = torch.zeros(256, dtype=torch.int32)
        ptx_kernel(source, grid=4, block=64, cluster=cluster)(y)
        assert y.tolist() == _FROM_OTHER
    for source, grid, cluster, words in (
        (fixed, 4, 4, "the kernel needs"), (text, 3, 2, "multiples of the cluster"), (text, 32, 32, "from 1 to 16"),
        (text, 4, 0, "from 1 to 16"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            ptx_kernel(source, grid=grid, block=64, cluster=cluster)(torch.zeros(256, dtype=torch.int32))


def test_what_orders_nothing_later_does_not_hide_what_did() -> None:
    order, warps, stamps = BlockOrder(32, within=True), np.array([0]), np.array([1])
    order.pass_through(warps)  # at 1
    order.pass_through(warps)  # at 2
    order.pass_through(warps, releases=False)
    order.pass_through(np.array([1]), releases=False)
    assert order.comes_before(warps, stamps, np.array([1])).tolist() == [True]
    assert order.comes_before(warps, np.array([2]), np.array([1])).tolist() == [False]


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_predicates_of_any_name_may_be_written_in_some_threads_first(order: str) -> None:
    y = torch.zeros(64, dtype=torch.int32)
    body = "setp.lt.s32 %p1, %t, 40;\nmov.b32 %r1, 1;\n@%p1 bra $some;\nbra $end;\n$some:\n{\n.reg .pred odd;\n"
    body += "and.b32 %r2, %t, 1;\nsetp.eq.s32 odd, %r2, 1;\n@odd bra $add;\nbra $end;\n$add:\n}\n"
    body += "add.s32 %r1, %r1, 10;\n$end:\n" + at(0, 4) + "st.global.b32 [%rd60], %r1;\n"
    run(entry(body, 1), [y], warps=2, on=hardware.Hardware(order=order))
    assert y.tolist() == [11 if thread < 40 and thread % 2 else 1 for thread in range(64)]
