"""Barriers in memory, and copies of boxes and bytes that they wait for (mbarrier, TMA)."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.executor import Geometry, PlacedLaunch
from opassay.oracles.machine.ptx.parameters import Structure
from opassay.oracles.machine.ptx.tensor_maps import host_map
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.running import HEAD, at, entry, run

_SHARED = ".shared .align 1024 .b8 tile[8192];\n.shared .align 8 .b8 gate[16];\n"
_PUT = at(0, 4) + "st.global.b32 [%rd60], %r1;"
_REGISTERS = ".reg .b32 %g;\n.reg .b64 %token;\n.reg .pred %done;\n"
_INIT = "mov.b32 %g, gate;\nsetp.eq.s32 %p1, %t, 0;\n@%p1 mbarrier.init.shared::cta.b64 [%g], {count};\nbar.sync 0;\n"


def _wait(label: str, parity: int = 0) -> str:
    return f"{label}:\nmbarrier.try_wait.parity.shared::cta.b64 %done, [%g], {parity};\n@!%done bra.uni {label};\n"


_OWN = "mov.b32 %r2, tile;\nmad.lo.s32 %r3, %t, 4, %r2;\nxor.b32 %r4, %t, 32;\nmad.lo.s32 %r4, %r4, 4, %r2;\n"
_ARRIVE = "mbarrier.arrive.shared::cta.b64 _, [%g];\n"
_LOAD, _STORE = "ld.shared.b32 %r1, [%r4];\n", "st.shared.b32 [%r3], %t;\n"


_INVALIDATE = "bar.sync 0;\n@%p1 mbarrier.inval.shared::cta.b64 [%g];\nbar.sync 0;\n"


def _exchange(*steps: str, count: int = 64, order: str = "together") -> list[int]:
    y = torch.full((64,), -1, dtype=torch.int32)
    body = _INIT.format(count=count) + _OWN + "".join(steps) + _PUT
    run(entry(body, 1, _REGISTERS, _SHARED), [y], warps=2, on=hardware.Hardware(order=order))
    return [int(n) for n in y]


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_what_was_done_before_an_arrival_is_seen_after_the_wait(order: str) -> None:
    other = [thread ^ 32 for thread in range(64)]
    assert _exchange(_STORE, _ARRIVE, _wait("a"), _LOAD, order=order) == other
    # A second phase has the other parity; and a token names its own.
    again = "add.s32 %r5, %r1, 1000;\nst.shared.b32 [%r3], %r5;\n"
    first = (_STORE, _ARRIVE, _wait("a"), _LOAD, _ARRIVE, _wait("b", -1), again, _ARRIVE, _wait("c"), _LOAD)
    assert _exchange(*first, order=order) == [thread + 1000 for thread in range(64)]
    token = "mbarrier.arrive.shared::cta.b64 %token, [%g];\nd:\n"
    token += "mbarrier.test_wait.shared::cta.b64 %done, [%g], %token;\n@!%done bra d;\n"
    assert _exchange(_STORE, token, _LOAD, order=order) == other


#: Each thread copies a word of p1 to the place of its own, and reads that of another one.
_COPY = at(1, 4) + "cp.async.ca.shared.global [%r3], [%rd60], 4;\n"


def _copied(*steps: str, count: int = 64, order: str = "together") -> list[int]:
    x, y = torch.arange(64, dtype=torch.int32) + 500, torch.full((64,), -1, dtype=torch.int32)
    body = _INIT.format(count=count) + _OWN + "".join(steps) + _PUT
    run(entry(body, 2, _REGISTERS, _SHARED), [y, x], warps=2, on=hardware.Hardware(order=order))
    return [int(n) for n in y]


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_barrier_waits_for_copies_that_threads_began_before(order: str) -> None:
    expected = [500 + (thread ^ 32) for thread in range(64)]
    behind, counted = (f"cp.async.mbarrier.arrive{each}.shared::cta.b64 [%g];\n" for each in ("", ".noinc"))
    assert _copied(_COPY, behind, _ARRIVE, _wait("a"), _LOAD, order=order) == expected
    assert _copied(_COPY, counted, _wait("a"), _LOAD, order=order) == expected
    # Without the arrival of the copies, or without the wait, they are still on their way.
    for steps in (
        (_COPY, _ARRIVE, _wait("a"), _LOAD),
        (_COPY, behind, _ARRIVE, _LOAD),
        (_COPY, counted, "bar.sync 0;\n", _LOAD),
    ):
        with pytest.raises(Violation) as error:
            _copied(*steps, order=order)
        assert error.value.code is Code.RACE
    wrong: list[tuple[str, ...]] = [(_COPY, behind, _wait("a"), _LOAD), (_COPY, counted, counted)]
    for parts in wrong:  # nobody arrives, or more than may
        with pytest.raises(Violation) as error:
            _copied(*parts, order=order)
        assert error.value.code is Code.DIVERGENT


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_reading_without_a_wait_or_for_the_phase_before_is_a_race(order: str) -> None:
    for steps in (
        (_STORE, _ARRIVE, _LOAD),
        (_STORE, _wait("a", 1), _LOAD, _ARRIVE),
        (_ARRIVE, _STORE, _wait("a"), _LOAD),
    ):
        with pytest.raises(Violation) as error:
            _exchange(*steps, order=order)
        assert error.value.code is Code.RACE


@pytest.mark.parametrize(
    ("steps", "count", "code", "words"),
    [
        ((_ARRIVE,), 63, Code.DIVERGENT, "arrives where 0 arrivals are to come|arrives where"),
        ((_wait("a"),), 64, Code.DIVERGENT, "waits for a phase that nobody completes"),
        ((_ARRIVE, _wait("a")), 65, Code.DIVERGENT, "waits for a phase that nobody completes"),
        (("add.s32 %g, %g, 8;\n", _ARRIVE), 64, Code.UNDEFINED, "finds no barrier"),
        ((_INVALIDATE, _ARRIVE), 64, Code.UNDEFINED, "finds no barrier"),
        (("add.s32 %g, %g, 4;\nmbarrier.init.shared::cta.b64 [%g], 1;\n",), 64, Code.MISALIGNED, "multiple of 8"),
    ],
)  # fmt: skip
def test_what_a_barrier_does_not_allow(steps: tuple[str, ...], count: int, code: Code, words: str) -> None:
    if count == 63:  # the last arrival of the first phase would be the first of the next one
        steps = (*steps, "@%p1 mbarrier.arrive.shared::cta.b64 _, [%g], 64;\n")
    with pytest.raises(Violation, match=words) as error:
        _exchange(*steps, count=count)
    assert error.value.code is code


class _Descriptor:
    """What Triton's `TensorDescriptor` is."""

    def __init__(self, base: torch.Tensor, padding: str = "zero") -> None:
        self.base, self.shape, self.strides, self.padding = base, [*base.shape], [*base.stride()], padding


