"""Zeros that a reading inserts, and results that are computed from them.

What this is for. A margin of zeros around an image, and the zeros between the elements of a transposed convolution's
input, make a convolution a plain product. Kernels differ: one forms the products with these zeros, as a product of
matrices of windows does, and another leaves them out. Both are right, and they agree until the other factor is an
infinity or NaN: then 0 · ∞ makes the result of the first kernel NaN, and has no effect in the second.

The rule. A product with an inserted zero is left out. So the centre and the radius of an element are those of the terms
that every evaluation has, and a finite result must be in that ball. An element that would have had such a product with
an infinity or NaN is marked as `stray`: NaN is right there, too. An element that is computed from a stray one is stray.

Minus infinity that a reading inserts, as a causal mask does, becomes such a zero by an exponential: a kernel that skips
masked keys never forms the product of their weight, which is 0, and their value, which may be NaN.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import BILINEAR, Params
from ..contract import contract
from .ball import MARKED, RULES, Ball, centre_of, settle_product, term_finder

#: For masks, any contract will do.
_ANY = contract("float32")


def _move_mask(primitive: str, masks: Sequence[Any], params: Params) -> Any:
    """Which elements of a linear primitive's result depend on an element that the masks mark."""
    plain = {name: value for name, value in params.items() if name not in ("inserted", "in_place")}
    return centre_of(primitive, plain, _ANY, *masks) > 0


def _mask(mask: Any, shape: tuple[int, ...]) -> Any:
    return np.zeros(shape, dtype=bool) if mask is None else np.broadcast_to(mask, shape)


def _marked(masks: Sequence[Any]) -> bool:
    return any(mask is not None for mask in masks)


