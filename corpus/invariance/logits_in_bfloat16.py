"""NeMo-RL, train and rollout: log-probabilities of the same tokens differ, because the sides have other log-softmaxes

What the thread asks for is equal bits of both sides, not an error that is small: `gen_kl_error` is then 0.
Proof: both are given the same hidden states and the same weights.
"""

import torch

from corpus.alike import ENGINE, align, unseen
from corpus.bug import Bug, run

HIDDEN, HEAD, TOKENS = torch.randn(12, 32), torch.randn(64, 32), torch.randint(64, (12,))


def trained(hidden, head, tokens, dtype=torch.float32):
    logits = (hidden[:, :, None] * head.T).cumsum(1)[:, -1].to(dtype).double()
    return torch.log_softmax(logits, -1).gather(1, tokens[:, None])[:, 0].float()


@torch.no_grad()
def rolled_out(hidden, head, tokens):
    return torch.cat([trained(one, head, token) for one, token in zip(hidden.split(1), tokens.split(1), strict=True)])


in_bfloat16 = torch.no_grad()(lambda *args: trained(*args, torch.bfloat16))
CLAIM = align(trained, (HIDDEN, HEAD, TOKENS), "precision", in_bfloat16, rolled_out)
run(__name__, Bug("NVIDIA-NeMo/RL#4039", "2026-09", unseen, True, CLAIM, "nemo-rl", ENGINE))
