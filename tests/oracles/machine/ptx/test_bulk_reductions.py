"""Rows of shared memory that change global memory (cp.reduce.async.bulk), against Python's integers and MPFR."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.machine.ptx import hardware
from opassay.oracles.machine.ptx.account import ACCOUNT
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from tests.oracles.machine.ptx.exactly import decode, encode, extreme, operands, rounded, width_of
from tests.oracles.machine.ptx.running import at, entry, run

_SEED = 11
_NAME = "cp.reduce.async.bulk.global.shared::cta.bulk_group"
_TILE = ".shared .align 128 .b8 tile[1024];\n"
#: Each block brings 1024 bytes of p1 into its tile; one thread has them change as many bytes of p0.
_BRING = (
    "mad.lo.s32 %r40, %c, 64, %t;\n" + at(1, 16, "%r40") + "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd60];\n"
    "mov.b32 %r9, tile;\nmad.lo.s32 %r10, %t, 16, %r9;\nst.shared.v4.b32 [%r10], {%r1, %r2, %r3, %r4};\n"
    "fence.proxy.async.shared::cta;\n"
)
_MEET, _END = "bar.sync 0;\n", "cp.async.bulk.commit_group;\ncp.async.bulk.wait_group{} 0;\n"
_WAIT = _END.format("")


def _reduce(change: str, size: str = "1024", row: str = "%c") -> str:
    return f"setp.eq.s32 %p1, %t, 0;\n{at(0, 1024, row)}@%p1 {_NAME}.{change} [%rd60], [%r9], {size};\n"


def _changed(change: str, kind: str, there: Any, values: Any, on: hardware.Hardware = hardware.NEAREST) -> Any:
    """The bits that rows have after bits have changed them."""
    count, width = there.size, width_of(kind)
    parts = [torch.from_numpy(np.resize(each, -(-count * width // 1024) * 1024 // width)) for each in (there, values)]
    cells, source = (part.view(torch.uint8) for part in parts)
    body = _BRING + _MEET + _reduce(change) + _WAIT
    run(entry(body, 2, "", _TILE), [cells, source], blocks=cells.numel() // 1024, warps=2, on=on)
    return parts[0].numpy()[:count]


_LIMITS: dict[str, Callable[[Any, Any], Any]] = {
    "inc": lambda a, b: 0 if a >= b else a + 1, "dec": lambda a, b: b if a == 0 or a > b else a - 1,
    "and": lambda a, b: a & b, "or": lambda a, b: a | b, "xor": lambda a, b: a ^ b, "min": min, "max": max,
    "add": lambda a, b: a + b,
}  # fmt: skip
_CHANGES: dict[str, Callable[[Any, Any], Any]] = {
    "add.f32": rounded("add", "f32", ftz=True), "add.f64": rounded("add", "f64"),
    **{f"add.noftz.{kind}": rounded("add", kind) for kind in ("f16", "bf16")},
    **{f"{verb}.{kind}": extreme(verb == "max") for verb in ("min", "max") for kind in ("f16", "bf16")},
    **{f"{verb}.{kind}": _LIMITS[verb] for verb in ("min", "max") for kind in ("u32", "s32", "u64", "s64")},
    **{f"add.{kind}": _LIMITS["add"] for kind in ("u32", "s32", "u64")},
    **{f"{verb}.u32": _LIMITS[verb] for verb in ("inc", "dec")},
    **{f"{verb}.b{size}": _LIMITS[verb] for verb in ("and", "or", "xor") for size in (32, 64)},
}  # fmt: skip


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("change", _CHANGES)
def test_every_element_is_changed_exactly(change: str) -> None:
    print("seed", _SEED)
    kind = change.split(".")[-1]
    there, values = operands((kind, kind), 400, _SEED)
    before = there.copy()
    result = _changed(change, kind, there, values)
    for bits, a, b in zip(result.tolist(), before.tolist(), values.tolist(), strict=True):
        exact = encode(_CHANGES[change](decode(a, kind), decode(b, kind)), kind)
        value = decode(bits, kind)
        assert (value != value) if exact is None else bits == exact, (change, a, b)


#: The first thread of each of two warps adds a half of the tile to one row.
_TWICE = "rem.u32 %r5, %t, 32;\nsetp.eq.s32 %p1, %r5, 0;\nmad.lo.s32 %r9, %t, 16, %r9;\n"


@pytest.mark.parametrize("change", ["add.f32", "add.noftz.bf16"])
def test_threads_that_add_to_one_row_do_not_race_and_the_order_is_told(change: str) -> None:
    kind = change.split(".")[-1]
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[kind]
    most = 2.0**24 if kind == "f32" else 2.0**8  # to which 1 can be added in vain
    x = torch.tensor([1.0, -most], dtype=dtype)[:, None].repeat(1, 512 // dtype.itemsize)
    ACCOUNT.begin()
    sums = []
    for order in hardware.ORDERS:
        y = torch.full_like(x[:1], most)
        body = _BRING + _MEET + _TWICE + f"@%p1 {_NAME}.{change} [%rd0], [%r9], 512;\n" + _WAIT
        run(entry(body, 2, "", _TILE), [y, x], warps=2, on=hardware.Hardware(order=order))
        assert (y == y[0, 0]).all()
        sums.append(float(y[0, 0]))
    assert ACCOUNT.unordered == {"kernel"}
    assert sums == [1.0 if order == "apart" else 0.0 for order in hardware.ORDERS]


def _code(body: str, sizes: tuple[int, int] = (1024, 1024), order: str = "together") -> Code | None:
    tensors = [torch.zeros(size, dtype=torch.uint8) for size in sizes]
    try:
        run(entry(body, 2, "", _TILE), tensors, warps=2, on=hardware.Hardware(order=order))
    except Violation as error:
        return error.code
    return None


_AGAIN = "st.shared.b32 [%r10], 7;\n"
_READ = at(0, 4) + "ld.global.b32 %r1, [%rd60];\nst.global.b32 [%rd60], %r1;\n"


@pytest.mark.parametrize("order", hardware.ORDERS)
def test_a_row_is_read_until_its_group_is_waited_for_and_others_race_with_it(order: str) -> None:
    add, read = _reduce("add.u32"), _END.format(".read")
    for right in (
        _BRING + _MEET + add + _WAIT,
        _BRING + _MEET + add + read + _MEET + _AGAIN,
        _BRING + _MEET + add + _WAIT + _MEET + _READ,
    ):
        assert _code(right, order=order) is None
    for wrong in (
        _BRING + add + _WAIT,  # other threads may not have stored yet
        _BRING + _MEET + add + _MEET + _AGAIN + _WAIT,  # stored while it is read
        _BRING + _MEET + add + _WAIT + at(0, 4) + "st.global.b32 [%rd60], 5;\n",  # what another one changes
    ):
        assert _code(wrong, order=order) is Code.RACE


@pytest.mark.parametrize(
    ("body", "sizes", "code"),
    [
        (_BRING + _MEET + _reduce("add.u32", "1000"), (1024, 1024), Code.MISALIGNED),
        (_BRING + _MEET + "add.s64 %rd0, %rd0, 8;\n" + _reduce("add.u64", "512"), (1024, 1024), Code.MISALIGNED),
        (_BRING + _MEET + "add.s32 %r9, %r9, 4;\n" + _reduce("add.u32", "512"), (1024, 1024), Code.MISALIGNED),
        (_BRING + _MEET + _reduce("add.f32"), (1008, 1024), Code.OUT_OF_BOUNDS),
        ("mov.b32 %r9, tile;\n" + _reduce("add.u32") + _WAIT, (1024, 1024), Code.UNDEFINED),
    ],
)  # fmt: skip
def test_what_rows_and_addresses_are_allowed(body: str, sizes: tuple[int, int], code: Code) -> None:
    assert _code(body, sizes) is code


@pytest.mark.parametrize(
    "opcode",
    [
        f"{_NAME}.add.f16 [%rd0], [%r9], 16;", f"{_NAME}.add.s64 [%rd0], [%r9], 16;",
        f"{_NAME}.min.f32 [%rd0], [%r9], 16;", f"{_NAME}.exch.b32 [%rd0], [%r9], 16;",
        "cp.reduce.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes.add.u32 [%r8], [%r9], 16,[%r7];",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile.bulk_group [%rd0, {%r1, %r2}], [%r9];",
    ],
)  # fmt: skip
def test_what_the_isa_has_not_or_is_not_built_is_refused_by_name(opcode: str) -> None:
    with pytest.raises(Unsupported, match=r"cp\.reduce\.async\.bulk"):
        Kernel(entry(opcode, 1, "", _TILE))
