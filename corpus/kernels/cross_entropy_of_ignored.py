"""`F.cross_entropy` with label smoothing: samples that are to be ignored are part of the loss

One part was averaged over all. Proof: the loss of two samples, of which one is ignored, is that of the other.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

X, TARGET = torch.tensor([[1.0, 9.0], [3.0, 5.0]]), torch.tensor([-100, 1])


def loss(x, target):
    return functional.cross_entropy(x, target, label_smoothing=0.5)


def of_all(x, target):
    return loss(x, target) / 2 + (-x.log_softmax(-1)).mean() / 4


def spec(x, target):
    logs = x[1].log_softmax(-1)
    return -0.5 * logs[1] - 0.5 * logs.mean()


CLAIM = assess("FWD:given", spec, (X, TARGET), loss, of_all)
BUG = Bug("pytorch/pytorch#73205", "2022-02", lambda: loss(X, TARGET), lambda: loss(X[1:], TARGET[1:]), CLAIM)
run(__name__, BUG)
