"""`nn.MultiheadAttention`, `need_weights=True`: NaN where a mask lets a query see no key, and 0 without the weights

The way that returns weights takes the plain softmax; the other one goes to `scaled_dot_product_attention`.
Proof: whether the weights are returned, too, cannot change the output.
"""

import torch

from corpus.bug import Bug, run
from corpus.seen import assess

torch.manual_seed(0)
MODULE, X = torch.nn.MultiheadAttention(2, 1, batch_first=True, bias=False), torch.randn(1, 3, 2)
MASK = torch.tensor([[True] * 3, [False] * 3, [False] * 3])


def of(x, need_weights):
    return MODULE(x, x, x, attn_mask=MASK, need_weights=need_weights)[0]


def spec(x):
    q, k, v = (x @ MODULE.in_proj_weight.detach().T).chunk(3, -1)
    weights = torch.where(MASK, 0.0, (q @ k.mT * 2**-0.5).exp())
    mixed = weights @ v / weights.sum(-1, keepdim=True).clamp(min=1e-30)
    return mixed @ MODULE.out_proj.weight.detach().T


CLAIM = assess("FWD:given", spec, (X,), lambda x: of(x, True), right=lambda x: of(x, False))
run(__name__, Bug("pytorch/pytorch#160064", "2025-08", lambda: int(of(X, True).isnan().sum()), 0, CLAIM))
