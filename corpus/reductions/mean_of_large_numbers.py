"""`torch.mean`, float32: infinite for three numbers of 3e38

The sum overflows before it is divided. float32 goes to 3.4e38, and the mean lies between the numbers.
Proof: the mean of equal numbers is the number.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import Gap, assess

LARGE = torch.tensor([3e38, 3e38, 3e38])

ATTEMPT = assess("FWD:given", torch.mean, (LARGE,), actual=torch.mean, right=lambda x: (x / 3).sum())
CLAIM = Gap(
    "Elements whose formula overflows on the way are not judged, and the formula of a mean is a sum first.", ATTEMPT
)
run(__name__, Bug("pytorch/pytorch#44350", "1.7.0a0", lambda: LARGE.mean(), 3e38, CLAIM))