_ELEMENTS = {torch.float16: 6, torch.float32: 7, torch.uint8: 0, torch.int64: 5}


def _map(tensor: torch.Tensor, box: list[int], swizzle: int, padding: str = "zero") -> Any:
    return host_map(_Descriptor(tensor, padding),
                    {"swizzle": swizzle, "elem_type": _ELEMENTS[tensor.dtype], "block_size": box})  # fmt: skip


def _run(body: str, arguments: list[Any], order: str = "together", warps: int = 2) -> None:
    """A kernel whose first parameter is a map, and the others pointers."""
    names = [f".param .u64 p{number}" for number in range(1, len(arguments))]
    loads = "".join(f"ld.param.b64 %rd{number}, [p{number}];\n" for number in range(1, len(arguments)))
    text = f"{HEAD}{_SHARED}.visible .entry kernel(\n{', '.join(['.param .align 64 .b8 m[128]', *names])}\n)\n{{\n"
    text += f".reg .pred %p<8>;\n.reg .b64 %rd<64>;\n.reg .b32 %t;\n.reg .b32 %r<64>;\n{_REGISTERS}{loads}"
    text += "mov.b64 %rd0, m;\ncvta.param.u64 %rd0, %rd0;\nmov.u32 %t, %tid.x;\nmov.b32 %r2, tile;\n"
    text += f"{_INIT.format(count=1)}{body}\nret;\n}}\n"
    rows = [("struct" if number == 0 else "*", value, f"p{number}") for number, value in enumerate(arguments)]
    with hardware.on(hardware.Hardware(order=order)):
        PlacedLaunch(Geometry("kernel", (1, 1, 1), (32 * warps, 1, 1), 0), Kernel(text), rows).run()


