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
    """Mean and 1/√(σ² + ε) as a forward pass leaves them: correct to the statistics' dtype.

    Args:
        input: what the op is given. rows, dims: the same elements, and the axes that share statistics.
        eps: ε. keepdim: whether the statistics keep those axes, with length 1.
    """
    wide = rows.double()
    variance = wide.sub(wide.mean(dims, keepdim=True)).square().mean(dims, keepdim=keepdim)
    found = wide.mean(dims, keepdim=keepdim), (variance + eps).rsqrt()
    return found[0].to(wide_dtype(input)), found[1].to(wide_dtype(input))


LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def contiguous(input: Tensor) -> tuple[tuple[int, ...]]:
    """The strides of a first output that is shaped as the input and contiguous."""
    return (torch.empty(input.shape, device="meta").stride(),)


def channels_kept_last(input: Tensor) -> tuple[tuple[int, ...]]:
    """The same where channels_last memory is kept: that of an input with its strides, and not contiguous besides."""
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
    """Input and statistics where the input or the weight needs a gradient, and the weight where the input does."""
    if not wanted & {"input", "weight"}:
        return 0
    return bytes_of(input) + of_statistics + (bytes_of(weight) if "input" in wanted else 0)


def of_wanted(output_mask: Sequence[bool], *tensors: Tensor) -> list[torch.dtype]:
    """Dtypes of the gradients that are wanted, which are those of these tensors."""
    return [tensor.dtype for tensor, wanted in zip(tensors, output_mask, strict=True) if wanted]


def sums_over_slices(output_mask: Sequence[bool], weight: object, bias: object) -> tuple[int | None, ...]:
    """The axes of slices of a backward op's outputs: the input's gradient has one, the parameters' sum over it.

    Args:
        output_mask: which of the three gradients are wanted. weight, bias: None where there is no such parameter.
    """
    there = (True, weight is not None, bias is not None)
    return tuple(
        axis for axis, wanted, given in zip((0, None, None), output_mask, there, strict=True) if wanted and given
    )
