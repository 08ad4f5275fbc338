"""`F.nll_loss` of images whose channels lie last in memory: the backward raises

Log-probabilities of images (N, C, H, W) that come of `permute`, or of a convolution in the format channels_last, have
a loss and no gradient: "grad_input must be contiguous". Images of one or of three dims have one.

**Documented**: the shapes; how the log-probabilities lie in memory is left to torch.

**Does it matter?** A model in channels_last whose head is a sigmoid and a logarithm cannot be trained. One that ends
with `log_softmax` can, because the result of that has its channels first.
"""

from __future__ import annotations

import mpmath
import torch
import torch.nn.functional as F
from proof import Proof, result_or_nan, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor) -> torch.Tensor:
    return x * 1.0


def proof() -> Proof:
    x = torch.zeros(1, 1, 2, 3, dtype=torch.float64, requires_grad=True)
    slopes = torch.tensor([-1.0, 0.0, 0.0, 0.0, 0.0, -1.0], dtype=torch.float64)

    def gradient() -> torch.Tensor:
        loss = F.nll_loss(x.permute(0, 3, 1, 2), torch.tensor([[[0, 2]]]), reduction="sum")
        return torch.autograd.grad(loss, x)[0].flatten()

    return Proof(
        "gradient of the sum of losses of two pixels, of classes 0 and 2 of 3, whose channels lie last",
        result_or_nan(gradient, slopes), [mpmath.mpf(k) for k in (-1, 0, 0, 0, 0, -1)], spec, (slopes,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
