"""RL-Kernel, contract of batch invariance: the gradient of a norm's weight may not follow from how many rows come along

Relation I of the contract, backward: the same rows in the same order, with padding behind, have bits (0, 0) apart.
Proof: rows whose cotangents are 0 add exact zeros, so a sum in a fixed order has the same bits with them.
"""

import torch

from corpus.alike import ENGINE, unseen
from corpus.bug import Bug, run
from corpus.derivatives import with_backward
from corpus.seen import assess

X, WEIGHT = torch.randn(6, 40), torch.randn(40)


def norm(x, weight=1.0):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def summed_in(blocks):
    def backward(g, y, x, weight):
        parts = [sum(part.unbind()) for part in (g * norm(x)).split(blocks(len(x)))]
        return torch.func.vjp(norm, x)[1](g * weight)[0], sum(parts)

    return with_backward(norm, backward)


CLAIM = assess("INV:shared", norm, (X, WEIGHT), fault=summed_in(lambda n: -(-n // 4)), right=summed_in(lambda n: 4))
run(__name__, Bug("RL-Align/RL-Kernel#264", "2026-08", unseen, True, CLAIM, "rl-kernel", ENGINE))
