"""`torch.matmul` of float32 on Ampere GPUs: 1024.5 times 1 is 1025 or 1024

Factors were rounded to 11 digits (TF32) by default, up to 1.11.
Proof: 1024.5·1 = 1024.5 has 12 digits, and float32 has 24.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

X, ONE = torch.tensor([[1024.5]]), torch.ones(1, 1)


def rounded(a, b):
    scale = 2.0**13 + 1
    return (a * scale - (a * scale - a)) @ b


CLAIM = assess("FWD:given", torch.matmul, (X, ONE), None, rounded, torch.matmul)
run(__name__, Bug("pytorch/pytorch#53635", "1.8", lambda: (X.cuda() @ ONE.cuda()).cpu(), [[1024.5]], CLAIM,
                  needs=("cuda",)))  # fmt: skip
