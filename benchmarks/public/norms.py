"""Norms."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .row import GRADIENT, Call, folder, load, load_file, normal, row

_BF16 = torch.bfloat16


@row("liger-kernel", "RMS norm")
def liger_rms_norm() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, w: functional.liger_rms_norm(x, w, 1e-6, 0.0, "llama", False),
        lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), (normal(6, 100), normal(100)), questions=GRADIENT,
    )  # fmt: skip


@row("liger-kernel", "layer norm")
def liger_layer_norm() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, w, b: functional.liger_layer_norm(x, w, b, 1e-6),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-6), (normal(6, 100), normal(100), normal(100)),
        questions=GRADIENT,
    )  # fmt: skip


@row("liger-kernel", "group norm")
def liger_group_norm() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, w, b: functional.liger_group_norm(x, w, b, x.shape[1], 2, 1e-6),
        lambda x, w, b: F.group_norm(x, 2, w, b, 1e-6),
        (normal(3, 4, 30) + 100, normal(4), normal(4)), questions=GRADIENT,
        fault="the variance is the mean of squares less the square of the mean, which cancel",
    )  # fmt: skip


@row("liger-kernel", "DyT")
def liger_dyt() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        functional.liger_dyt, lambda x, a, w, b: w * torch.tanh(a * x) + b,
        (normal(6, 100), normal(1), normal(100), normal(100)), questions=GRADIENT,
    )  # fmt: skip


@row("triton tutorials", "layer norm")
def tutorial_layer_norm() -> Call:
    layer_norm = load_file(folder("triton-shared") / "python/examples/test_layernorm.py").LayerNorm
    return Call(
        lambda x, w, b: layer_norm.apply(x, (x.shape[-1],), w, b, 1e-5, x.device),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5), (normal(6, 100), normal(100), normal(100)),
    )  # fmt: skip


@row("conch", "gemma RMS norm")
def conch_gemma_rms_norm() -> Call:
    gemma_rms_norm = load("conch.ops.normalization.gemma_rms_norm").gemma_rms_norm
    return Call(
        lambda x, w: gemma_rms_norm(x.clone(), w, 1e-6),  # it writes over x

        lambda x, w: (F.rms_norm(x.float(), x.shape[-1:], None, 1e-6) * (1 + w.float())).to(x.dtype),
        (normal(6, 100, dtype=_BF16), normal(100, dtype=_BF16)),
    )  # fmt: skip


@row("conch", "RMS norm")
def conch_rms_norm() -> Call:
    rms_norm = load("conch.ops.normalization.rms_norm").rms_norm
    return Call(
        lambda x, w: rms_norm(x, w, 1e-6), lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        (normal(6, 128), normal(128)),
    )  # fmt: skip


@row("fla-core", "layer norm")
def fla_layer_norm() -> Call:
    norm = load("fla.modules.norm.layernorm")
    return Call(
        norm.layer_norm, lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b),
        (normal(6, 100), normal(100), normal(100)), questions=GRADIENT,
    )  # fmt: skip


@row("mamba", "gated RMS norm")
def mamba_gated_rms_norm() -> Call:
    gated = load("mamba_ssm.ops.triton.layernorm_gated")
    return Call(
        lambda x, w, z: gated.rmsnorm_fn(x, w, None, z=z, eps=1e-6, norm_before_gate=True),
        lambda x, w, z: F.rms_norm(x, x.shape[-1:], w, 1e-6) * F.silu(z),
        (normal(6, 64), normal(64), normal(6, 64)), questions=GRADIENT,
    )  # fmt: skip


@row("mamba", "layer norm")
def mamba_layer_norm() -> Call:
    norm = load("mamba_ssm.ops.triton.layer_norm")
    return Call(
        lambda x, w, b: norm.layer_norm_fn(x, w, b, eps=1e-6),
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-6), (normal(6, 64), normal(64), normal(64)),
        questions=GRADIENT,
    )  # fmt: skip


@row("applied-ai", "RMS norm")
def applied_rms_norm() -> Call:
    fused = load_file(folder("applied-ai") / "kernels/triton/training/rms_norm/fused_rms_norm.py").fused_rms_norm_fn
    return Call(
        lambda x, w: fused(x, w, 1e-6), lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6),
        (normal(6, 100), normal(100)), questions=GRADIENT,
    )  # fmt: skip


@row("flag-gems", "layer norm")
def gems_layer_norm() -> Call:
    ops = load("flag_gems.ops")
    return Call(
        lambda x, w, b: ops.layer_norm(x, x.shape[-1:], w, b, 1e-5)[0],
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5), (normal(6, 100), normal(100), normal(100)),
    )  # fmt: skip


@row("flag-gems", "RMS norm")
def gems_rms_norm() -> Call:
    ops = load("flag_gems.ops")
    return Call(
        lambda x, w: ops.rms_norm(x, [x.shape[-1]], w, 1e-5), lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-5),
        (normal(6, 100), normal(100)),
    )  # fmt: skip


@row("unsloth", "layer norm")
def unsloth_layer_norm() -> Call:
    layer_norm = load("unsloth.kernels.layernorm").Fast_Layernorm
    return Call(
        lambda x, w, b: layer_norm.apply(x, w, b, 1e-5), lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, 1e-5),
        (normal(2, 3, 100), normal(100), normal(100)),
    )  # fmt: skip
