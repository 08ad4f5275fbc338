"""What the declarations of layer, group and batch norm have in common: statistics, and promises about what is kept."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ...declaring.drawing import bytes_of, wide_dtype

Tensor = torch.Tensor
AFFINE = ("input", "weight", "bias")


def statistics(
    input: Tensor, rows: Tensor, dims: tuple[int, ...], eps: float, *, keepdim: bool = False
) -> tuple[Tensor, Tensor]:
    """Mean and 1/√(σ² + ε), correctly rounded to the dtype of a forward pass's statistics.

    Args:
        input: of the op. rows, dims: the elements of the input, and the axes of `rows` that share statistics.
        eps: ε. keepdim: whether the statistics keep those axes, with length 1.
    """
    wide = rows.double()
    variance = wide.sub(wide.mean(dims, keepdim=True)).square().mean(dims, keepdim=keepdim)
    mean, rstd = wide.mean(dims, keepdim=keepdim), (variance + eps).rsqrt()
    return mean.to(wide_dtype(input)), rstd.to(wide_dtype(input))


LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def contiguous(input: Tensor) -> tuple[tuple[int, ...]]:
    """The strides of a first output that is shaped as the input and contiguous."""
    return (torch.empty(input.shape, device="meta").stride(),)


def channels_kept_last(input: Tensor) -> tuple[tuple[int, ...]]:
    """The strides of a first output that keeps the input's channels_last memory; else it is contiguous."""
    if input.dim() in LAST and not input.is_contiguous():
        last = torch.empty(input.shape, device="meta", memory_format=LAST[input.dim()]).stride()
        if input.stride() == last:
            return (last,)
    return contiguous(input)


def with_statistics(input: Tensor) -> tuple[torch.dtype, ...]:
    """Dtypes of an output and of its two statistics."""
    return input.dtype, wide_dtype(input), wide_dtype(input)


def bytes_of_statistics(input: Tensor, rows: int) -> int:
    """Bytes of two statistics for each row."""
    return 2 * rows * wide_dtype(input).itemsize


def saved(input: Tensor, weight: Tensor | None, of_statistics: int, wanted: set[str]) -> int:
    """Bytes of input and statistics where input or weight need a gradient; of the weight, too, where the input does."""
    if not wanted & {"input", "weight"}:
        return 0
    return bytes_of(input) + of_statistics + (bytes_of(weight) if "input" in wanted else 0)


def dtypes_of_gradients(
    input: Tensor, weight: Tensor | None, output_mask: Sequence[bool], bias: Tensor | None = None
) -> list[torch.dtype]:
    """Dtypes of the gradients in `output_mask`: parameters have one dtype; a weight that is not there, no gradient."""
    of_parameters = next((t for t in (weight, bias) if t is not None), input).dtype
    mask = (output_mask[0], output_mask[1] and weight is not None, *output_mask[2:])
    return [dtype for dtype, in_mask in zip((input.dtype, of_parameters, of_parameters), mask, strict=False) if in_mask]


def sums_over_slices(output_mask: Sequence[bool], *parameters: object) -> tuple[int | None, ...]:
    """The axes of slices of the gradients in `output_mask`: the input's has one, those of parameters sum over it."""
    there = (True, *(parameter is not None for parameter in parameters))
    axes = (0, *[None] * len(parameters))
    return tuple(axis for axis, in_mask, exists in zip(axes, output_mask, there, strict=True) if in_mask and exists)
