"""`jax.numpy.expm1`: the gradient is 0 from −37 on

It is taken as the result plus 1, and the result is −1 there.
Proof: the derivative is e^x, which float64 has down to −745.
"""

import math

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_jax
from corpus.seen import assess

X = torch.tensor([-40.0, 0.5], dtype=torch.float64)

ACTUAL = by_jax(lambda jax, x: jax.vmap(jax.grad(jax.numpy.expm1))(x))
CLAIM = assess("FWD:given", torch.exp, (X,), ACTUAL, lambda x: torch.expm1(x) + 1, torch.exp)
run(__name__, Bug("jax-ml/jax#39794", "2026-08", lambda: ACTUAL(X)[0].item(), math.exp(-40), CLAIM, "jax"))
