"""vLLM, `fused_add_rms_norm`: 1024 threads sum a row of fewer than 256 tokens, 256 threads one of more

Proof: the norm of a token depends on that token alone. 107 elements in 79 of 4096 rows were others in smaller batches.
"""

import torch

from corpus.alike import ENGINE, unseen
from corpus.bug import Bug, run
from corpus.seen import assess

X, RESIDUAL, WEIGHT = torch.randn(4, 2048), torch.randn(4, 2048), torch.randn(2048)


def reference(x, residual, weight):
    return (y := x + residual) * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6) * weight, y


def by_threads(x, residual, weight, threads=1024):
    y = x + residual
    squares = y.square().reshape(len(y), -1, threads).cumsum(1)[:, -1]
    return y * torch.rsqrt(squares.cumsum(1)[:, -1:] / y.shape[1] + 1e-6) * weight, y


def by_tokens(x, residual, weight):
    return by_threads(x, residual, weight, 1024 if len(x) < 256 else 256)


CLAIM = assess("INV:rows", reference, (X, RESIDUAL, WEIGHT), fault=by_tokens, right=by_threads)
run(__name__, Bug("vllm-project/vllm#48271", "2026-07", unseen, True, CLAIM, "vllm", ENGINE))
