"""The word of a formula that is a discrete Fourier transform."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from .kind import Array, Params, bind


def fourier(x: Any, axes: Sequence[int], *, inverse: bool = False, power: int = 0, real: bool = False) -> Any:
    """Σ x_j exp(∓2πi j·k/n) over the axes, times N^(−power/2) with N the product of their lengths.

    Args:
        x: (*shape, 2), the real and the imaginary parts along the last axis. axes: of shape.
        inverse: whether the sign of the exponent is +. power: 0, 1 or 2.
        real: whether the imaginary parts of x are zero, or those of the result are not used, so that an evaluation may
            make one complex number of two real ones.

    Returns:
        (*shape, 2).
    """
    x = x if isinstance(x, Array) else np.asarray(x)
    places = tuple(sorted(int(axis) % (x.ndim - 1) for axis in axes))
    params: Params = {"axes": places, "inverse": bool(inverse), "power": int(power), "real": bool(real)}
    return bind("fourier", (x,), params) if isinstance(x, Array) else fourier_of_numbers(x, **params)


def fourier_of_numbers(x: Any, axes: tuple[int, ...], inverse: bool, power: int, real: bool = False) -> Any:
    """The transform of numbers of float64, or of longdouble where NumPy transforms these as they are."""
    scale = x.dtype.type(math.prod(x.shape[axis] for axis in axes)) ** (x.dtype.type(power) / -2)
    complex_ = np.empty(x.shape[:-1], np.result_type(x.dtype, np.complex64))
    complex_.real, complex_.imag = x[..., 0], x[..., 1]
    # The names that NumPy has for a transform of either sign without a factor.
    out = np.fft.ifftn(complex_, axes=axes, norm="forward") if inverse else np.fft.fftn(complex_, axes=axes)
    return np.stack([out.real, out.imag], axis=-1) * scale
