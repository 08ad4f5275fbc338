"""Kernels of batch norm's tangent on CUDA, in the tiles of the backward kernels: those hold two operands, too.

A channel that fits into one tile is read once, in one launch; otherwise there are three, as forward. Memory formats are
those of the forward's output.
"""

from __future__ import annotations

from torch import Tensor

from ...gpu.launching import as_operand, dense, empty, launch, solid
from ...operator.precision import compute_dtype
from ..kernels_cpu.operands import Moved
from ..layout import memory_format
from .batch_norm import COMBINING_WARPS, Cut, cut_of, output_like


def batch_norm_jvp(
    x: Tensor, weight: Tensor | None, t_input: Tensor | None, t_weight: Tensor | None, t_bias: Tensor | None,
    eps: float, statistics: bool,
) -> Moved | None:  # fmt: skip
    """Tangents of (out, mean, invstd); None where x is not read.

    Args:
        x: (N, C, *). weight: (C,), or None for ones.
        t_input, t_weight, t_bias: tangents, None for zero.
        eps: added to the variance. statistics: whether those of mean and invstd are wanted.
    """
    if not x.numel() or (t_input is None and t_weight is None):
        return None
    from ..kernels_triton import batch_norm_jvp as texts

    wide, memory = compute_dtype(x.dtype), memory_format(x)
    cut = cut_of(x.shape, memory, x.dtype, 2)
    out = output_like(x, memory)
    x, t = x.contiguous(memory_format=memory), dense(solid(t_input), memory)
    factors = [dense(solid(p)) for p in (weight, t_weight, t_bias)]
    numbers = as_operand(float(cut.elements), wide), as_operand(eps, wide)
    moves = statistics and t is not None
    t_mean, t_invstd = (_wide(x, cut.channels) if moves else None for _ in range(2))
    if cut.whole:
        operands: tuple[object, ...] = (x, t, *factors, out, t_mean, t_invstd, *cut.extents, *numbers)
        launch(texts.batch_norm_jvp_whole, cut.tiles, operands, cut.constants, cut.warps)
        return out, t_mean, t_invstd
    per_channel = _statistics(cut, (x, t), (t_mean, t_invstd), numbers)
    operands = (x, t, *per_channel, *factors, out, *cut.extents, cut.each, numbers[1])
    launch(texts.batch_norm_jvp_apply, cut.tiles, operands, {"CONSTANT": False, **cut.constants}, cut.warps)
    return out, t_mean, t_invstd


def batch_norm_evaluation_jvp(
    x: Tensor, weight: Tensor | None, running_mean: Tensor, running_var: Tensor, t_input: Tensor | None,
    t_weight: Tensor | None, t_bias: Tensor | None, eps: float,
) -> Tensor | None:  # fmt: skip
    """The tangent of out from constant statistics; None where neither x nor its tangent is read.

    Args:
        x, weight, t_input, t_weight, t_bias, eps: as for `batch_norm_jvp`.
        running_mean, running_var: (C,).
    """
    if not x.numel() or (t_input is None and t_weight is None):
        return None
    from ..kernels_triton import batch_norm_jvp as texts

    memory = memory_format(x)
    cut = cut_of(x.shape, memory, x.dtype, 2)
    out = output_like(x, memory)
    # Without a tangent of the weight x is an operand that the kernel does not read, and need not be dense for it.
    x = x if t_weight is None else x.contiguous(memory_format=memory)
    factors = [dense(solid(p)) for p in (weight, t_weight, t_bias)]
    constants = running_mean.contiguous(), running_var.contiguous(), None, None
    operands: tuple[object, ...] = (
        x, dense(solid(t_input), memory), *constants, *factors, out, *cut.extents, cut.each,
        as_operand(eps, compute_dtype(x.dtype)),
    )  # fmt: skip
    launch(texts.batch_norm_jvp_apply, cut.tiles, operands, {"CONSTANT": True, **cut.constants}, cut.warps)
    return out


def _statistics(
    cut: Cut, pair: tuple[Tensor, Tensor | None], moved: tuple[Tensor | None, Tensor | None],
    numbers: tuple[float | int, float | int],
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None]:  # fmt: skip
    """Mean and invstd of channels that do not fit, bar(t) and bar((t - bar(t)) xh), in two launches.

    Args:
        cut: of the input. pair: the input and its tangent. numbers: elements of a channel, and eps.
        moved: where the tangents of mean, which is bar(t), and of invstd go; None where not wanted.
    """
    from ..kernels_triton import batch_norm_jvp as texts

    x, t = pair
    bar, t_invstd = moved
    mean, invstd = _wide(x, cut.channels), _wide(x, cut.channels)
    sums, squares = (_wide(x, cut.pieces, cut.extents[1]) for _ in range(2))
    of_t = slope = products = None
    if t is not None:
        of_t, products = (_wide(x, cut.pieces, cut.extents[1]) for _ in range(2))
        slope, bar = _wide(x, cut.channels), _wide(x, cut.channels) if bar is None else bar
    partial = sums, squares, of_t, products
    launch(texts.batch_norm_jvp_moments, cut.tiles, (x, t, *partial, *cut.extents), cut.constants, cut.warps)
    samples, _, length, over, _ = cut.extents
    extents = (cut.channels, cut.each, cut.pieces, samples, length, over)
    tile = {name: cut.constants[name] for name in ("SAMPLES", "POSITIONS")}
    operands: tuple[object, ...] = (*partial, mean, invstd, bar, slope, t_invstd, *extents, *numbers)
    launch(texts.batch_norm_jvp_combine, cut.combining, operands, {**cut.parts, **tile}, COMBINING_WARPS)
    return mean, invstd, bar, slope


def _wide(x: Tensor, *shape: int) -> Tensor:
    return empty(shape, compute_dtype(x.dtype), x.device)
