"""Sums of tensor cores on the GPU beside the models of them: `tensor_sums.py SECONDS`.

mma.sync is executed on both. A row for each type: how many sums have the bits of the exact one rounded once, of addends
cut off behind so many digits, and how many lie within the interval that the executor and the contract allow. Then
products of matrices as cuBLAS computes them (wgmma on Hopper), as parts of what contract `tensor_core` allows; and sums
of e4m3, beside an accumulator of so many bits.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the tables of the tests are not installed

import numpy as np
import torch
from instructions import on_gpu
from telling import DEVICE, guarded, require_gpu, tell

from opassay.oracles.bound.contract import TENSOR_SUMS
from opassay.oracles.machine.ptx import hardware, tensor_cores
from tests.oracles.machine.ptx.running import entry, run

SEED = 5
_WARPS = 512
_SHAPES = (("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8))
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}
_DIGITS = range(23, 30)


def text_of(kind: str, depth: int) -> tuple[str, int]:
    """A module that multiplies fragments, one register after the other in memory; and how many registers there are."""
    counts = depth * _BYTES[kind] // 8, depth * _BYTES[kind] // 16, 4
    names = [f"%r{i}" for i in range(sum(counts))]
    stride = 4 * 32 * _WARPS
    body = "mad.lo.s32 %t, %c, 32, %t;\nmad.wide.u32 %rd9, %t, 4, %rd0;\nmad.wide.u32 %rd10, %t, 4, %rd1;\n"
    body += "".join(f"ld.global.b32 {name}, [%rd9+{stride * i}];\n" for i, name in enumerate(names))
    groups = [["%r50", "%r51", "%r52", "%r53"], names[: counts[0]], names[counts[0] : -4], names[-4:]]
    fragments = ", ".join("{" + ", ".join(group) + "}" for group in groups)
    body += f"mma.sync.aligned.m16n8k{depth}.row.col.f32.{kind}.{kind}.f32 {fragments};\n"
    body += "".join(f"st.global.b32 [%rd10+{stride * i}], %r{50 + i};\n" for i in range(4))
    return entry(body, 2), len(names)


def drawn(kind: str, registers: int, spread: int, rng: Any) -> torch.Tensor:
    """Registers of numbers whose magnitudes differ by up to `spread` binary orders."""

    def numbers(count: int, width: int) -> Any:
        values = rng.standard_normal((count, 32 * _WARPS, 4 // width)) * np.exp2(
            rng.integers(-spread, 1, (count, 32 * _WARPS, 4 // width))
        )
        return torch.from_numpy(values.astype(np.float32))

    factors = numbers(registers - 4, _BYTES[kind])
    if kind == "tf32":
        bits = factors.view(torch.int32) & ~0x1FFF
    else:
        bits = factors.to({"f16": torch.float16, "bf16": torch.bfloat16}[kind]).view(torch.int32)
    return torch.cat([bits.reshape(registers - 4, -1), numbers(4, 4).view(torch.int32).reshape(4, -1)]).contiguous()


def compare(kind: str, depth: int, spread: int) -> None:
    """One type: the row."""
    text, count = text_of(kind, depth)
    registers = drawn(kind, count, spread, np.random.default_rng((SEED, depth, spread)))

    def sums(by: Any, on: Any = hardware.NEAREST) -> Any:
        out = torch.zeros(4, 32 * _WARPS, dtype=torch.int32)
        by(text, [registers, out], blocks=_WARPS, on=on)
        return out.numpy().view(np.float32)

    there, nearest = sums(on_gpu), sums(run)
    low, high = (
        np.minimum.reduce([sums(run, end) for end in hardware.ENDS]),
        np.maximum.reduce([sums(run, end) for end in hardware.ENDS]),
    )
    row: dict[str, object] = {
        "product": f"{kind} k{depth}", "orders": spread, "sums": there.size, "as_exact": int((there == nearest).sum()),
        "outside": int(((there < low) | (there > high)).sum()),
    }  # fmt: skip
    digits_before = tensor_cores._DIGITS
    for digits in _DIGITS:
        tensor_cores._DIGITS = digits
        row[f"cut at {digits}"] = int((sums(run, hardware.TRUNCATING) == there).sum())
    tensor_cores._DIGITS = digits_before
    tell(**row)


def multiply(dtype: torch.dtype, k: int, positive: bool) -> None:
    """A product of matrices by cuBLAS, into float32: the largest part of the contract's sums that it takes."""
    generator = torch.Generator(DEVICE).manual_seed(SEED)
    a, b = (torch.randn(size, k, device=DEVICE, generator=generator).to(dtype) for size in (256, 512))
    if positive:
        a, b = a.abs(), b.abs()
    there = torch.mm(a, b.T, out_dtype=torch.float32).double()
    exact, size = a.double() @ b.double().T, a.double().abs() @ b.double().abs().T
    error = (there - exact).abs()
    allowed = k * 2.0**-24 * size
    tell(
        cublas=str(dtype)[6:], k=k, positive=positive, sums=error.numel(), worst_of_k_u=float((error / allowed).max()),
        contract=TENSOR_SUMS, worst_relative=float((error / size).max() * 2**24),
    )  # fmt: skip


