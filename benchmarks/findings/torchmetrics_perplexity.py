"""torchmetrics, `perplexity`: infinite once a token has a probability below 1e-45

The probability is computed by softmax, and its logarithm taken afterwards, so that a logit that is 104 below the
largest one makes the metric of all tokens infinite. With one such token among a hundred the perplexity is 4.1 here,
and comes out as infinity. From 88 on digits are lost.

**Documented**: the exponential of the mean negative log likelihood of logits.

**Does it matter?** One token that a model all but excludes, or a masked vocabulary, makes the metric of an epoch
infinite, in float32; in float16 the smallest probability is 6e-8.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torchmetrics", "1.9.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(logits: torch.Tensor) -> torch.Tensor:
    return torch.exp((torch.logsumexp(logits, -1) - logits[..., 0]).mean())


def proof() -> Proof:
    from torchmetrics.functional.text import perplexity

    logits = torch.tensor([[[0.0, 110.0]] + [[1.0, 0.0]] * 99])
    computed = perplexity(logits, torch.zeros(1, 100, dtype=torch.long))
    losses = [mpmath.log1p(mpmath.exp(other - own)) for own, other in map(numbers, logits[0])]
    exact = mpmath.exp(mpmath.fsum(losses) / 100)
    call = "torchmetrics.functional.text.perplexity of one token of logit 0 beside 110, and 99 of 1 beside 0"
    return Proof(call, computed, [exact], spec, (logits,))


run(__name__, LIBRARY, VERSION, proof)
