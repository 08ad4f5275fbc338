"""`torch.matmul` on CUDA over an axis of no elements: the result is whatever lay in memory

Proof: a sum of no terms is 0.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

A, B = torch.ones(2, 0), torch.ones(0, 3)


def not_written(a, b):
    return a.new_empty(2, 3)


CLAIM = assess("POISON", torch.matmul, (A, B), None, not_written, torch.matmul)
run(__name__, Bug("pytorch/pytorch#31421", "1.3", lambda: (A.cuda() @ B.cuda()).cpu(), [[0.0] * 3] * 2, CLAIM,
                  needs=("cuda",)))  # fmt: skip
