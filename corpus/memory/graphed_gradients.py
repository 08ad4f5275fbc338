"""`torch.cuda.make_graphed_callables`: a gradient is overwritten by the next backward

The gradients of parameters are buffers of the graph, and they are handed out without a copy.
Proof: results belong to who asked for them.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess


def observed() -> bool:
    layer, x = torch.nn.Linear(2, 2).cuda(), torch.ones(1, 2, device="cuda")
    call = torch.cuda.make_graphed_callables(layer, (x,))
    (first,) = torch.autograd.grad(call(x).sum(), layer.weight)
    copy = first.clone()
    torch.autograd.grad(call(3 * x).sum(), layer.weight)
    return torch.equal(first, copy)


BUFFER = torch.empty(3)


def of_the_graph(x):
    return BUFFER.copy_(2 * x)


CLAIM = assess("CALLS:kept", lambda x: 2 * x, (torch.arange(3.0),), None, of_the_graph, lambda x: 2 * x)
run(__name__, Bug("pytorch/pytorch#181723", "2026-04", observed, True, CLAIM, needs=("cuda",)))
