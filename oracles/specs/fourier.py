"""Fourier transforms of a spec, on the parts of complex numbers: all are one operation, and moves of elements."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def _transform(x: Tensor, dim: Sequence[int], inverse: bool, power: int, real: bool = False) -> Tensor:
    """A transform of parts, (*, 2); `power` is aten's number for the factor 1, 1/√N or 1/N."""
    places = [each % (x.dim() - 1) for each in dim]
    result: Tensor = torch.ops.opassay_specs.fourier(x, places, inverse, power, real)
    return result


def of_complex(real: Tensor, imaginary: Tensor, dim: Sequence[int], power: int, forward: bool) -> Tensor:
    """`aten._fft_c2c`, of parts, as parts."""
    return _transform(torch.stack([real, imaginary], -1), dim, not forward, power)


def of_real(x: Tensor, dim: Sequence[int], power: int, onesided: bool) -> Tensor:
    """`aten._fft_r2c`, as parts; with `onesided`, the first half of the last of the axes alone."""
    spectrum = _transform(torch.stack([x, torch.zeros_like(x)], -1), dim, False, power, real=True)
    last = dim[-1] % x.dim()
    return spectrum.narrow(last, 0, x.shape[last] // 2 + 1) if onesided else spectrum


def to_real(real: Tensor, imaginary: Tensor, dim: Sequence[int], power: int, length: int) -> Tensor:
    """`aten._fft_c2r`: the real part of the inverse transform of a spectrum that its first half has.

    What is its own mirror image is made real by the mean with it: at index 0 and, of an even length, in the middle of
    the last axis. Of one axis that leaves the imaginary parts there out.
    """
    last, others = dim[-1] % real.dim(), [each % real.dim() for each in dim[:-1]]
    half = length // 2 + 1
    real, imaginary = (part.narrow(last, 0, half) for part in (real, imaginary))
    mirrors = [_mirror(part, others) for part in (real, imaginary)]
    middle = length - half + 1  # The first index whose mirror image is among the first half, or itself.

    def between(part: Tensor, start: int, end: int) -> Tensor:
        return part.narrow(last, start, end - start)

    def at_edge(start: int, end: int) -> tuple[Tensor, Tensor]:
        own = [between(part, start, end) for part in (real, imaginary)]
        if not others:
            return own[0], torch.zeros_like(own[1])
        images = [between(part, start, end) for part in mirrors]
        return (own[0] + images[0]) * 0.5, (own[1] - images[1]) * 0.5

    inner = [between(part, 1, middle) for part in (real, imaginary)]
    images = [between(part, 1, middle).flip(last) for part in mirrors]
    first, centre = at_edge(0, 1), at_edge(middle, half)
    parts = torch.stack(
        [
            torch.cat([first[0], inner[0], centre[0], images[0]], last),
            torch.cat([first[1], inner[1], centre[1], -images[1]], last),
        ],
        -1,
    )
    return _transform(parts, [*others, last], True, power, real=True)[..., 0]


def _mirror(x: Tensor, dim: Sequence[int]) -> Tensor:
    """x at −k for k along the axes."""
    return x.flip(list(dim)).roll([1] * len(dim), list(dim)) if dim else x
