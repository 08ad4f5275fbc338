"""An RMS norm in Triton, right and with a fault, judged in Triton's interpreter: a program of its own."""

from __future__ import annotations

import os
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
import triton
import triton.language as tl

import opassay


@triton.jit
def rms_rows(X, W, Y, n, eps, BLOCK: tl.constexpr, TAIL: tl.constexpr):
    """A row per program, in blocks; without the tail where `TAIL` is false."""
    row = tl.program_id(0)
    total = 0.0
    end = n if TAIL else n // BLOCK * BLOCK
    for first in range(0, end, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x = tl.load(X + row * n + k, mask=k < n, other=0.0)
        total += tl.sum(x * x, 0)
    r = 1.0 / tl.sqrt(total / n + eps)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x, w = tl.load(X + row * n + k, mask=k < n), tl.load(W + k, mask=k < n)
        tl.store(Y + row * n + k, x * r * w, mask=k < n)


def rms_norm(x: torch.Tensor, w: torch.Tensor, tail: bool = True) -> torch.Tensor:
    """The kernel on contiguous copies."""
    x, w = x.contiguous(), w.contiguous()
    y = torch.empty_like(x)
    if y.numel():
        eps = torch.full((), 1e-6)  # the interpreter does not take every Python float
        rms_rows[(x.shape[0],)](x, w, y, x.shape[1], float(eps), BLOCK=64, TAIL=tail)
    return y


def reference(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """What it means."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def judge(kernel: Any) -> Any:
    """Verdicts on a kernel without a backward."""
    return opassay.verify_kernel(
        kernel, reference, shapes={"x": ("N", "n"), "w": ("n",)}, sizes={"N": (1, 3), "n": (3, 63, 64, 65, 130)},
        offer=opassay.Offer(max_order=0), properties=("FWD", "LAYOUT"),
        settings=opassay.Settings("brief", max_examples=6, simpler=False),
    )  # fmt: skip


if __name__ == "__main__":
    print("right", opassay.ok(judge(rms_norm)))
    faulty = judge(lambda x, w: rms_norm(x, w, tail=False))
    print("wrong", sorted({v.cell.property for v in faulty if v.outcome == "fail"}))
