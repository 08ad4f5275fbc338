"""Triton kernels of the trace and of its adjoint, of many matrices at once."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def trace_forward(
    X, Y, matrices, side, apart, step, DOUBLE: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """The sum of each diagonal: `side` elements, `step` apart in memory; the diagonals begin `apart` from each other.

    A program has `ROWS` matrices. Its lanes add up a diagonal block by block, and then each other.
    """
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    matrix = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    there = matrix < matrices
    total = tl.zeros((ROWS, BLOCK), ACC)
    for first in range(0, side, BLOCK):
        i = first + tl.arange(0, BLOCK).to(tl.int64)
        at = (matrix * apart)[:, None] + (i * step)[None, :]
        total += tl.load(X + at, mask=there[:, None] & (i < side)[None, :], other=0.0).to(ACC)
    tl.store(Y + matrix, tl.sum(total, 1).to(Y.dtype.element_ty), mask=there)


@triton.jit
def trace_backward(
    G, D, matrices, elements, limit, step, pieces, ROWS: tl.constexpr, BLOCK: tl.constexpr, SHORT: tl.constexpr
):  # fmt: skip
    """Each g along the diagonal of its matrix, zero elsewhere: every element is written once.

    A matrix has so many elements, and one of its diagonal every `step` of them below `limit`. A program has `ROWS`
    matrices, or one of the pieces of a matrix.
    """
    pid = tl.program_id(0).to(tl.int64)
    matrix = (pid // pieces) * ROWS + tl.arange(0, ROWS)
    there = matrix < matrices
    first = (pid % pieces) * BLOCK
    lane = tl.arange(0, BLOCK)
    # Blocks shorter than a step have one element of the diagonal at most: no division for each element.
    ahead = (step - first % step) % step
    diagonal = (lane - ahead.to(tl.int32)) % step == 0 if SHORT else lane == ahead
    i = first + lane
    g = tl.load(G + matrix, mask=there, other=0.0)
    # Beyond the last row of the diagonal of a tall matrix there are more multiples of the step.
    d = tl.where((diagonal & (i < limit))[None, :], g[:, None], 0.0)
    at = (matrix * elements)[:, None] + i[None, :]
    tl.store(D + at, d.to(D.dtype.element_ty), mask=there[:, None] & (i < elements)[None, :])
