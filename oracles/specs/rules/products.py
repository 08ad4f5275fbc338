"""Aten operations that are products of matrices."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from ....reference.algorithms import STORED, Algorithm, Reverse
from ....reference.array import among
from ....reference.derivative import vjp
from ....reference.missing import NoReadingError
from ...bound.contract import SCALED
from .table import LIBRARY, RULES, Rule, enter, may_store


def _add_product(product: Rule) -> Rule:
    """β c + α (a b). With β = 0, c is not used at all: a NaN in it does not reach the result.

    A scaled product may be stored before it is added, and so may β c. For the product itself see `_scale_product`.
    """

    def rule(c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
        scaled = product(a, b) if alpha == 1 else _scale_product(product, alpha, a, b)
        if beta == 0:
            return scaled
        ways = [Algorithm(lambda c, scaled: scaled + (c if beta == 1 else c * beta), "")]
        if beta != 1:
            ways.append(Algorithm(lambda c, scaled: may_store(scaled) + may_store(c * beta), STORED))
        return among(ways, c, scaled)

    return rule


def _scale_product(product: Rule, alpha: float, a: Any, b: Any) -> Any:
    """α (a b), where the product may be stored before it is scaled, and so may the two products of the backward.

    The backward is that of `addmm`, `addmv`, `baddbmm` and `addbmm` in torch's `derivatives.yaml`.
    """

    def cotangent(position: int) -> Rule:
        """The rule of the cotangent of a (0) or of b (1), which scales the product with the output's cotangent g."""

        def rule(a: Any, b: Any, g: Any) -> Any:
            moved, fixed = (a, b) if position == 0 else (b, a)
            _, pull = vjp(lambda x: product(x, fixed) if position == 0 else product(fixed, x), (moved,))
            return may_store(pull(g)[0]) * alpha

        return rule

    ways = [
        Algorithm(lambda a, b: product(a, b) * alpha, ""),
        Algorithm(lambda a, b: may_store(product(a, b)) * alpha, STORED),
        Algorithm(Reverse(cotangent(0), cotangent(1)), STORED),
    ]
    return among(ways, a, b)


def _multiply_matrices(a: Any, b: Any) -> Any:
    """a b. Where a has one column, `einsum` multiplies and sums nothing: its backward sums products that are stored."""
    columns = np.ndim(b) > 1
    if np.ndim(a) < 2 or np.shape(a)[-1] != 1:
        return np.matmul(a, b)

    def of_a(a: Any, b: Any, g: Any) -> Any:
        return np.sum(may_store(g * b), axis=-1, keepdims=True) if columns else np.expand_dims(may_store(g * b), -1)

    def of_b(a: Any, b: Any, g: Any) -> Any:
        return np.sum(may_store(a * g if columns else a * np.expand_dims(g, -1)), axis=-2, keepdims=columns)

    return among([Algorithm(np.matmul, ""), Algorithm(Reverse(of_a, of_b), STORED)], a, b)


def _product_by_product(c: Any, a: Any, b: Any, beta: float = 1, alpha: float = 1) -> Any:
    """addbmm: β c + α Σ_b a_b b_b; torch adds the products one after another to what is stored."""
    whole = _add_product(lambda a, b: np.einsum("bij,bjk->ik", a, b))

    def one_by_one(c: Any, a: Any, b: Any) -> Any:
        total = may_store(c if beta == 1 else c * beta)
        for i in range(np.shape(a)[0]):
            product = np.matmul(a[i], b[i])
            total = may_store(total + may_store(product if alpha == 1 else product * alpha))
        return total

    start = np.zeros(()) if beta == 0 else c
    ways = [Algorithm(lambda c, a, b: whole(c, a, b, beta, alpha), ""), Algorithm(one_by_one, STORED)]
    return among(ways, start, a, b)


def _multiply_groups(a: Any, b: Any, ends: Any = None, bias: Any = None, out_dtype: Any = None) -> Any:
    """A product of matrices for every group; of an operand with two axes the groups are parts, which end at `ends`."""
    if ends is None:
        return np.matmul(a, b)
    parts = [slice(int(start), int(end)) for start, end in zip([0, *ends[:-1]], ends, strict=True)]
    if np.ndim(a) == np.ndim(b) == 2:  # The groups are parts of the axis that is summed over.
        return np.stack([np.matmul(a[:, part], b[part]) for part in parts], axis=0)
    if np.ndim(a) == 2:
        product = np.concatenate([np.matmul(a[part], b[i]) for i, part in enumerate(parts)], axis=0)
        if np.shape(a)[0] != np.shape(product)[0]:  # torch writes neither these rows nor their gradients
            raise NoReadingError(f"rows from {np.shape(product)[0]} on are in no group; give the others alone")
        return product
    return np.concatenate([np.matmul(a[i], b[:, part]) for i, part in enumerate(parts)], axis=1)


