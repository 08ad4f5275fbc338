"""UniRL, mixture of experts: replay adds up a token's experts in another order than the rollout, and ratios leave 1

Proof: the gate of the thread is `torch.equal` of the log-probabilities of both; weights and routes are the same.
"""

import torch

from corpus.alike import ENGINE, align, unseen
from corpus.bug import Bug, run

X, EXPERTS, ROUTER = torch.randn(10, 16), torch.randn(6, 16, 8), torch.randn(16, 6)


def combined(x, experts, router, ordered=torch.sort):
    gates = torch.softmax((x[:, :, None] * router).cumsum(1)[:, -1].double(), -1).float()
    picks = ordered(gates.topk(3, -1).indices)[0]
    parts = (x[:, None, :, None] * experts[picks]).cumsum(2)[:, :, -1] * gates.gather(1, picks)[..., None]
    return torch.log_softmax(sum(parts.unbind(1)).double(), -1).float()


def by_gates(x, experts, router):
    return combined(x, experts, router, lambda picks: (picks,))


token_by_token = torch.no_grad()(lambda x, *others: torch.cat([combined(token, *others) for token in x.split(1)]))
CLAIM = align(combined, (X, EXPERTS, ROUTER), "order", by_gates, token_by_token)
run(__name__, Bug("Tencent-Hunyuan/UniRL#430", "2026-09", unseen, True, CLAIM, "unirl", ENGINE))
