"""d_weight and d_bias from the partial sums that the programs of a backward kernel write in the wide dtype.

How many programs share a sum depends on shapes alone. So its last bits are the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...gpu import blocks
from ...gpu.launching import empty, launch
from ..kernels_cpu.operands import Gradients
from ..layout import Layout

Pair = Sequence[Tensor | None]
"""Of d_weight and d_bias; None where the mask leaves one out."""

#: Programs that share the rows of a call in a backward kernel, at most; two for each multiprocessor of a large GPU.
SHARERS = 256
#: Partial sums that one program adds up, at most; sums of more take another launch.
_CHUNK = 256
_PARTS, _COLUMNS = 64, 32


def allocate(
    x: Tensor, weight: Tensor | None, layout: Layout, mask: Sequence[bool], bias_dtype: torch.dtype | None
) -> Gradients:
    """(d_input, d_weight, d_bias) for kernels to write, None where masked. Sums over no row at all are 0 already."""
    shape = layout.affine_shape(x.shape)
    d_input = empty(x.shape, x.dtype, x.device) if mask[0] else None
    d_weight = empty(shape, weight.dtype, x.device) if mask[1] and weight is not None else None
    d_bias = empty(shape, bias_dtype, x.device) if mask[2] and bias_dtype is not None else None
    if x.numel() == 0:
        for t in (d_weight, d_bias):
            if t is not None:
                t.zero_()
    return d_input, d_weight, d_bias


def places(results: Pair, slices: int, parts: int, wide: torch.dtype) -> Pair:
    """Where the programs put their sums, (slices, parts, length): the results themselves if there is one part.

    Args:
        results: contiguous. slices: how many sums of their own they hold. parts: programs to a slice.
        wide: the dtype of sums.
    """
    if parts == 1:
        return results
    return [None if t is None else empty((slices, parts, t.numel() // slices), wide, t.device) for t in results]


def add_up(partial: Pair, results: Pair) -> None:
    """Write the results: the sums of the partial sums, in the tensors of `places`, which a kernel has filled."""
    pairs = [(p, t) for p, t in zip(partial, results, strict=True) if p is not None and t is not None]
    if not pairs or pairs[0][0] is pairs[0][1]:
        return
    from ..kernels_triton import partial_sums as texts

    slices, parts, length = pairs[0][0].shape
    columns = blocks.ceil_div(length, _COLUMNS)
    while parts:
        chunks = blocks.ceil_div(parts, _CHUNK)
        if chunks > 1:
            outs = [empty((slices, chunks, length), p.dtype, p.device) for p, _ in pairs]
        else:
            outs = [t for _, t in pairs]
        operands: list[Tensor | None] = [t for (p, _), out in zip(pairs, outs, strict=True) for t in (p, out)]
        wide = pairs[0][0].dtype
        constants = {
            "DOUBLE": wide is torch.float64, "PARTS": _PARTS, "COLUMNS": _COLUMNS, "CHUNK": _CHUNK
        }  # fmt: skip
        sizes = (parts, length, chunks, columns, min(parts, _CHUNK))
        operands += [None] * (4 - len(operands))
        launch(texts.add_partial_sums, (slices * chunks * columns,), (*operands, *sizes), constants)
        pairs = [(out, t) for out, (_, t) in zip(outs, pairs, strict=True)]
        parts = chunks if chunks > 1 else 0
