"""`F.smooth_l1_loss` on CUDA: with beta = 0 the gradient is NaN where input and target are equal

Where the difference is less than beta the gradient is difference/beta, and the kernel took 0 for less than 0.
Proof: with beta = 0 the documented formula is the mean of |x − y|, whose gradient at equality is 0 in torch.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.derivatives import gradient, with_backward
from corpus.seen import assess

X, Y = torch.tensor([1.0, 2.0]), torch.tensor([1.0, 1.0])


def observed():
    return gradient(lambda x: functional.smooth_l1_loss(x.cuda(), Y.cuda(), beta=0.0), X)


def divided(g, loss, x, y):
    slope = torch.where((x - y).abs() <= 0.0, (x - y) / 0.0, (x - y).sign()) * g / 2
    return slope, -slope


FAULT = with_backward(functional.l1_loss, divided)
CLAIM = assess("VJP:grad", lambda x, y: (x - y).abs().mean(), (X, Y), None, FAULT, functional.l1_loss)
run(__name__, Bug("pytorch/pytorch#96813", "1.13.1", observed, [0.0, 0.5], CLAIM, needs=("cuda",)))
