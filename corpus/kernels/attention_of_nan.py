"""`F.scaled_dot_product_attention` on CPU: 0 where the query is NaN

The flash kernel takes a row whose maximum is not a number for one that is masked altogether. For 16 keys the thread's
program is right again; for 3 keys nothing has changed.
Proof: every output is a sum of terms that have the NaN as a factor.
"""

import torch
from torch.nn import functional

from corpus.bug import Bug, run
from corpus.seen import assess

Q, K = torch.full((1, 1, 3, 4), float("nan")), torch.ones(1, 1, 3, 4)


def spec(q, k):
    return (q @ k.mT / 2).softmax(-1) @ k


def actual(q, k):
    return functional.scaled_dot_product_attention(q, k, k)


CLAIM = assess("SPECIAL:nan", spec, (K, K), actual, right=spec)
run(__name__, Bug("pytorch/pytorch#141128", "2.5", lambda: bool(actual(Q, K).isnan().all()), True, CLAIM))
