"""Liger, `LigerRopeFunction`: wrong heads for one token and a batch of two

The kernel's program number r reads at r·`q.stride(1)`, which is the distance of two tokens, and of two sequences as
well, once q is contiguous. An axis of size 1 may have any stride, though, and `contiguous()` leaves it: for q of shape
(batch, heads, 1, size) in that order of memory it is the distance of two heads. Of two heads and two sequences, the
second head of the first sequence is rotated twice, and that of the second sequence not at all.

**Documented**: q of shape (batch, heads, tokens, size). The model code of Hugging Face passes a transposed view, with
which the stride happens to be right.

**Does it matter?** Decoding with a batch goes token by token, so the shape is common; it is wrong only where q was
made contiguous in the documented order. The result is then altogether wrong, and in place.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "high"
COSINE, SINE = 0.6, 0.8


def spec(q: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    turned = torch.cat((-q[..., 2:], q[..., :2]), -1)
    return q * cosine + turned * sine


def exact(q: torch.Tensor, cosine: mpmath.mpf, sine: mpmath.mpf) -> list[mpmath.mpf]:
    """The same, head by head, by mpmath."""
    values: list[mpmath.mpf] = []
    for a, b, c, d in (numbers(head) for head in q.reshape(-1, 4)):
        values += [a * cosine - c * sine, b * cosine - d * sine, c * cosine + a * sine, d * cosine + b * sine]
    return values


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from liger_kernel.ops.rope import LigerRopeFunction

    q = torch.arange(1.0, 17.0).reshape(2, 2, 1, 4)  # 2 sequences, 2 heads, 1 token
    cosine, sine = torch.full((1, 1, 4), COSINE), torch.full((1, 1, 4), SINE)
    computed, _ = LigerRopeFunction.apply(q.clone(), q.clone(), cosine, sine)
    (c, *_), (s, *_) = numbers(cosine), numbers(sine)
    call = "LigerRopeFunction.apply(q, k, cos, sin)[0], q of shape (2, 2, 1, 4), contiguous"
    return Proof(call, computed, exact(q, c, s), spec, (q, cosine, sine))


run(__name__, LIBRARY, VERSION, proof)
