"""`torch.compile`: the first compilation makes the whole process read subnormal numbers as zero

The compiled library was linked so that loading it sets the mode of the processor.
Proof: half of the smallest normal number is a subnormal one, and not 0.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import ask_property

SMALLEST = torch.tensor([torch.finfo(torch.float32).tiny])


def observed():
    torch.compile(lambda x: x + 1)(torch.ones(3))
    return (SMALLEST / 2 == 0).item()


def flushing(x):
    torch.set_flush_denormal(True)
    return x + 1


CLAIM = ask_property("PURE", lambda x: x + 1, {"x": ("n",)}, lambda x: x + 1, flushing)
run(__name__, Bug("pytorch/pytorch#136273", "2024", observed, False, CLAIM, needs=("g++",)))
