"""RMS norm, with or without a residual that is added first: the public functions, and the op that all of them are.

It is a layer norm without a mean, and has its expressions, its layout and, on CUDA, its kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operator import arguments
from ..operator.batching import in_front, out_dims, raised_for_sum
from ..operator.expression import Expression
from ..operator.operator import Kernels, Operator, taking
from ..operator.precision import compute_dtype, raised
from ..operator.records import Grads, Record, new
from ..operator.rules import Rules
from ..operator.torch_private import has_kernel
from . import expressions
from .batching import Batched, one_more_slice
from .kernels_cpu import rms_norm as cpu
from .kernels_cuda import layer_norm as cuda
from .layer_norm import check_rows
from .layout import Rows, rows_of
from .rules import Norm


def rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None
) -> Tensor:
    """Rows divided by their root mean square, and scaled: x / sqrt(mean(x^2) + eps) * weight.

    Args:
        input: (*lead, *normalized_shape), float64, float32, bfloat16 or float16, any strides, cpu or cuda.
        normalized_shape: the trailing dims that form a row; at least one.
        weight: (*normalized_shape), in the input's dtype, or float32 with a bfloat16 or float16 input.
        eps: added to the mean of squares. None is, as torch computes it, the machine epsilon of the dtype of the sums:
            2^-52 for float64, 2^-23 for float32 and for the half types.

    Returns:
        A contiguous tensor of the input's shape and dtype. Sums of half-precision inputs are float32 and the result is
        rounded once. A row with a NaN is NaN; in a row with an infinity that one is NaN and the others are zero.

    Raises:
        TypeError: an operand is not a tensor, normalized_shape not ints, eps neither a number nor None.
        RuntimeError: shapes, dtypes or devices do not fit each other.
        NotImplementedError: input is not of a floating dtype named above.

    Source: B. Zhang, R. Sennrich, Root Mean Square Layer Normalization, arXiv:1910.07467, eq. 4.
    """
    shape, number = _check("rms_norm", input, normalized_shape, weight, eps)
    return _rms_norm(input, None, weight, len(shape), number)[0]


def fused_rms_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None
) -> tuple[Tensor, Tensor]:
    """`rms_norm` with its statistic, which is a differentiable output.

    Args:
        input, normalized_shape, weight, eps: as for `rms_norm`.

    Returns:
        out, rstd. rstd = 1 / sqrt(mean(x^2) + eps) has shape (*lead, 1, ..., 1) with a 1 per dim of normalized_shape;
        float32 for bfloat16 and float16 inputs, else the input's dtype. For rows of length 0 it is NaN.

    Raises:
        As `rms_norm`.
    """
    shape, number = _check("fused_rms_norm", input, normalized_shape, weight, eps)
    out, _, rstd = _fused_rms_norm(input, None, weight, len(shape), number)
    return out, rstd


def fused_rms_norm_backward(
    grad_out: Tensor, input: Tensor, normalized_shape: Sequence[int], rstd: Tensor, weight: Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[Tensor | None, Tensor | None]:  # fmt: skip
    """Gradients of input and weight from the gradient of out.

    The values use the given rstd. The derivatives of this function treat it as what it is, a function of input, with
    the eps that the given rstd implies held constant; no gradient flows to the argument rstd.

    Args:
        grad_out: shape and dtype of input, any strides.
        input, normalized_shape, weight: as for `rms_norm`. rstd: as `fused_rms_norm` returns it.
        output_mask: which of the two gradients to compute.

    Returns:
        d_input (shape and dtype of input) and d_weight (of weight), contiguous; None where the mask is False or there
        is no weight. Sums of half-precision inputs are float32 and rounded once.

    Raises:
        As `rms_norm`, and RuntimeError when grad_out, rstd or output_mask do not fit.
    """
    name = "fused_rms_norm_backward"
    shape, _ = _check(name, input, normalized_shape, weight, 0.0)
    statistics = Rows(len(shape)).statistics_shape(input.shape)
    arguments.require_backward_operands(name, grad_out, input, (("rstd", rstd),), statistics)
    if len(output_mask) != 2:
        raise RuntimeError(f"{name}: got output_mask={list(output_mask)}, need two bools.")
    mask = (output_mask[0], output_mask[1])
    return _rms_norm_backward(grad_out, None, None, input, rstd, weight, len(shape), None, 0, mask)


def fused_add_rms_norm(
    input: Tensor, residual: Tensor, normalized_shape: Sequence[int], weight: Tensor | None = None,
    eps: float | None = None,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """`rms_norm` of input + residual, and that sum: what a layer gives to the next one, and the residual stream.

    Args:
        input: as for `rms_norm`. residual: of the input's shape, dtype and device.
        normalized_shape, weight, eps: as for `rms_norm`.

    Returns:
        out, total: both contiguous, of the input's shape and dtype. total = input + residual, rounded once, and out is
        the norm of what total holds.

    Raises:
        As `rms_norm`, and RuntimeError when the residual is not like the input.
    """
    name = "fused_add_rms_norm"
    shape, number = _check(name, input, normalized_shape, weight, eps)
    arguments.require_like(name, "residual", residual, "input", input)
    out, total, _ = _rms_norm(input, residual, weight, len(shape), number)
    assert total is not None
    return out, total


def _check(name: str, x: Any, shape: Any, weight: Any, eps: Any) -> tuple[tuple[int, ...], float]:
    """The normalized shape as a tuple and eps as a number; what is wrong with the arguments is raised."""
    shape = check_rows(name, x, shape, (("weight", weight),), 0.0 if eps is None else eps)
    return shape, torch.finfo(compute_dtype(x.dtype)).eps if eps is None else eps


_norm: Norm[Rows] = Norm(lambda args: rows_of(args.row_ndim, args.batch_ndim), centred=False)


def _slopes(args: Record) -> cpu.Gradients:
    """The op as an expression of grad_out, grad_total, grad_rstd, input and weight."""
    d_input, d_weight, _ = _norm.gradients(args)
    if d_input is not None and args.grad_total is not None:
        d_input = d_input + raised(args.grad_total)
    return d_input, d_weight


_rms_norm_backward = Operator(
    "rms_norm_backward(Tensor grad_out, Tensor? grad_total, Tensor? grad_rstd, Tensor input, Tensor rstd,"
    " Tensor? weight, int row_ndim, float? eps, int batch_ndim, bool[2] output_mask) -> (Tensor, Tensor)",
    taking(cpu.RmsBackward, cpu.rms_norm_backward, cuda.rms_norm_backward, lambda args: _norm.fake_gradients(args)[:2]),
    one_more_slice,
    Expression(_slopes),
    outputs=("input", "weight"),
)


def _fake(args: Record) -> cpu.Outputs:
    x, layout = args.input, rows_of(args.row_ndim)
    rstd = x.new_empty(layout.statistics_shape(x.shape), dtype=compute_dtype(x.dtype))
    return layout.empty_like(x), None if args.residual is None else layout.empty_like(x), rstd


def _batched(op: Any, size: int, dims: Record, args: Record) -> Batched:
    """One more lead dim; a weight with a batch is applied outside of the kernel, in float32 for the half types."""
    x, residual, weight, dtype = args.input, args.residual, args.weight, args.input.dtype
    if residual is not None:
        x, residual = raised_for_sum(x, residual, dims=(dims.input, dims.residual))
        residual = in_front(residual, dims.residual, size)
    x = in_front(x, dims.input, size)
    if dims.weight is None:
        out, total, rstd = op(x, residual, weight, args.row_ndim, args.eps)
    else:
        total = None if residual is None else (x + residual).to(dtype)
        out, _, rstd = op(raised(x if total is None else total), None, None, args.row_ndim, args.eps)
        out = out * Rows(args.row_ndim, 1).spread(raised(weight).movedim(dims.weight, 0), out.dim())
    outputs = (out.to(dtype), None if total is None else total.to(dtype), rstd)
    return outputs, out_dims(outputs)


class _Saved(NamedTuple):
    """What is kept for the backward rule: the rows that were normalised, and the weight where they need a gradient."""

    rows: Tensor
    rstd: Tensor
    weight: Tensor | None
    weight_dtype: torch.dtype | None
    row_ndim: int
    eps: float


def _save(args: Record, outputs: Record, needs: Record) -> _Saved:
    weight = args.weight
    rows = args.input if outputs.total is None else outputs.total
    saved_weight = weight if needs.input or needs.residual else None
    dtype = None if weight is None else weight.dtype
    saved: _Saved = new(_Saved, (rows, outputs.rstd, saved_weight, dtype, args.row_ndim, args.eps))
    return saved


def _gradients(saved: _Saved, needs: Record, cotangents: Record) -> Grads:
    grad_out, rows, weight = cotangents.out, saved.rows, saved.weight
    moves = needs.input or needs.residual
    if grad_out is None and cotangents.rstd is None:  # only the sum has a cotangent
        return {"input": cotangents.total, "residual": cotangents.total}
    if grad_out is None:
        grad_out = torch.zeros_like(rows, memory_format=torch.contiguous_format)
    if weight is None and saved.weight_dtype is not None:  # of which no more than shape and dtype is read
        weight = rows.new_zeros(rows_of(saved.row_ndim).affine_shape(rows.shape), dtype=saved.weight_dtype)
    d_rows, d_weight = _rms_norm_backward(
        grad_out, cotangents.total, cotangents.rstd, rows, saved.rstd, weight, saved.row_ndim, saved.eps, 0,
        (moves, needs.weight),
    )  # fmt: skip
    return {"input": d_rows, "residual": d_rows if needs.residual else None, "weight": d_weight}


def _tangents(args: Record, tangents: Record) -> tuple[Tensor, Tensor | None, Tensor]:
    x, t, layout = args.input, tangents.input, rows_of(args.row_ndim)
    if args.residual is not None:
        x = x + args.residual
        t = tangents.residual if t is None else t if tangents.residual is None else raised(t) + tangents.residual
    out, _, rstd = expressions.moved_outputs(
        x, args.weight, layout, args.eps, (t, tangents.weight, None), centred=False
    )
    if rstd is None:  # it depends on the rows alone
        rstd = x.new_zeros(layout.statistics_shape(x.shape), dtype=compute_dtype(x.dtype))
    total = None if args.residual is None else torch.zeros_like(x) if t is None else t.to(x.dtype)
    return out, total, rstd


_AUTOCAST = (("cuda", torch.float32),)

_SIGNATURE = (
    "(Tensor input, Tensor? residual, Tensor? weight, int row_ndim, float eps)"
    " -> (Tensor out, Tensor total, Tensor rstd)"
)
_RULES = Rules(_Saved, _save, _gradients, _tangents)

_rms_norm = Operator(
    f"rms_norm{_SIGNATURE}",
    # As torch, whose older releases do not: it autocasts to float32 on CUDA, and not on the CPU.
    Kernels(cpu.rms_norm, cuda.rms_norm, _fake, _AUTOCAST if has_kernel("aten::rms_norm", "AutocastCUDA") else ()),
    _batched,
    _RULES,
)
# torch's _fused_rms_norm does not autocast.
_fused_rms_norm = Operator(f"fused_rms_norm{_SIGNATURE}", Kernels(cpu.rms_norm, cuda.rms_norm, _fake), _batched, _RULES)
