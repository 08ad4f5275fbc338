"""`jax.nn.log_softmax`: one of two gradients that are each other's negative is 0

It is the cotangent minus the sum of it times the softmax, and 1 − 1 is what is left of e^−37.
Proof: with two numbers the gradient of the first output is (σ(−d), −σ(−d)), d their difference.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_jax
from corpus.seen import assess

X = torch.tensor([38.0, 0.0], dtype=torch.float64)


def spec(x):
    slope = torch.sigmoid(x[1] - x[0])
    return torch.stack((slope, -slope))


ACTUAL = by_jax(lambda jax, x: jax.grad(lambda x: jax.nn.log_softmax(x)[0])(x))
CLAIM = assess("FWD:given", spec, (X,), ACTUAL, lambda x: torch.tensor([1.0, 0.0]) - x.softmax(0), spec)
run(__name__, Bug("jax-ml/jax#40384", "2026-09", lambda: ACTUAL(X), lambda: spec(X), CLAIM, "jax"))
