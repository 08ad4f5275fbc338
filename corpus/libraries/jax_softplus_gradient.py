"""`jax.nn.softplus`: the gradient at 0 is 0

log(1 + e^x) was differentiated through max(x, 0) and |x|, whose slopes at 0 were taken to be 0.
Proof: the derivative is σ(x), and σ(0) = 1/2.
"""

import torch

from corpus.bug import Bug, run
from corpus.foreign import by_jax
from corpus.seen import assess

X = torch.tensor([0.0, 1.0])


def through_kinks(x):
    return torch.where(x == 0, 0 * x, torch.sigmoid(x))


ACTUAL = by_jax(lambda jax, x: jax.vmap(jax.grad(jax.nn.softplus))(x))
CLAIM = assess("FWD:given", torch.sigmoid, (X,), ACTUAL, through_kinks, torch.sigmoid)
run(__name__, Bug("jax-ml/jax#2107", "2020-01", lambda: ACTUAL(X)[0].item(), 0.5, CLAIM, "jax"))
