"""`torch.autograd.Function`: what forward keeps as an attribute of ctx is a constant in double backward

Nothing is raised. Proof: (x³)″ = 6x, which is 6 at 1; without the term of the kept x² it is 4.
"""

import torch

from corpus.bug import Bug, run
from corpus.derivatives import twice_backward
from corpus.seen import custom


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        ctx.square = x * x
        return x * ctx.square

    @staticmethod
    def backward(ctx, g):
        return g * (ctx.square + 2 * ctx.saved_tensors[0] ** 2)


class Right(Cube):
    backward = staticmethod(lambda ctx, g: g * 3 * ctx.saved_tensors[0] ** 2)


CLAIM = custom("ORD2", [(torch.ones(1),)], Cube, right=Right)
run(__name__, Bug("pytorch/pytorch#76185", "2022-04", lambda: twice_backward(Cube.apply, torch.ones(1)), [6.0], CLAIM))