#: Thread 0 asks for a box; all wait for it, and copy the tile, word by word, to p1.
_BRING = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%g], {bytes};\n"
_BRING += "@%p1 cp.async.bulk.tensor.2d.shared::cta.global.mbarrier::complete_tx::bytes "
_BRING += "[%r2], [%rd0, {{{x}, {y}}}], [%g];\n"
_DUMP = """
mov.b32 %r5, %t;
$dump:
mad.lo.s32 %r6, %r5, 4, %r2;
ld.shared.b32 %r7, [%r6];
mad.wide.u32 %rd9, %r5, 4, %rd1;
st.global.b32 [%rd9], %r7;
add.s32 %r5, %r5, 64;
setp.lt.s32 %p3, %r5, {words};
@%p3 bra $dump;
"""


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("order", hardware.ORDERS)
@pytest.mark.parametrize(("dtype", "columns"), [(torch.float16, 64), (torch.float32, 16), (torch.uint8, 64)])
@pytest.mark.parametrize("swizzle", range(4))
def test_a_box_comes_with_zeros_outside_of_the_tensor(swizzle: int, dtype: Any, columns: int, order: str) -> None:
    span = {0: 256, 1: 32, 2: 64, 3: 128}[swizzle]
    width = torch.empty(0, dtype=dtype).element_size()
    columns = min(columns, span // width)
    rng = np.random.default_rng(swizzle)
    x = torch.from_numpy(rng.integers(1, 100, (20, 80))).to(dtype)
    for padding, (row, column) in itertools.product(("zero", "nan"), ((3, 16), (-2, -5), (14, 70))):
        out = torch.zeros(16 * columns * width, dtype=torch.uint8)
        body = _BRING.format(bytes=out.numel(), x=column, y=row) + _wait("w") + _DUMP.format(words=out.numel() // 4)
        _run(body, [_map(x, [16, columns], swizzle, padding), out], order)
        expected = np.zeros(out.numel(), np.uint8)
        filler = float("nan") if padding == "nan" and dtype.is_floating_point else 0
        for i, j in itertools.product(range(16), range(columns)):
            inside = 0 <= row + i < 20 and 0 <= column + j < 80
            value = x[row + i, column + j] if inside else torch.tensor(filler).to(dtype)
            place = (i * columns + j) * width
            place ^= (place // 128 % 8 & (0, 1, 3, 7)[swizzle]) << 4
            raw = value.reshape(1).view(torch.uint8).numpy()
            expected[place : place + width] = raw
        there, right = (each.view(dtype).float().numpy() for each in (out, torch.from_numpy(expected)))
        assert np.array_equal(there, right, equal_nan=True)


def _code(body: str, arguments: list[Any], order: str) -> Code | None:
    try:
        _run(body, arguments, order)
    except Violation as error:
        return error.code
    return None


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_box_is_there_after_the_wait_and_not_before(order: str) -> None:
    x, out = torch.ones(16, 32, dtype=torch.float32), torch.zeros(512)
    bring, dump = _BRING.format(bytes=2048, x=0, y=0), _DUMP.format(words=512)
    write = "mad.lo.s32 %r8, %t, 4, %r2;\nst.shared.b32 [%r8], %t;\n"
    tensors = [_map(x, [16, 32], 3), out]
    assert _code(bring + _wait("w") + dump, tensors, order) is None
    assert _code(bring + _wait("w") + "bar.sync 0;\n" + write, tensors, order) is None
    assert _code(bring + "bar.sync 0;\n" + dump, tensors, order) is Code.RACE
    assert _code(bring + _wait("w", 1) + dump, tensors, order) is Code.RACE
    assert _code(bring + "bar.sync 0;\n" + write + _wait("w"), tensors, order) is Code.RACE
    assert _code(write + bring + _wait("w"), tensors, order) is Code.RACE
    # Fewer bytes are expected than come, or more.
    for count in (2032, 2064):
        assert _code(bring.replace("2048", str(count)) + _wait("w") + dump, tensors, order) is Code.DIVERGENT


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_box_goes_out_and_what_is_outside_of_the_tensor_is_not_written(order: str) -> None:
    y = torch.zeros(20, 16, dtype=torch.int64)
    fill = (
        "mov.b32 %r5, %t;\n$fill:\nmad.lo.s32 %r6, %r5, 8, %r2;\ncvt.u64.u32 %rd9, %r5;\nst.shared.b64 [%r6], %rd9;\n"
    )
    fill += "add.s32 %r5, %r5, 64;\nsetp.lt.s32 %p3, %r5, 128;\n@%p3 bra $fill;\nfence.proxy.async.shared::cta;\n"
    send = "@%p1 cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%rd0, {-3, 15}], [%r2];\n"
    send += "cp.async.bulk.commit_group;\n"
    wait, again = "cp.async.bulk.wait_group.read 0;\nbar.sync 0;\n", "st.shared.b64 [%r6], %rd9;\n"
    tensors = [_map(y, [8, 16], 0)]
    assert _code(fill + "bar.sync 0;\n" + send + wait + again, tensors, order) is None
    expected = np.zeros((20, 16), int)
    for i, j in itertools.product(range(5), range(3, 16)):
        expected[15 + i, j - 3] = i * 16 + j
    assert np.array_equal(y.numpy(), expected)
    assert _code(fill + send + wait, tensors, order) is Code.RACE
    changed = "mov.b64 %rd9, 7;\n" + again
    assert _code(fill + "bar.sync 0;\n" + send + "bar.sync 0;\n" + changed + wait, tensors, order) is Code.RACE


def test_bytes_are_copied_in_and_out() -> None:
    x, y = torch.arange(64, dtype=torch.int32), torch.zeros(64, dtype=torch.int32)
    body = "@%p1 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%g], 256;\n"
    body += "@%p1 cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r2], [%rd1], 256, [%g];\n"
    body += _wait("w") + "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd2], [%r2], SIZE;\n"
    body += "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group 0;"
    _run(body.replace("SIZE", "128"), [_map(x[None].clone().view(torch.int64), [1, 2], 0), x, y])
    assert y.tolist() == [*range(32), *[0] * 32]
    with pytest.raises(Violation, match="no multiples of 16") as error:
        _run(body.replace("SIZE", "120"), [_map(x[None].clone().view(torch.int64), [1, 2], 0), x, y])
    assert error.value.code is Code.MISALIGNED


_ONCE = "mbarrier.try_wait.parity.shared::cta.b64 %done, [%g], 0;\n"


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_who_asks_once_and_goes_on_has_not_waited(order: str) -> None:
    x, out = torch.ones(16, 32, dtype=torch.float32), torch.zeros(512)
    bring, dump = _BRING.format(bytes=2048, x=0, y=0), _DUMP.format(words=512)
    tensors = [_map(x, [16, 32], 3), out]
    assert _code(bring + _ONCE + dump, tensors, order) is Code.RACE
    skipped = _ONCE + "@%done bra.uni done;\n" + _wait("w") + "done:\n"
    assert _code(bring + skipped + dump, tensors, order) is None


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_copy_over_what_is_still_sent_or_copied_is_a_race(order: str) -> None:
    x, y = torch.ones(16, 32, dtype=torch.float32), torch.zeros(512, dtype=torch.int32)
    send = "@%p1 cp.async.bulk.global.shared::cta.bulk_group [%rd1], [%r2], 2048;\ncp.async.bulk.commit_group;\n"
    read, fill = "cp.async.bulk.wait_group.read 0;\n", "@%p1 st.shared.b32 [%r2], 7;\nfence.proxy.async.shared::cta;\n"
    zeros = "".join(f"@%p1 st.shared.b32 [%r2+{4 * word}], 0;\n" for word in range(1, 512)) + fill
    bring = _BRING.format(bytes=2048, x=0, y=0)
    tensors = [_map(x, [16, 32], 0), y]
    assert _code(zeros + send + read + bring + _wait("w"), tensors, order) is None
    assert _code(zeros + send + bring + _wait("w") + read, tensors, order) is Code.RACE
    later = "@%p1 mbarrier.expect_tx.shared::cta.b64 [%g], 2048;\n" + bring[bring.index("@%p1 cp") :]
    assert _code(bring + later.replace("{0, 0}", "{4, 0}") + _wait("w"), tensors, order) is Code.RACE


#: A map that host code of CuTe DSL has made: (5, 64, 128) in bfloat16, boxes of (2, 8, 64), swizzle of 128 bytes.
_BY_CUTE = "00046522 00000010 00000400 00000000 00000000 00000000 0000007f 0000003f 00000004 00000000 00000000 3f000000"


def _made_by_cute(tensor: torch.Tensor, changed: dict[int, int]) -> Structure:
    words = [0, 0, *(int(word, 16) for word in _BY_CUTE.split()), 0x107, 0, *[0xDEADBEEF] * 16]
    for place, word in changed.items():
        words[place] = word
    return Structure(np.array(words, np.uint32).tobytes(), {0: tensor})


def test_maps_that_host_code_makes_by_itself_are_read() -> None:
    x = torch.arange(5 * 64 * 128, dtype=torch.int16).reshape(5, 64, 128)
    out = torch.zeros(1024, dtype=torch.int16)
    bring = _BRING.format(bytes=2048, x=64, y="56, 3").replace("2d", "3d") + _wait("w") + _DUMP.format(words=512)
    _run(bring, [_made_by_cute(x, {}), out])
    box = x[3:5, 56:, 64:].reshape(128, 8)
    expected = np.empty((16, 8, 8), np.int16)
    for row, unit in itertools.product(range(16), range(8)):
        expected[row, unit ^ row % 8] = box[8 * row + unit]
    assert np.array_equal(out.numpy(), expected.reshape(-1))
    # The same map by the driver's function has the same bits, but for what is no part of its meaning.
    own = host_map(_Descriptor(x), {"swizzle": 3, "elem_type": 10, "block_size": [2, 8, 64]})
    hints = int.from_bytes(own.content, "little") ^ int.from_bytes(_made_by_cute(x, {}).content[:64], "little")
    assert hints == 2 << 81


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({2: 0x00046523}, "the mark 3"), ({2: 0x00056522}, r"the bits \[80\]"), ({15: 2}, r"the bits \[481\]"),
        ({6: 1}, r"the bits \[192\]"), ({2: 0x00046C22}, "layout 1"), ({2: 0x000465A2}, "type 11"),
    ],
)  # fmt: skip
def test_maps_with_bits_that_are_not_known_are_refused(changed: dict[int, int], words: str) -> None:
    bring = _BRING.format(bytes=2048, x=64, y="56, 3").replace("2d", "3d")
    with pytest.raises(Unsupported, match=words):
        _run(bring, [_made_by_cute(torch.zeros(5, 64, 128, dtype=torch.int16), changed)])


def test_one_thread_of_a_warp_is_elected() -> None:
    y = torch.zeros(64, dtype=torch.int32)
    body = "elect.sync %r2|%p1, -1;\nselp.b32 %r1, 100, 0, %p1;\nadd.s32 %r1, %r1, %r2;\n"
    body += "setmaxnreg.inc.sync.aligned.u32 240;\n"
    run(entry(body + _PUT, 1), [y], warps=2)
    assert y.tolist() == [100, *[0] * 31] * 2


@pytest.mark.parametrize(
    "instruction",
    [
        "cp.async.bulk.tensor.2d.shared::cta.global.im2col.mbarrier::complete_tx::bytes [%r1], [%rd1, {%r1}], [%r3];",
        "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%r1], [%rd1];",
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r1], [%r2], 16, [%r3];",
        "red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r1], %r2, [%r3];",
        "barrier.cluster.sync.aligned;",
    ],
)  # fmt: skip
def test_what_is_not_known_of_copies_is_refused_by_name(instruction: str) -> None:
    with pytest.raises(Unsupported, match=instruction.split(" ")[0].split(".")[0]):
        Kernel(entry(instruction, 0))
