"""Paddle on the CPU, `softmax` and `log_softmax`: logits are cut off 64 below the largest one, and NaN disappears

On the CPU logits less the largest one are clipped at −64. So no probability is below 1.6e-28 and no log probability
below −64, whatever the logits are: of 0 and −1000 the log probability is −64, and the cross entropy is 64. A logit of
−∞, by which a mask excludes a class, gets −64 too. The clip also takes a NaN in rows of eight and more: one NaN among
17 logits gets the probability 1e-28, and with an infinite logit all 17 have 1/17. In float64 it is the same.

**Documented**: the formulas, without a clip. On a GPU there is none.

**Does it matter?** A loss on the CPU is not the loss on a GPU once a logit is 64 off; sums of log probabilities of
sequences, and divergences, are wrong; and an activation that has become NaN or infinite comes out as a distribution.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "high"


def proof() -> Proof:
    import paddle

    x = torch.tensor([0.0, -100.0, -1000.0])
    computed = torch.tensor(paddle.nn.functional.log_softmax(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    total = mpmath.log(mpmath.fsum(mpmath.exp(value) for value in numbers(x)))
    call = "paddle.nn.functional.log_softmax of [0, -100, -1000]"
    exact = [value - total for value in numbers(x)]
    return Proof(call, computed, exact, lambda x: torch.log_softmax(x, -1), (x,))


run(__name__, LIBRARY, VERSION, proof)
