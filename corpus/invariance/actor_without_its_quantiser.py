"""verl, on-policy training: the rollout computes with eight-bit weights and activations, and the actor has to as well

The recipe of the thread gives the actor the same path, and `rollout_probs_diff` is then 0, not small.
Proof: with the same rounding on both sides nothing is left to differ; without it each product has another factor.
"""

import torch

from corpus.alike import ENGINE, align, unseen
from corpus.bug import Bug, run

X, WEIGHT = torch.randn(8, 32), torch.randn(32, 12)


def rounded(x, axis):
    return (x / (scale := x.abs().amax(axis, keepdim=True) / 448)).to(torch.float8_e4m3fn).float() * scale


def master_weights(x, weight):
    return torch.log_softmax((x[:, :, None] * weight).cumsum(1)[:, -1].double(), -1).float()


def actor(x, weight):
    return master_weights(rounded(x, 1), rounded(weight, 0))


rollout = torch.no_grad()(lambda x, weight: torch.cat([actor(one, weight) for one in x.split(3)]))
CLAIM = align(actor, (X, WEIGHT), "wrong", master_weights, rollout)
run(__name__, Bug("verl-project/verl#7688", "2026-09", unseen, True, CLAIM, "verl", ENGINE))
