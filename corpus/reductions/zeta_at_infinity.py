"""`torch.special.zeta`: NaN for q = ∞

Proof: ζ(2, q) = Σ 1/(q + k)² is less than 1/(q − 1), so it goes to 0. The formula is that of Euler and Maclaurin after
50 terms, whose error is less than 1e-17.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

Q = torch.tensor([2.0, float("inf")], dtype=torch.float64)


def actual(q):
    return torch.special.zeta(torch.full_like(q, 2.0), q)


def formula(q):
    far = q + 50.0
    rest = 1 / far + 0.5 / far**2 + 1 / (6 * far**3) - 1 / (30 * far**5) + 1 / (42 * far**7)
    return rest + sum(1 / (q + k) ** 2 for k in range(50))


CLAIM = assess("FWD:given", formula, (Q,), actual, right=formula)
run(__name__, Bug("pytorch/pytorch#187294", "2.12", lambda: actual(Q)[1].item(), 0.0, CLAIM))
