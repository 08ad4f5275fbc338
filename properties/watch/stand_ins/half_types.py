"""How kernels of half types compute: in float32."""

from __future__ import annotations

from torch import Tensor


def widen(x: Tensor) -> Tensor:
    """A tensor in the format that its dtype is computed in."""
    return x.float() if x.dtype.itemsize == 2 else x
