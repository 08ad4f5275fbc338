"""Attention."""

from __future__ import annotations

import math

import torch
from torch.nn import functional as F

from .row import GRADIENT, Call, folder, load, load_file, normal, row

_HALF = torch.float16


@row("fla-core", "causal attention")
def fla_attention() -> Call:
    attention = load("fla.ops.attn.parallel").parallel_attn

    def spec(q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)

    inputs = tuple(normal(1, 70, 2, 32, dtype=_HALF) for _ in range(3))
    return Call(lambda q, k, v: attention(q, k, v), spec, inputs, "flash", GRADIENT)


@row("applied-ai", "attention of streaming multiprocessors")
def applied_attention() -> Call:
    flash = load_file(folder("applied-ai") / "kernels/triton/inference/flash_attention/stay_attention.py").flash_fn

    def spec(q, k, v):
        return F.scaled_dot_product_attention(q, k, v, scale=0.5)

    return Call(flash, spec, tuple(normal(1, 1, 128, 128, dtype=_HALF) for _ in range(3)), "flash")


@row("sglang", "attention of a prompt")
def sglang_prefill() -> Call:
    forward = load("sglang.kernels.ops.attention.prefill_attention").context_attention_fwd

    def candidate(q, k, v):
        o, n = torch.empty_like(q), q.shape[0]
        starts = torch.zeros(1, dtype=torch.int32, device=q.device)
        forward(q, k, v, o, starts, torch.full((1,), n, dtype=torch.int32, device=q.device), n)
        return o

    def spec(q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(0, 1)

    return Call(candidate, spec, tuple(normal(70, 2, 64, dtype=_HALF) for _ in range(3)), "flash")


@row("sglang", "attention of one token")
def sglang_decode() -> Call:
    forward = load("sglang.kernels.ops.attention.decode_attention").decode_attention_fwd

    def candidate(q, k, v):
        device, heads, size = q.device, q.shape[1], v.shape[-1]
        o, n, splits = torch.empty_like(q), k.shape[0], 4
        pointers = torch.tensor([0, n], dtype=torch.int32, device=device)
        places = torch.arange(n, dtype=torch.int32, device=device)
        logits = torch.empty(1, heads, splits, size, device=device)
        sums = torch.empty(1, heads, splits, device=device)
        each = torch.full((1,), splits, dtype=torch.int32, device=device)
        forward(q, k, v, o, pointers, places, logits, sums, each, splits, 1 / math.sqrt(q.shape[-1]), 1.0, 1.0)
        return o

    def spec(q, k, v):
        q, k, v = (x.transpose(0, 1) for x in (q, k, v))
        return F.scaled_dot_product_attention(q, k, v).transpose(0, 1)

    inputs = (normal(1, 2, 64, dtype=_HALF), normal(150, 2, 64, dtype=_HALF), normal(150, 2, 64, dtype=_HALF) + 2)
    return Call(candidate, spec, inputs, "flash")


@row("sageattention", "attention with keys in 8 bits")
def sage_attention() -> Call:
    sageattn = load("sageattention").sageattn

    def spec(q, k, v):
        return F.scaled_dot_product_attention(q, k, v)

    inputs = tuple(normal(1, 2, 70, 64, dtype=_HALF) for _ in range(3))
    fault = "queries and keys are rounded to 8 bits"
    return Call(lambda q, k, v: sageattn(q, k, v), spec, inputs, "flash", fault=fault)
