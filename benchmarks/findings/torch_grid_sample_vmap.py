"""`F.grid_sample` under vmap of different dims: an internal assertion

Where both operands are mapped the rule of vmap divides the result by the size of the image at the dim at which the
grid is mapped, and not by the size of the batch. At equal dims the two are the same. Otherwise an internal assertion
fails, or the result has another batch than the inputs. 2.15.0 is right.

**Documented**: in_dims may be any dim of each operand.

**Does it matter?** Whoever keeps the batch in different places meets an error that asks to report it.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "low"


def spec(x: torch.Tensor) -> torch.Tensor:
    """The middle of a picture of three times three."""
    return x[..., 1, 1] * 1.0


def proof() -> Proof:
    x, grid = torch.arange(18.0).reshape(2, 1, 1, 3, 3), torch.zeros(1, 1, 1, 2, 2)

    def sample(x: torch.Tensor, grid: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.grid_sample(x, grid, align_corners=True).reshape(1, 1)

    computed = result_or_nan(lambda: torch.vmap(sample, in_dims=(0, -1))(x, grid), x[..., 1, 1])
    middle = [mpmath.mpf(4), mpmath.mpf(13)]
    return Proof("torch.vmap(F.grid_sample, in_dims=(0, -1))(x, grid), which raises", computed, middle, spec, (x,))


run(__name__, LIBRARY, VERSION, proof)
