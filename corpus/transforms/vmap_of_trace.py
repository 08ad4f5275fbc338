"""`torch.func.vmap` of `torch.trace`: slices of three dimensions are taken, which `torch.trace` itself refuses

The rule for batches was written for one more dimension, and did not ask how many there are. Refused by now.
Proof: vmap is the loop over the slices, and the first turn of it raises.
"""

import torch

from corpus.bug import REFUSED, Bug, attempt, run
from corpus.seen import Gap

CLAIM = Gap("Refusals are asked for by plain calls; that a call under vmap is refused as its slices are is not asked.")
PLAIN = torch.func.vmap(torch.trace)
run(
    __name__,
    Bug("pytorch/pytorch#91404", "2022-12", lambda: attempt(PLAIN, torch.ones(2, 3, 3, 3)), REFUSED, CLAIM),
)
