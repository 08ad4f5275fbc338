"""`torch.native_batch_norm` in bfloat16 on CPUs: the reciprocal deviation is rounded twice

The operation returns the result, the mean and the reciprocal deviation of each channel. On its way to the last one the
variance is rounded to bfloat16, and the root of it once more: of 400 draws of two channels 113 have an element that is
off by more than half a unit in the last place, and the worst by 1.1 units. In float16 it is rounded once.

**Documented**: nothing of the format of the statistics. On GPUs they are kept in float32.

**Does it matter?** The backward takes it from there, so that all gradients of a channel get the same factor, which is
off by up to 0.4 percent.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "low"
_EPS = 2.0**-17


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.native_batch_norm(x, None, None, None, None, True, 0.1, _EPS)[2]


def proof() -> Proof:
    x = torch.randn((4, 2, 5), generator=torch.Generator().manual_seed(358)).bfloat16()
    _, _, computed = torch.native_batch_norm(x, None, None, None, None, True, 0.1, _EPS)
    exact = [_exact(x[:, channel]) for channel in range(2)]
    return Proof("torch.native_batch_norm's reciprocal deviation of (4, 2, 5), bfloat16", computed, exact, spec, (x,))


def _exact(x: torch.Tensor) -> mpmath.mpf:
    values = numbers(x)
    mean = mpmath.fsum(values) / len(values)
    return 1 / mpmath.sqrt(mpmath.fsum((value - mean) ** 2 for value in values) / len(values) + mpmath.mpf(_EPS))


run(__name__, LIBRARY, VERSION, proof)
