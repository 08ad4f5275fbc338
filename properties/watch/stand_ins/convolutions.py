"""The backwards of convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from .pulled_back import pull_back_masked


def convolution_backward(
    g: Tensor, x: Tensor, weight: Tensor, bias_sizes: Sequence[int] | None, stride: Sequence[int],
    padding: Sequence[int], dilation: Sequence[int], transposed: bool, output_padding: Sequence[int], groups: int,
    output_mask: Sequence[bool],
) -> list[Tensor | None]:  # fmt: skip
    """The cotangents of operand, weight and bias, of which the mask says which are asked for."""
    bias = x.new_zeros([weight.shape[1] * groups if transposed else weight.shape[0]]) if output_mask[2] else None
    form = map(list, (stride, padding, dilation))
    args = [x, weight, bias, *form, transposed, list(output_padding), groups]
    return pull_back_masked("convolution", args, g, output_mask)


STAND_INS: dict[str, Callable[..., Any]] = {"convolution_backward": convolution_backward}
