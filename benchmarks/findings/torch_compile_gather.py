"""`torch.compile` on CPUs: the gradient of a gather is lost beside that of slices of the same tensor

A conditional random field takes the score of the right labels by `gather` and goes through the scores row by row, each
by a sum over the labels before. In a sequence of ten the compiled backward pass leaves out all that `gather` gives to
the gradients of the layer which made the scores. It has it where `gather` is called after the rows were taken, and in
a sequence of four. Without the compiler, and with the backend "aot_eager", the gradients are right.

**Documented**: torch.compile promises the results of the same code without it.

**Does it matter?** The loss is right and its gradient is not: the layer learns nothing of its labels, in silence.
"""

from __future__ import annotations

import mpmath
import torch
import torch.nn.functional as F
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"
ROWS, COUNT = 10, 7
LABELS = torch.arange(2 * ROWS).reshape(2, ROWS) % COUNT


def loss(words: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, moves: torch.Tensor) -> torch.Tensor:
    """The mean of what labels of two sequences are worth, less the logarithm of the sum over all labels."""
    scores = F.linear(words, weight, bias)
    right, total = scores.gather(2, LABELS[..., None]).sum((1, 2)), scores[:, 0]
    for row in range(1, ROWS):
        total = torch.logsumexp(total[:, :, None] + moves, 1) + scores[:, row]
    return (torch.logsumexp(total, 1) - right).mean()


def spec(labels: torch.Tensor) -> torch.Tensor:
    """The gradient of the bias, where all scores are alike: each label has a seventh of the rows, less its own."""
    return ROWS / COUNT - (labels.reshape(-1, 1) == torch.arange(COUNT)).float().sum(0) / 2


def proof() -> Proof:
    weight, bias, moves = (torch.zeros(size, requires_grad=True) for size in ((COUNT, 16), (COUNT,), (COUNT, COUNT)))
    torch.compile(loss)(torch.ones(2, ROWS, 16), weight, bias, moves).backward()
    assert bias.grad is not None
    exact = [mpmath.mpf(ROWS) / COUNT - mpmath.mpf(LABELS.flatten().tolist().count(i)) / 2 for i in range(COUNT)]
    call = "the gradient of a conditional random field's bias, compiled; 2 sequences of 10, 7 labels, all scores 0"
    return Proof(call, bias.grad, exact, spec, (LABELS,))


run(__name__, LIBRARY, VERSION, proof)
