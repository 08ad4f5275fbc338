"""`torch.func.vmap` of `torch.autograd.functional.jacobian`: every slice gets a derivative of the whole batch

The outer vmap was not known to the autograd that the inner function calls. Refused by now.
Proof: a slice alone, without vmap; a refusal is no wrong number.
"""

import torch

from corpus.bug import REFUSED, Bug, attempt, run
from corpus.seen import custom

X = torch.tensor([[3.0, 4.0], [6.0, 8.0]])


class OfTheBatch(torch.autograd.Function):
    forward = staticmethod(lambda x: x / torch.linalg.vector_norm(x))
    setup_context = staticmethod(lambda ctx, inputs, output: None)
    vmap = staticmethod(lambda info, dims, x: (x / torch.linalg.vector_norm(x), dims[0]))


class OfTheSlice(OfTheBatch):
    vmap, generate_vmap_rule = torch.autograd.Function.vmap, True


def jacobian(x):
    return torch.autograd.functional.jacobian(torch.linalg.vector_norm, x)


CLAIM = custom("VMAP", [(X[0],)], None, OfTheBatch, OfTheSlice)
run(__name__, Bug("pytorch/functorch#847", "2022-06", lambda: attempt(torch.func.vmap(jacobian), X), REFUSED, CLAIM))
