"""`torch.compile`: into how many parts a reduction is split follows from the number of all outputs, the batch's too

Seen at half of a batch; with `config.batch_invariant` the split follows from the reduced extent alone.
Proof: the mean of one image depends on that image alone.
"""

import torch

from corpus.alike import unseen
from corpus.bug import Bug, run
from corpus.seen import assess

X = torch.randn(2, 3, 24, 20)


def reference(x):
    return x.mean((2, 3))


def in_parts(x, parts=4):
    sums = [part.cumsum(-1)[..., -1] for part in x.flatten(2).chunk(parts, -1)]
    return torch.stack(sums).cumsum(0)[-1] / x[0, 0].numel()


def by_outputs(x):
    return in_parts(x, max(1, 256 // (len(x) * x.shape[1])))


CLAIM = assess("INV:rows", reference, (X,), fault=by_outputs, right=in_parts)
run(__name__, Bug("pytorch/pytorch#181089", "2026-04", unseen, True, CLAIM, needs=("cuda",)))
