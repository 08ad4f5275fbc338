"""Functions of elements, gates, rotations."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .row import GRADIENT, Call, folder, load, load_file, normal, row

#: Triton 3.7 takes arguments by place and constants with them; that a launch without them is wrong its C code shows.
_FEWER = "the second launch leaves out constants that stand before other arguments"


def _rotated(x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> torch.Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cosines - second * sines, second * cosines + first * sines], -1)


@row("liger-kernel", "GEGLU")
def liger_geglu() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        functional.liger_geglu, lambda x, y: F.gelu(x, approximate="tanh") * y, (normal(6, 100), normal(6, 100))
    )


@row("liger-kernel", "SwiGLU")
def liger_swiglu() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(functional.liger_swiglu, lambda x, y: F.silu(x) * y, (normal(6, 100), normal(6, 100)))


@row("liger-kernel", "rope")
def liger_rope() -> Call:
    functional = load("liger_kernel.transformers.functional")

    def candidate(q, k, angles):
        c, s = torch.cat([angles.cos()] * 2, -1)[None], torch.cat([angles.sin()] * 2, -1)[None]
        return functional.liger_rope(q.clone(), k.clone(), c, s)

    def spec(q, k, angles):
        if (q.shape[0], *q.shape[2:]) != (k.shape[0], *k.shape[2:]):
            raise ValueError("queries and keys are of other batches, lengths or sizes")
        return _rotated(q, angles.cos(), angles.sin()), _rotated(k, angles.cos(), angles.sin())

    return Call(candidate, spec, (normal(2, 4, 7, 16), normal(2, 2, 7, 16), normal(7, 8)))


@row("conch", "SiLU and product")
def conch_silu() -> Call:
    silu_and_mul = load("conch.ops.activation.silu_and_mul").silu_and_mul
    return Call(silu_and_mul, lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], (normal(6, 128),))


@row("conch", "GELU and product")
def conch_gelu() -> Call:
    gelu_tanh_and_mul = load("conch.ops.activation.gelu_tanh_and_mul").gelu_tanh_and_mul
    return Call(
        gelu_tanh_and_mul,
        lambda x: F.gelu(x.chunk(2, -1)[0], approximate="tanh") * x.chunk(2, -1)[1],
        (normal(6, 128),),
    )


@row("conch", "rope")
def conch_rope() -> Call:
    rotary_embedding = load("conch.ops.embedding.rotary_embedding").rotary_embedding

    def candidate(q, k, angles):
        places, cache = torch.arange(q.shape[0], device=q.device), torch.cat([angles.cos(), angles.sin()], -1)
        return rotary_embedding(places, q.clone(), k.clone(), 16, cache)

    def spec(q, k, angles):
        c, s = angles.cos()[:, None], angles.sin()[:, None]
        return tuple(_rotated(x.unflatten(-1, (-1, 16)), c, s).flatten(1) for x in (q, k))

    return Call(candidate, spec, (normal(7, 64), normal(7, 32), normal(7, 8)))


@row("mamba", "SwiGLU")
def mamba_swiglu() -> Call:
    swiglu = load("mamba_ssm.ops.triton.k_activations").swiglu
    return Call(swiglu, lambda x: F.silu(x.chunk(2, -1)[0]) * x.chunk(2, -1)[1], (normal(6, 128),), questions=GRADIENT)


@row("unsloth", "SwiGLU")
def unsloth_swiglu() -> Call:
    swiglu = load("unsloth.kernels.swiglu").swiglu_fg_kernel
    return Call(swiglu, lambda x, y: F.silu(x) * y, (normal(2, 3, 100), normal(2, 3, 100)))


@row("unsloth", "GEGLU by erf")
def unsloth_geglu_exact() -> Call:
    geglu = load("unsloth.kernels.geglu").geglu_exact_forward_kernel
    return Call(geglu, lambda x, y: F.gelu(x) * y, (normal(2, 3, 100), normal(2, 3, 100)))


@row("unsloth", "GEGLU by tanh")
def unsloth_geglu_approx() -> Call:
    geglu = load("unsloth.kernels.geglu").geglu_approx_forward_kernel
    return Call(geglu, lambda x, y: F.gelu(x, approximate="tanh") * y, (normal(2, 3, 100), normal(2, 3, 100)))


@row("sglang", "merge of two states of attention")
def sglang_merge_state() -> Call:
    merge = load("sglang.kernels.ops.attention.merge_state").merge_state_triton

    def spec(first, before, second, after):
        total = torch.logsumexp(torch.stack([before, after]), 0)
        return first * (before - total).exp()[..., None] + second * (after - total).exp()[..., None], total

    return Call(
        lambda first, before, second, after: merge(first, before, second, after), spec,
        (normal(3, 4, 20), normal(3, 4), normal(3, 4, 20), normal(3, 4)), contract="torch+lse",
    )  # fmt: skip


@row("flag-gems", "GELU")
def gems_gelu() -> Call:
    ops = load("flag_gems.ops")
    return Call(lambda x: ops.gelu(x), lambda x: F.gelu(x), (normal(6, 100),), fault=_FEWER)


@row("flag-gems", "SiLU")
def gems_silu() -> Call:
    ops = load("flag_gems.ops")
    return Call(lambda x: ops.silu(x), lambda x: F.silu(x), (normal(6, 100),), fault=_FEWER)


@row("applied-ai", "vector sum")
def applied_sum() -> Call:
    vector_add = load_file(folder("applied-ai") / "tutorials/triton/kernels/vector_add.py").vector_addition
    fault = "its host code calls is_cuda, which is no function"
    return Call(vector_add, lambda x, y: x + y, (normal(300), normal(300)), fault=fault)