def _multiply_scaled(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None, out_dtype: Any = None,
    use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """(a b) s t, of numbers of few bits whose products float32 has exactly; torch scales the factors on CPUs."""
    if scale_result is not None:
        raise NoReadingError("scale_result has no rule; divide the result")
    ways = [
        Algorithm(lambda a, b, s, t: np.matmul(a, b) * s * t, ""),
        Algorithm(lambda a, b, s, t: np.matmul(a, b) * (s * t), ""),
        Algorithm(lambda a, b, s, t: np.matmul(a * s, b * t), ""),
    ]
    rows, columns = (np.shape(a)[0], 1), (1, np.shape(b)[1])
    of_all = np.size(scale_a) == np.size(scale_b) == 1
    if not (of_all or (np.shape(scale_a) == rows and np.shape(scale_b) == columns)):
        raise NoReadingError("scales of blocks are read where torch's functions are called, and not its operations")
    product = among(ways, a, b, scale_a, scale_b)
    return product if bias is None else product + bias


def _multiply_by_recipe(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
    bias: Any = None, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    """`_multiply_scaled`, with one scale for a matrix, or for each of its rows or columns."""
    return _multiply_scaled(a, b, scale_a[0], scale_b[0], bias)


def _multiply_blocks(a: Any, b: Any, s: Any, t: Any, x: Any, y: Any, length: int) -> Any:
    """x y (a s)(b t)ᵀ, where s and t have a number for each row and block of the factors; x and y are numbers.

    An evaluation scales factors or the products of blocks, and multiplies scales before or after.
    """
    block = np.arange(np.shape(a)[1]) // length
    parts = [np.flatnonzero(block == i) for i in range(block[-1] + 1)]

    def by_block(a: Any, b: Any, s: Any, t: Any, scale: Rule) -> Any:
        products = [
            scale(np.matmul(a[:, part], np.transpose(b[:, part])), s[:, i, None], t[None, :, i])
            for i, part in enumerate(parts)
        ]
        return np.sum(np.stack(products, axis=0), axis=0)

    def by_factor(a: Any, b: Any, s: Any, t: Any) -> Any:
        return np.matmul(a * s[:, block], np.transpose(b * t[:, block]))

    ways = [
        Algorithm(lambda a, b, s, t, x, y: by_factor(a, b, s, t) * x * y, ""),
        Algorithm(lambda a, b, s, t, x, y: by_factor(a, b, s * x, t * y), ""),
        Algorithm(lambda a, b, s, t, x, y: by_block(a, b, s, t, lambda p, s, t: p * s * t) * x * y, ""),
        Algorithm(lambda a, b, s, t, x, y: by_block(a, b, s, t, lambda p, s, t: p * (s * t)) * (x * y), ""),
        Algorithm(lambda a, b, s, t, x, y: by_block(a, b, s * x, t * y, lambda p, s, t: p * s * t), ""),
    ]
    return among(ways, a, b, s, t, x, y)


def _multiplied_blocks(a: Any, b: Any, s: Any, t: Any, x: Any, y: Any, length: int) -> Any:
    block = torch.arange(a.shape[1], device=a.device) // length
    left, right = (z.float() * scale.float()[:, block] for z, scale in ((a, s), (b, t)))
    return left @ right.t() * x * y


def _scores(q: Any, k: Any, scale: float) -> Any:
    """scale · q kᵀ. torch's own text scales each factor by a root of it, and kernels for tensor cores scale what they
    have multiplied, because factors are rounded there.
    """
    root = math.sqrt(abs(scale))
    ways = [
        Algorithm(lambda q, k: _pair_up(q, k) * scale, ""),
        Algorithm(lambda q, k: _pair_up(may_store(q * math.copysign(root, scale)), may_store(k * root)), SCALED),
    ]
    return among(ways, q, k)


def _pair_up(q: Any, k: Any) -> Any:
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
LIBRARY.define("multiply_blocks(Tensor a, Tensor b, Tensor s, Tensor t, Tensor x, Tensor y, int length) -> Tensor")
LIBRARY.impl("multiply_blocks", _multiplied_blocks, "CPU")
LIBRARY.impl("multiply_blocks", lambda a, b, *_: a.new_empty((len(a), len(b)), dtype=torch.float32), "Meta")
RULES[torch.ops.opassay_specs.multiply_blocks.default] = _multiply_blocks
enter(
    {
        "mm bmm mv": _multiply_matrices,
        "dot vdot": np.matmul,
        "addmm baddbmm addmv": _add_product(_multiply_matrices),
        "addbmm": _product_by_product,
        "_grouped_mm": _multiply_groups,
        "_scaled_mm": _multiply_scaled,
        **({"_scaled_mm_v2": _multiply_by_recipe} if hasattr(torch.ops.aten, "_scaled_mm_v2") else {}),
    }
)
