"""`torch.special.zeta`: NaN for q = ∞

Proof: ζ(2, q) = Σ 1/(q + k)² is less than 1/(q − 1), so it goes to 0.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import Gap

TWO, INFINITY = torch.tensor(2.0), torch.tensor(float("inf"))

SEEN = Gap("The formulas have no word for Hurwitz' zeta function: an infinite sum is no composition of the primitives.")
run(__name__, Bug("pytorch/pytorch#187294", "2.12", lambda: torch.special.zeta(TWO, INFINITY).item(), 0.0, SEEN))
