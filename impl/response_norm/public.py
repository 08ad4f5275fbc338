"""Local response normalisation across channels: the public function and the module."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.arguments import require_floating, require_int, require_tensor
from ..operator.precision import HALF
from . import rules as ops

_NUMBERS = (float, int, torch.SymFloat, torch.SymInt)


def cross_map_lrn2d(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1,
) -> Tensor:  # fmt: skip
    """Each value divided by a power of the squares around it: b_c = a_c (k + alpha / size * sum a_c'^2)^(-beta).

    The sum runs over the channels c' of a window of `size` channels centred on c: size // 2 before it and
    (size - 1) // 2 after it, cut off at the first and the last channel. The divisor is `size` there, too.
    This is `torch.nn.functional.local_response_norm` (same window, same order of arguments).
    `torch.nn.CrossMapLRN2d` means the same formula, but its forward never takes channel 0 out of the sum, so that every
    window holds it, and its backward is not the derivative of that: `benchmarks/findings/torch_cross_map_lrn.py`.

    Args:
        input: (N, C, H, W), float64, float32, bfloat16 or float16, any strides, cpu or cuda.
        size: channels in the window, at least 1; may exceed C.
        alpha, beta, k: any numbers. A base that is negative (alpha < 0) gives NaN unless beta is an integer.

    Returns:
        A contiguous tensor of the input's shape and dtype. Half-precision inputs are computed in float32 and rounded
        once. Where k = 0 and the whole window is 0 the result is 0 * 0^(-beta), NaN for beta > 0. Squares that
        overflow make the base infinite: 0 for beta > 0.

    Raises:
        ValueError: input does not have four dims.
        TypeError: input is not a tensor, size not an int, alpha, beta or k not a number.
        RuntimeError: size is less than 1.
        NotImplementedError: input is not of a floating dtype named above.

    Source: A. Krizhevsky, I. Sutskever, G. E. Hinton, ImageNet Classification with Deep Convolutional Neural
    Networks, NeurIPS 2012, section 3.3, with alpha / size for their alpha.
    """
    name = "cross_map_lrn2d"
    require_tensor(name, "input", input)
    if type(size) is not int:
        require_int(name, "size", size)
    for label, value in (("alpha", alpha), ("beta", beta), ("k", k)):
        if not isinstance(value, _NUMBERS):
            raise TypeError(f"{name}: got {label}={value!r}, need a number.")
    if input.dim() != 4:
        raise ValueError(f"{name}: got input of shape={list(input.shape)}, need four dims (N, C, H, W).")
    require_floating(name, "input", input)
    if size < 1:
        raise RuntimeError(f"{name}: got size={size}, need at least 1.")
    if beta > 0 and input.requires_grad and torch.is_grad_enabled() and input.dtype not in HALF:
        # This op saves s and s^beta, which take as much memory as in torch's module and halve the backward's time.
        return ops.cross_map_lrn2d_keeping(input, size, alpha, beta, k)[0]
    return ops.cross_map_lrn2d(input, size, alpha, beta, k)


class CrossMapLRN2d(torch.nn.CrossMapLRN2d):
    """`torch.nn.CrossMapLRN2d` on `cross_map_lrn2d`: the same constructor and (empty) state_dict, the right window."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `cross_map_lrn2d`."""
        return cross_map_lrn2d(input, self.size, self.alpha, self.beta, self.k)