def accumulated(a: torch.Tensor, b: torch.Tensor, bits: int, group: int, chunk: int) -> torch.Tensor:
    """Sums of an accumulator that keeps so many bits behind the leading one of the largest addend."""
    m, k = a.shape
    total = torch.zeros(m, b.shape[0], dtype=torch.float64, device=a.device)
    kept = torch.zeros_like(total)
    for start in range(0, k, group):
        products = a[:, None, start : start + group] * b[None, :, start : start + group]
        addends = torch.cat([products, total[..., None]], -1)
        unit = torch.exp2((torch.frexp(addends.abs().amax(-1)).exponent - 1 - bits).double())
        total = (torch.trunc(addends / unit[..., None]).sum(-1)) * unit
        if chunk and (start + group) % chunk == 0:
            kept = (kept + total).float().double()
            total = torch.zeros_like(total)
    return (kept + total).float() if chunk else total.float()


def multiply_few_bits(k: int, fast: bool, dtype: torch.dtype = torch.float8_e4m3fn) -> None:
    """A product of e4m3 by cuBLAS, beside accumulators of so many bits."""
    generator = torch.Generator(DEVICE).manual_seed(SEED)
    a, b = (torch.randn(size, k, device=DEVICE, generator=generator).to(dtype) for size in (64, 128))
    one = torch.ones((), device=DEVICE)
    there = torch._scaled_mm(a, b.T, one, one, out_dtype=torch.float32, use_fast_accum=fast)
    wide = a.float().double(), b.float().double()
    exact, size = wide[0] @ wide[1].T, wide[0].abs() @ wide[1].abs().T
    row: dict[str, object] = {
        "scaled_mm": str(dtype)[6:], "k": k, "fast": fast, "sums": there.numel(),
        "worst": float(((there.double() - exact).abs() / size).max()), "as_exact": int((there == exact.float()).sum()),
    }  # fmt: skip
    for bits in (12, 13, 14, 15, 21, 22, 23, 24, 25):
        for chunk in (0, 128) if not fast else (0,):
            model = accumulated(*wide, bits, 32, chunk)
            row[f"{bits} bits" + (f", by {chunk}" if chunk else "")] = int((model == there).sum())
    tell(**row)


def main() -> None:
    """Rows of all of it."""
    require_gpu()
    for kind, depth in _SHAPES:
        for spread in (0, 12):
            with guarded(f"{kind} k{depth}"):
                compare(kind, depth, spread)
    for dtype in (torch.float16, torch.bfloat16):
        for k in (16, 64, 512, 4096, 16384):
            for positive in (False, True):
                with guarded(f"{dtype} {k}"):
                    multiply(dtype, k, positive)
    for fast in (False, True):
        for k in (32, 64, 128, 256, 1024, 4096):
            with guarded(f"scaled_mm {k}"):
                multiply_few_bits(k, fast)


if __name__ == "__main__":
    main()
