"""`torch.autocast`: a weight that was changed is still multiplied by as it was

The copy in bfloat16 is cached by the tensor, and a write to the tensor in place is not noticed until autocast ends.
Proof: the product by ones tripled is 6, not 2.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X, W = torch.ones(1, 2), torch.ones(2, 2)


def actual(x, w):
    w = w.clone().requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        x @ w
        with torch.no_grad():
            w *= 3
        return (x @ w).detach().float()


CLAIM = assess("FWD:given", lambda x, w: x @ (3 * w), (X, W), actual, right=lambda x, w: x @ (3 * w))
run(__name__, Bug("X-GenGroup/Flow-Factory#186", "2026-06", lambda: actual(X, W), [[6.0, 6.0]], CLAIM))
