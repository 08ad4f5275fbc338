"""Softmax, cross entropy and other losses."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from .row import GRADIENT, Call, folder, load, load_file, normal, row

_LSE = "torch+lse"
#: Documented by Liger, and still a wrong gradient to who goes through a graph again.
_REUSES = "the backward writes over what it saved, so a second one has another gradient"


def _classes(number: int, below: int) -> torch.Tensor:
    return torch.randint(0, below, (number,))


@row("liger-kernel", "softmax")
def liger_softmax() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(functional.liger_softmax, lambda x: F.softmax(x, -1), (normal(6, 100),), questions=GRADIENT)


@row("liger-kernel", "sparsemax")
def liger_sparsemax() -> Call:
    functional = load("liger_kernel.transformers.functional")

    def spec(x):
        ordered = x.sort(-1, descending=True).values
        sums, ranks = ordered.cumsum(-1), torch.arange(1, x.shape[-1] + 1, device=x.device)
        support = ((1 + ranks * ordered) > sums).sum(-1, keepdim=True)
        threshold = (sums.gather(-1, support - 1) - 1) / support
        return torch.clamp(x - threshold, min=0)

    return Call(lambda x: functional.liger_sparsemax(x), spec, (normal(6, 20),))


@row("liger-kernel", "cross entropy")
def liger_cross_entropy() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, n: functional.liger_cross_entropy(x.clone(), n), F.cross_entropy, (normal(6, 100), _classes(6, 100)),
        _LSE, GRADIENT, _REUSES,
    )  # fmt: skip


@row("liger-kernel", "fused linear cross entropy")
def liger_fused_linear_cross_entropy() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, w, n: functional.liger_fused_linear_cross_entropy(x, w, n),
        lambda x, w, n: F.cross_entropy(x @ w.T, n),
        (normal(6, 32), normal(50, 32), _classes(6, 50)), _LSE, GRADIENT, _REUSES,
    )  # fmt: skip


@row("liger-kernel", "KL divergence")
def liger_kl() -> Call:
    functional = load("liger_kernel.transformers.functional")
    return Call(
        lambda x, y: functional.liger_kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"),
        lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), (normal(6, 50), normal(6, 50)),
        _LSE,
    )  # fmt: skip


@row("liger-kernel", "JSD")
def liger_jsd() -> Call:
    functional = load("liger_kernel.transformers.functional")

    def spec(x, y):
        x, y = x.log_softmax(-1), y.log_softmax(-1)
        middle = torch.log(0.5 * (x.exp() + y.exp()))
        return 0.5 * (y.exp() * (y - middle) + x.exp() * (x - middle)).sum() / x.shape[0]

    return Call(
        lambda x, y: functional.liger_jsd(x.log_softmax(-1), y.log_softmax(-1)),
        spec,
        (normal(6, 50), normal(6, 50)),
        _LSE,
    )


@row("triton tutorials", "softmax")
def tutorial_softmax() -> Call:
    softmax = load_file(folder("triton-shared") / "python/examples/test_softmax.py").softmax
    return Call(softmax, lambda x: F.softmax(x, -1), (normal(6, 100),))


@row("applied-ai", "softmax")
def applied_softmax() -> Call:
    softmax = load_file(folder("applied-ai") / "kernels/triton/training/fused_softmax/softmax.py").fused_softmax
    fault = "the launch of the backward gives the result for the gradient, and the gradient for the result"
    return Call(softmax, lambda x: F.softmax(x, -1), (normal(6, 100),), questions=GRADIENT, fault=fault)


@row("flag-gems", "softmax")
def gems_softmax() -> Call:
    ops = load("flag_gems.ops")
    return Call(lambda x: ops.softmax(x, -1), lambda x: F.softmax(x, -1), (normal(6, 100),))


@row("fla-core", "cross entropy")
def fla_cross_entropy() -> Call:
    loss = load("fla.modules.fused_cross_entropy.ops").cross_entropy_loss
    return Call(
        lambda x, n: loss(x.clone(), n)[0], lambda x, n: F.cross_entropy(x, n, reduction="none"),
        (normal(6, 100), _classes(6, 100)), _LSE,
    )  # fmt: skip


@row("unsloth", "cross entropy")
def unsloth_cross_entropy() -> Call:
    loss = load("unsloth.kernels.cross_entropy_loss").fast_cross_entropy_loss
    return Call(
        lambda x, n: loss(x.clone(), n), lambda x, n: F.cross_entropy(x.flatten(0, 1), n.flatten()),
        (normal(2, 5, 70), torch.randint(0, 70, (2, 5))), _LSE,
    )  # fmt: skip


@row("cut-cross-entropy", "linear cross entropy")
def cut_cross_entropy() -> Call:
    loss = load("cut_cross_entropy").linear_cross_entropy
    half = torch.bfloat16
    return Call(
        lambda x, w, n: loss(x, w, n, filter_eps=None),
        lambda x, w, n: F.cross_entropy(x.float() @ w.float().T, n),
        (normal(40, 64, dtype=half), normal(150, 64, dtype=half), _classes(40, 150)), _LSE,
    )  # fmt: skip
