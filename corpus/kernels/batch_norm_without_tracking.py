"""`nn.BatchNorm1d`: running statistics are updated though `track_running_stats` has been set to False

Whether they exist decided it, and not the flag. Proof: the documented contract: nothing is tracked with the flag off.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

X = torch.tensor([[1.0, 2.0], [3.0, 6.0]])


def actual(x):
    module = torch.nn.BatchNorm1d(2)
    module.track_running_stats = False
    return module(x).detach(), module.running_mean


def tracking(x):
    mean = torch.zeros(2)
    return functional.batch_norm(x, mean, torch.ones(2), training=True), mean


CLAIM = assess("FWD:given", lambda x: (functional.batch_norm(x, None, None, training=True), torch.zeros(2)), (X,),
               actual, tracking)  # fmt: skip
run(__name__, Bug("pytorch/pytorch#38084", "2020", lambda: actual(X)[1], [0.0, 0.0], CLAIM))
