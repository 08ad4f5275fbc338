"""`x**k` in `jax.jit`, k = 0: the derivative at 0 is NaN, and without jit it is 0

The rule k·x^(k − 1) is 0·∞ there.
Proof: x^0 is the constant 1.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_jax
from corpus.seen import assess

X, K = torch.tensor([0.0, 2.0]), torch.tensor([0, 0])

ACTUAL = by_jax(lambda jax, x, k: jax.vmap(jax.grad(jax.jit(lambda x, k: x**k)))(x, k))
CLAIM = assess("FWD:given", lambda x, k: 0 * x, (X, K), ACTUAL, lambda x, k: k * x ** (k - 1.0))
run(__name__, Bug("jax-ml/jax#18450", "0.4.13", lambda: ACTUAL(X, K), [0.0, 0.0], CLAIM, "jax"))
