"""`F.batch_norm` and `F.instance_norm`: the second derivative is wrong where the first one is taken by forward mode

The derivative of `torch.func.jvp` of batch norm in training, by either mode, drops terms: those by which the mean and
the variance of the batch change. That of `torch.func.grad` is right by either mode, and so is `F.group_norm`. It is
the fault of `F.layer_norm` in another rule.

**Documented**: torch.func.jvp composes with itself; nothing excepts normalisation.

**Does it matter?** Physics-informed networks and Laplacians take second derivatives of a network, and begin with
forward mode where there are many outputs.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(t: torch.Tensor) -> torch.Tensor:
    """The second derivative of t / √(t² + 4)."""
    return -12.0 * t / (t * t + 4.0) ** 2.5


def of(t: torch.Tensor) -> torch.Tensor:
    rows = torch.stack((t, t * 0.0))
    return torch.nn.functional.batch_norm(rows, None, None, training=True, eps=1.0)[0]


def proof() -> Proof:
    t = torch.tensor([0.5], dtype=torch.float64)
    one = torch.ones_like(t)
    _, second = torch.func.jvp(lambda t: torch.func.jvp(of, (t,), (one,))[1], (t,), (one,))
    exact = mpmath.diff(lambda t: t / mpmath.sqrt(t**2 + 4), mpmath.mpf("0.5"), 2)
    return Proof(
        "the derivative of torch.func.jvp of F.batch_norm of (t, 0), eps = 1, by forward mode",
        second,
        [exact],
        spec,
        (t,),
    )


run(__name__, LIBRARY, VERSION, proof)
