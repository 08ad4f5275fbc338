"""Sums of tensor cores on the GPU beside the models of them: `tensor_sums.py SECONDS`.

mma.sync is executed on both. A row for each type: how many sums have the bits of the exact one rounded once, and of the
model of an H100, and how many lie outside of the interval that the executor and the contract allow. Then
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
from opassay.oracles.machine.ptx import hardware
from tests.oracles.machine.ptx.running import run
from tests.oracles.machine.ptx.test_tensor_cores import product_of_registers

SEED = 5
_WARPS = 512
_SHAPES = (("f16", 8), ("f16", 16), ("bf16", 8), ("bf16", 16), ("tf32", 4), ("tf32", 8))
_BYTES = {"f16": 2, "bf16": 2, "tf32": 4}


def draw(kind: str, registers: int, spread: int, rng: Any) -> torch.Tensor:
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
    text, count = product_of_registers(kind, depth, 32 * _WARPS)
    registers = draw(kind, count, spread, np.random.default_rng((SEED, depth, spread)))

    def sums(by: Any, on: Any = hardware.NEAREST) -> Any:
        out = torch.zeros(4, 32 * _WARPS, dtype=torch.int32)
        by(text, [registers, out], blocks=_WARPS, on=on)
        return out.numpy().view(np.float32)

    there, nearest = sums(on_gpu), sums(run)
    low, high = (
        np.minimum.reduce([sums(run, end) for end in hardware.ENDS]),
        np.maximum.reduce([sums(run, end) for end in hardware.ENDS]),
    )
    tell(
        product=f"{kind} k{depth}", orders=spread, sums=there.size, as_exact=int((there == nearest).sum()),
        as_modelled=int((there == sums(run, hardware.TRUNCATING)).sum()),
        outside=int(((there < low) | (there > high)).sum()),
    )  # fmt: skip


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


def exponents(x: torch.Tensor) -> torch.Tensor:
    """Those of the leading digits; of zero one below all others."""
    return torch.where(x == 0, -400, torch.frexp(x).exponent - 1)


def accumulated(a: torch.Tensor, b: torch.Tensor, bits: int, group: int, chunk: int) -> torch.Tensor:
    """Sums of an accumulator that keeps so many bits behind the leading one of the largest addend, and of the sum.

    Args:
        a, b: (m, k) and (n, k), in float64. bits: that are kept. group: products that are added at once.
        chunk: products after which the accumulator is added to a sum in float32, 0 for never.
    """

    def cut(x: torch.Tensor, exponent: torch.Tensor) -> torch.Tensor:
        unit = torch.exp2((exponent - bits).double())
        return torch.trunc(x / unit) * unit

    total = torch.zeros(len(a), len(b), dtype=torch.float64, device=a.device)
    promoted = torch.zeros_like(total)
    for start in range(0, a.shape[1], group):
        x, y = a[:, None, start : start + group], b[None, :, start : start + group]
        # The exponent of a product is the sum of its factors', whatever the product of their digits is.
        top = torch.maximum((exponents(x) + exponents(y)).amax(-1), exponents(total))
        added = cut(x * y, top[..., None]).sum(-1) + cut(total, top)
        total = cut(added, exponents(added))
        if chunk and (start + group) % chunk == 0:
            promoted = (promoted + total).float().double()
            total = torch.zeros_like(total)
    return (promoted + total).float() if chunk else total.float()


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
    for bits in (12, 13, 14):
        model = accumulated(*wide, bits, 32, 0 if fast else 128)
        row[f"as of {bits} bits"] = int((model == there).sum())
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
