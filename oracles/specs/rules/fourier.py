"""The operation that Fourier transforms are traced as."""

from __future__ import annotations

from typing import Any

import torch

from ....reference.array import fourier
from .table import DECOMPOSED, LIBRARY, RULES, enter


def _transform_tensor(x: Any, dim: Any, inverse: bool, power: int, real: bool) -> Any:
    complex_, names = torch.view_as_complex(x.contiguous()), ("backward", "ortho", "forward")
    if inverse:
        return torch.view_as_real(torch.fft.ifftn(complex_, dim=dim, norm=names[2 - power]))
    return torch.view_as_real(torch.fft.fftn(complex_, dim=dim, norm=names[power]))


def _frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **how: Any) -> torch.Tensor:
    """k / (n d), of which torch multiplies k with the quotient."""
    k = (torch.arange(n, device=device) + n // 2) % n - n // 2
    return k.to(dtype or torch.get_default_dtype()) / (n * d)


def _first_frequencies(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None, **how: Any) -> torch.Tensor:
    return torch.arange(n // 2 + 1, device=device).to(dtype or torch.get_default_dtype()) / (n * d)


LIBRARY.define("fourier(Tensor x, int[] dim, bool inverse, int power, bool real) -> Tensor")
LIBRARY.impl("fourier", _transform_tensor, "CPU")
LIBRARY.impl("fourier", lambda x, *_: torch.empty_like(x), "Meta")
RULES[torch.ops.opassay_specs.fourier.default] = lambda x, dim, inverse, power, real: fourier(
    x, dim, inverse=inverse, power=power, real=real
)
enter({"fft_fftfreq": _frequencies, "fft_rfftfreq": _first_frequencies}, DECOMPOSED)
