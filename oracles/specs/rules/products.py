"""Aten operations that are products of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import Algorithm
from ....reference.array import among
from ...contract import SCALED
from .table import LIBRARY, RULES, Rule, enter, may_store

aten = torch.ops.aten


def _added(product: Rule) -> Rule:
    """β c + α (a b). With β = 0, c is not used at all: a NaN in it is none of the result."""

    def rule(c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
        scaled = product(a, b) if alpha == 1 else product(a, b) * alpha
        return scaled if beta == 0 else scaled + (c if beta == 1 else c * beta)

    return rule


def _grouped(a: Any, b: Any, ends: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """A product of matrices for every group; of an operand with two axes the groups are parts, which end at `ends`."""
    if ends is None:
        return np.matmul(a, b)
    parts = [slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if np.ndim(a) == np.ndim(b) == 2:  # The parts are of what is summed over.
        return np.stack([np.matmul(a[:, part], b[part]) for part in parts], axis=0)
    if np.ndim(a) == 2:
        found = np.concatenate([np.matmul(a[part], b[i]) for i, part in enumerate(parts)], axis=0)
        rest = np.shape(a)[0] - np.shape(found)[0]
        return found if not rest else np.concatenate([found, np.zeros((rest, np.shape(found)[1]))], axis=0)
    return np.concatenate([np.matmul(a[i], b[:, part]) for i, part in enumerate(parts)], axis=1)


def _scores(q: Any, k: Any, scale: float) -> Any:
    """scale · q kᵀ. torch's own text scales each factor by a root of it, and kernels for tensor cores scale what they
    have multiplied, because factors are rounded there.
    """
    root = math.sqrt(abs(scale))
    ways = [
        Algorithm(lambda q, k: np.matmul(q, np.swapaxes(k, -1, -2)) * scale, ""),
        Algorithm(lambda q, k: _of_scaled(may_store(q * math.copysign(root, scale)), may_store(k * root)), SCALED),
    ]
    return among(ways, q, k)


def _of_scaled(q: Any, k: Any) -> Any:
    return np.matmul(q, np.swapaxes(k, -1, -2))


def _keep_factors(ctx: Any, inputs: Any, output: Any) -> None:
    *factors, ctx.scale = inputs
    ctx.save_for_backward(*factors)


# An operation of its own, because torch has the scores of attention as products of factors that are scaled before.
LIBRARY.define("attention_scores(Tensor q, Tensor k, float scale) -> Tensor")
for _key in ("CPU", "Meta"):
    LIBRARY.impl("attention_scores", lambda q, k, scale: torch.matmul(q, k.transpose(-1, -2)) * scale, _key)
torch.library.register_autograd(
    "opassay_specs::attention_scores",
    lambda ctx, g: (g @ ctx.saved_tensors[1] * ctx.scale, g.transpose(-1, -2) @ ctx.saved_tensors[0] * ctx.scale, None),
    setup_context=_keep_factors,
    lib=LIBRARY,
)
RULES[torch.ops.opassay_specs.attention_scores.default] = _scores
enter(np.matmul, aten.mm.default, aten.bmm.default, aten.mv.default, aten.dot.default, aten.vdot.default)
enter(_added(np.matmul), aten.addmm.default, aten.baddbmm.default, aten.addmv.default)
RULES[aten._grouped_mm.default] = _grouped