def _mark_stray(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Elementwise primitives and reductions: every element that is computed from a stray one is stray."""
    masks = [x.stray for x in operands]
    if not _marked(masks):
        return out
    axes = params.get("axes", ())
    stray = np.zeros((1,) * len(out.shape), dtype=bool)
    for x, mask in zip(operands, masks, strict=True):
        if mask is not None:
            reached = np.any(_mask(mask, x.shape), axis=axes, keepdims=True) if axes else mask
            stray = stray | reached
    out.stray = np.broadcast_to(stray, out.shape)
    return out


def _mark_masked(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Elementwise primitives that the scores and weights of a masked row go through."""
    out = _mark_stray(primitive, out, operands, params)
    masks = [_mask(x.inserted, x.shape) for x in operands]
    if primitive == "where":
        condition = params["condition"]
        inserted = np.where(condition, *masks) if _is_truth(condition) else np.zeros(out.shape, dtype=bool)
    elif primitive == "divide":
        inserted = masks[0]
    else:
        pairs = zip(operands, masks, strict=True)
        inserted = functools.reduce(np.logical_or, (mask & (x.centre == -np.inf) for x, mask in pairs))
        if primitive == "add":
            out = _despite_nan(out, inserted)
    if inserted.any():
        out.inserted = np.broadcast_to(inserted, out.shape)
    return out


def _despite_nan(out: Ball, inserted: Any) -> Ball:
    """The sum of a mask's −∞ and a NaN, which is stray: a kernel that skips the masked element never forms this sum."""
    hit = inserted & np.isnan(out.centre)
    if not hit.any():
        return out
    ball = Ball(np.where(hit, -np.inf, out.centre), np.where(hit, 0.0, out.radii()), out.contract, True)
    ball.stray, ball.summed = hit | _mask(out.stray, out.shape), out.summed
    return ball


def _is_truth(condition: Any) -> bool:
    return isinstance(condition, (bool, np.bool_)) or (isinstance(condition, np.ndarray) and condition.dtype == bool)


def _spread_marks(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Scans and sorting: a stray element reaches all of its row."""
    (x,) = operands
    if x.stray is not None:
        out.stray = np.broadcast_to(np.any(x.stray, axis=params["axis"], keepdims=True), out.shape)
    return out


def _move_marks(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Primitives that move elements: marks go with them."""
    if _marked([x.inserted for x in operands]):
        out.inserted = _move_mask(primitive, [_mask(x.inserted, x.shape) for x in operands], params)
    return _mark_sums(primitive, out, operands, params)


def _mark_sums(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    if _marked([x.stray for x in operands]):
        out.stray = _move_mask(primitive, [_mask(x.stray, x.shape).astype(np.float64) for x in operands], params)
    return out


def _keep_marks(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    (x,) = operands
    out.inserted, out.stray = x.inserted, x.stray
    return out


def _mark_scatter(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    out = _move_marks(primitive, out, operands, params)
    if params.get("inserted"):
        (x,) = operands
        out.inserted = ~_move_mask(primitive, [~_mask(x.inserted, x.shape)], params)
    return out


def _keep_result(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Of `among`: each way has marked its result already."""
    return out


def _mark_product(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """Products: terms of an inserted zero and a factor that is not finite are left out."""
    a, b = operands
    if not out.special and not _marked([a.stray, b.stray]):
        return out
    has_term = term_finder(primitive, out.contract, params)
    stray = np.zeros(out.shape, dtype=bool)
    if a.stray is not None:
        stray |= has_term(_mask(a.stray, a.shape), np.ones(b.shape))
    if b.stray is not None:
        stray |= has_term(np.ones(a.shape), _mask(b.stray, b.shape))
    if out.special and _marked([a.inserted, b.inserted]):
        strange = [~np.isfinite(x.centre) for x in operands]
        zeros = [_mask(x.inserted, x.shape) for x in operands]
        skipped = has_term(zeros[0], strange[1]) | has_term(strange[0], zeros[1])
        if skipped.any():
            out, stray = _drop_factors(primitive, out, operands, params), stray | skipped
    out.stray = stray if stray.any() else None
    return out


def _drop_factors(primitive: str, out: Ball, operands: Sequence[Ball], params: Params) -> Ball:
    """The ball of a product without the terms that have an inserted zero (`_mark_product`)."""
    terms = out.contract
    has_term = term_finder(primitive, terms, params)
    real = [~_mask(x.inserted, x.shape) for x in operands]
    finite = [np.isfinite(x.centre) for x in operands]
    numbers = (
        Ball(np.where(good, x.centre, 0.0), None if x.radius is None else np.where(good, x.radii(), 0.0), terms)
        for x, good in zip(operands, finite, strict=True)
    )
    plain = RULES[primitive](terms, *numbers, **params)
    (a, b), (real_a, real_b) = (x.centre for x in operands), real
    plus, minus = np.inf, -np.inf
    up = has_term(a == plus, b > 0) | has_term(a > 0, b == plus) | has_term(a == minus, b < 0)
    up |= has_term(a < 0, b == minus)
    down = has_term(a == plus, b < 0) | has_term(a < 0, b == plus) | has_term(a == minus, b > 0)
    down |= has_term(a > 0, b == minus)
    none = has_term(np.isnan(a), real_b) | has_term(real_a, np.isnan(b))
    none |= has_term(np.isinf(a), (b == 0) & real_b) | has_term((a == 0) & real_a, np.isinf(b))
    limit = np.where(none | (up & down), np.nan, np.where(up, plus, np.where(down, minus, 0.0)))
    product = Ball(plain.centre + limit, plain.radii(), terms, True)
    return Ball(product.centre, settle_product(primitive, product, operands, params, real), terms, True)


MARKED.update(
    {
        "": _mark_stray,
        **dict.fromkeys(("reshape", "transpose", "broadcast", "getitem", "concatenate", "windows"), _move_marks),
        **dict.fromkeys(("cumsum", "cumprod", "sort"), _spread_marks),
        **dict.fromkeys(("negative", "store"), _keep_marks),
        **dict.fromkeys(("add", "subtract", "exp", "exp2", "divide", "where"), _mark_masked),
        **dict.fromkeys(("multiply", *BILINEAR), _mark_product),
        "overlap": _mark_sums,
        "scatter": _mark_scatter,
        "among": _keep_result,
    }
)
