"""Triton kernel that adds up the sums which the programs of a backward kernel have left."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def _added(PARTIAL, OUT, s, chunk, column, P, N, chunks, most, ACC: tl.constexpr, PARTS: tl.constexpr,
           COLUMNS: tl.constexpr, CHUNK: tl.constexpr):  # fmt: skip
    """OUT[s, chunk, column] = the sum of PARTIAL[s, p, column] over the chunk's p."""
    total = tl.zeros((PARTS, COLUMNS), ACC)
    for first in range(0, most, PARTS):
        part = chunk * CHUNK + first + tl.arange(0, PARTS)
        mask = (part < P)[:, None] & (column < N)[None, :]
        total += tl.load(PARTIAL + (s * P + part)[:, None] * N + column[None, :], mask=mask, other=0.0)
    out = tl.sum(total, 0)
    tl.store(OUT + (s * chunks + chunk) * N + column, out.to(OUT.dtype.element_ty), mask=column < N)


@triton.jit
def add_partial_sums(
    PARTIAL, OUT, PARTIAL_2, OUT_2, P, N, chunks, columns, most,
    DOUBLE: tl.constexpr, PARTS: tl.constexpr, COLUMNS: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Sums of (slices, P, N) over P, or over chunks of it; of a second tensor too, where there is one."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    pid = tl.program_id(0).to(tl.int64)
    column = (pid % columns) * COLUMNS + tl.arange(0, COLUMNS)
    chunk = (pid // columns) % chunks
    s = pid // columns // chunks
    _added(PARTIAL, OUT, s, chunk, column, P, N, chunks, most, ACC, PARTS, COLUMNS, CHUNK)
    if PARTIAL_2 is not None:
        _added(PARTIAL_2, OUT_2, s, chunk, column, P, N, chunks, most, ACC, PARTS, COLUMNS, CHUNK)
