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

#: `torch.nn.functional.ScalingType`, as the operation has it.
_OF_A_MATRIX, _OF_ROWS, _OF_32 = 0, 1, 3
#: Lengths of blocks: of float32 scales, and of scales in e8m0.
_LONG, _SHORT = 128, 32
#: In `SWIZZLE_32_4_4` a tile of 128 rows and 4 columns of scales stands together.
_TILE_ROWS, _TILE_COLUMNS = 128, 4


def _add_product(product: Rule) -> Rule:
    """β c + α (a b). With β = 0, c is not used at all: a NaN in it does not reach the result.

    A product that is scaled may be stored before, and so may what it is added to; torch's derivatives scale last, too.
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
    """α (a b), where the product, and in backward those with the cotangent, may be stored before they are scaled.

    Those are the texts of `addmm`, `addmv`, `baddbmm` and `addbmm` in torch's `derivatives.yaml`.
    """

    def cotangent(position: int) -> Rule:
        def text(a: Any, b: Any, g: Any) -> Any:
            moved, fixed = (a, b) if position == 0 else (b, a)
            _, pull = vjp(lambda x: product(x, fixed) if position == 0 else product(fixed, x), (moved,))
            return may_store(pull(g)[0]) * alpha

        return text

    ways = [
        Algorithm(lambda a, b: product(a, b) * alpha, ""),
        Algorithm(lambda a, b: may_store(product(a, b)) * alpha, STORED),
        Algorithm(Reverse(cotangent(0), cotangent(1)), STORED),
    ]
    return among(ways, a, b)


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
        rest = np.shape(a)[0] - np.shape(product)[0]
        return product if not rest else np.concatenate([product, np.zeros((rest, np.shape(product)[1]))], axis=0)
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
    whole = of_all or (np.shape(scale_a) == rows and np.shape(scale_b) == columns)
    product = among(ways, a, b, scale_a, scale_b) if whole else _multiply_blocks(a, b, scale_a, scale_b)
    return product if bias is None else product + bias


def _multiply_blocks(a: Any, b: Any, scale_a: Any, scale_b: Any) -> Any:
    """A product of matrices with a scale for each block of both: factors are scaled, or the products of blocks."""
    s, length = _scales_of_blocks(scale_a, *np.shape(a))
    other = np.transpose(scale_b) if np.ndim(scale_b) == 2 else scale_b
    t, same = _scales_of_blocks(other, *np.shape(b)[::-1])
    if length != same:
        raise NoReadingError(f"scales have blocks of {length} and of {same}: no rule; multiply the numbers by them")
    block = np.arange(np.shape(a)[1]) // length

    def by_block(a: Any, b: Any, s: Any, t: Any, scale: Rule) -> Any:
        parts = [np.flatnonzero(block == i) for i in range(block[-1] + 1)]
        products = [scale(np.matmul(a[:, part], b[part]), s[:, i, None], t[None, :, i]) for i, part in enumerate(parts)]
        return np.sum(np.stack(products, axis=0), axis=0)

    ways = [
        Algorithm(lambda a, b, s, t: np.matmul(a * s[:, block], b * np.transpose(t[:, block])), ""),
        Algorithm(lambda a, b, s, t: by_block(a, b, s, t, lambda p, s, t: p * s * t), ""),
        Algorithm(lambda a, b, s, t: by_block(a, b, s, t, lambda p, s, t: p * (s * t)), ""),
    ]
    return among(ways, a, b, s, t)


def _scales_of_blocks(scale: Any, rows: int, columns: int) -> tuple[Any, int]:
    """A scale for each row and block of a matrix, and the length of a block.

    Args:
        scale: for 128 elements of a row, or 128 rows of them, as a matrix; or for 32 of a row, as a vector in the order
            of `SWIZZLE_32_4_4`, which has places for whole tiles.
    """
    if np.ndim(scale) == 2:
        given, blocks = np.shape(scale), -(-columns // _LONG)
        if given == (rows, blocks):
            return scale, _LONG
        if given == (-(-rows // _LONG), blocks):
            return scale[np.arange(rows) // _LONG], _LONG
    count = -(-columns // _SHORT)
    tiles = -(-count // _TILE_COLUMNS)
    if np.shape(scale) == (-(-rows // _TILE_ROWS) * tiles * _TILE_ROWS * _TILE_COLUMNS,):
        row, column = np.arange(rows)[:, None], np.arange(count)
        tile = row // _TILE_ROWS * tiles + column // _TILE_COLUMNS
        inside = row % 32 * 16 + row // 32 % 4 * 4 + column % _TILE_COLUMNS
        return scale[tile * (_TILE_ROWS * _TILE_COLUMNS) + inside], _SHORT
    raise NoReadingError(f"scales of shape {np.shape(scale)} have no rule; multiply the numbers by them")


def _multiply_by_recipe(
    a: Any, b: Any, scale_a: Any, recipe_a: Any, swizzle_a: Any, scale_b: Any, recipe_b: Any, swizzle_b: Any,
    bias: Any = None, *args: Any, **kwargs: Any,
) -> Any:  # fmt: skip
    """`_multiply_scaled`, with one scale for a matrix, for each of its rows or columns, or for 32 of them in e8m0."""
    if [*recipe_a] == [*recipe_b] == [_OF_32] and [*swizzle_a] == [*swizzle_b] == [1]:
        return _multiply_scaled(a, b, np.reshape(scale_a[0], (-1,)), np.reshape(scale_b[0], (-1,)), bias)
    if not {*recipe_a, *recipe_b} <= {_OF_A_MATRIX, _OF_ROWS}:
        raise NoReadingError("scales of blocks have no rule; multiply the numbers by them")
    return _multiply_scaled(a, b, scale_a[0], scale_b[0], bias)


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
enter(
    {
        "mm bmm mv dot vdot": np.matmul,
        "addmm baddbmm addmv": _add_product(np.matmul),
        "addbmm": _product_by_product,
        "_grouped_mm": _multiply_groups,
        "_scaled_mm": _multiply_scaled,
        **({"_scaled_mm_v2": _multiply_by_recipe} if hasattr(torch.ops.aten, "_scaled_mm_v2") else {}),
    }
)
