"""`F.scaled_dot_product_attention`: a query that the mask lets see no key gets NaN

The softmax of a row of −∞ is 0/0. Such a row is 0 by now.
Proof: a sum over no keys is 0; the first query attends to both keys, whose values are all 1.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

Q, MASK = torch.ones(1, 1, 2, 4), torch.tensor([[True, True], [False, False]])


def plain(q, mask):
    return (q @ q.mT / 2).masked_fill(~mask, float("-inf")).softmax(-1) @ q


def actual(q, mask):
    return functional.scaled_dot_product_attention(q, q, q, mask)


def spec(q, mask):
    weights = torch.where(mask, (q @ q.mT / 2).exp(), 0.0)
    return weights @ q / weights.sum(-1, keepdim=True).clamp(min=1e-30)


CLAIM = assess("FWD:given", spec, (Q, MASK), actual, plain)
run(__name__, Bug("pytorch/pytorch#103963", "2023-06", lambda: actual(Q, MASK)[0, 0, :, 0], [1.0, 0.0], CLAIM))
