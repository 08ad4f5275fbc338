"""Declarations of layer_norm, native_layer_norm and native_layer_norm_backward."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._decomp.decompositions
import torch._refs.nn.functional
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...reference import norms as formulas
from ...reference.formats import FORMATS
from .. import strategies

Args = tuple[Any, ...]
HALF = ("bfloat16", "float16")
EPS = (1e-5, 1e-5, 1e-5, 1e-3, 1e-8, 1e-12, 0.0)


@st.composite
def _structures(draw: st.DrawFn, dtype: str, kind: str) -> dict[str, Any]:
    """What layer_norm samples have in common: shapes, affine dtypes, regime, eps."""
    inner_rank, outer_rank = draw(st.sampled_from((1, 1, 2))), draw(st.sampled_from((1, 1, 0, 2)))
    outer, inner = draw(strategies.shapes(kind, inner_rank, outer_rank, 64 if kind == "empty" else 72))
    affine = (dtype, "float32") if dtype in HALF else (dtype,)
    kept = draw(st.sampled_from(affine))
    return {
        "outer": outer,
        "inner": inner,
        "weight": draw(st.sampled_from((kept, kept, None))),
        "bias": draw(st.sampled_from((kept, kept, None))),
        "regime": "integers" if kind == "integers" else draw(strategies.regimes(kind)),
        "eps": draw(st.sampled_from(EPS)),
        "extents": strategies.rows_and_row(outer, inner),
    }


def _input(rng: Any, structure: dict[str, Any], dtype: str) -> torch.Tensor:
    shape = (*structure["outer"], *structure["inner"])
    rows = (math.prod(structure["outer"]), math.prod(structure["inner"]))
    fill = strategies.integers if structure["regime"] == "integers" else strategies.REGIMES[structure["regime"]]
    return strategies.to_dtype(np.reshape(fill(rng, rows, FORMATS[dtype]), shape), dtype)


def _affine(rng: Any, structure: dict[str, Any], name: str) -> torch.Tensor | None:
    dtype = structure[name]
    if dtype is None:
        return None
    values = rng.standard_normal(structure["inner"]) + (1.0 if name == "weight" else 0.0)
    return strategies.to_dtype(values, dtype)


def _forward_args(rng: Any, structure: dict[str, Any], dtype: str) -> Args:
    x = _input(rng, structure, dtype)
    return x, structure["inner"], _affine(rng, structure, "weight"), _affine(rng, structure, "bias"), structure["eps"]


@st.composite
def _forward(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(_structures(dtype, kind))
    return Draft(lambda rng: _forward_args(rng, structure, dtype), structure["regime"], structure["extents"])


def _statistics(x: torch.Tensor, rank: int, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and rstd of the rows as a forward pass leaves them: correct to the statistics' dtype."""
    dims = tuple(range(-rank, 0))
    wide = x.double()
    mean = wide.mean(dims, keepdim=True)
    rstd = (wide.sub(mean).square().mean(dims, keepdim=True) + eps).rsqrt()
    kept = x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32
    return mean.to(kept), rstd.to(kept)


@st.composite
def _backward(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(_structures(dtype, kind))
    structure["eps"] = structure["eps"] or 1e-5  # rstd must be finite: it is an argument here
    mask = draw(st.sampled_from([(True, True, True), (True, True, True), (True, False, True), (False, True, True)]))

    def fill(rng: Any) -> Args:
        x, inner, weight, bias, eps = _forward_args(rng, structure, dtype)
        grad = strategies.to_dtype(rng.standard_normal(tuple(x.shape)), dtype)
        if kind == "integers":
            grad = strategies.to_dtype(strategies.integers(rng, tuple(x.shape), FORMATS[dtype]), dtype)
        mean, rstd = _statistics(x, len(inner), eps)
        wanted = (mask[0], mask[1] and weight is not None, mask[2] and bias is not None)
        return grad, x, inner, mean, rstd, weight, bias, wanted if any(wanted) else (True, *wanted[1:])

    return Draft(fill, structure["regime"], structure["extents"])


# ---------------------------------------------------------------------------------------------- promises


def _statistics_dtype(x: torch.Tensor) -> torch.dtype:
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def _bytes(t: torch.Tensor | None) -> int:
    return 0 if t is None else t.numel() * t.element_size()


def _saved(args: Args, wanted: frozenset[int]) -> int:
    """Input and statistics where the input or the weight needs a gradient, and the weight where the input does."""
    x, inner, weight = args[0], args[1], args[2]
    if not wanted & {0, 2}:
        return 0
    statistics: int = 2 * math.prod(x.shape[: x.ndim - len(inner)]) * _statistics_dtype(x).itemsize
    return _bytes(x) + statistics + (_bytes(weight) if 0 in wanted else 0)


def _backward_dtypes(args: Args) -> tuple[torch.dtype, ...]:
    _, x, _, _, _, weight, bias, mask = args
    kinds = (x.dtype, (weight if weight is not None else x).dtype, (bias if bias is not None else x).dtype)
    return tuple(kind for kind, wanted in zip(kinds, mask, strict=True) if wanted)


# ---------------------------------------------------------------------------------------------- laws


def _scaled(args: Args, rng: Any) -> Args | None:
    """x -> 2^k x with eps -> 4^k eps: the same output, as every rounding scales."""
    x, inner, weight, bias, eps = args
    k = int(rng.integers(-3, 4))
    size = x.double().abs()
    info = torch.finfo(torch.float32 if x.dtype.itemsize == 2 else x.dtype)
    inside = size[size > 0]
    edge = inside.numel() and (inside.min() < info.tiny**0.25 or inside.max() > info.max**0.25)
    scaled = x * 2.0**k
    if edge or eps * 4.0**k < 1e-30 or not torch.equal(scaled.double(), x.double() * 2.0**k):
        return None
    return scaled, inner, weight, bias, eps * 4.0**k


def _rolled(args: Args, rng: Any) -> Args | None:
    x, *rest = args
    if x.ndim <= len(args[1]) or x.numel() == 0:
        return None
    return (x.roll(1, 0), *rest)


def _mirrored(args: Args, rng: Any) -> Args | None:
    """x -> −x and b -> −b: the output changes sign."""
    x, inner, weight, bias, eps = args
    return -x, inner, weight, None if bias is None else -bias, eps


LAWS = (
    Law.pair("scale by 2^k with eps by 4^k", _scaled, lambda out: out, exact=True),
    Law.pair("permutation of the batch", _rolled, lambda out: tuple(y.roll(1, 0) for y in out), exact=True),
    Law.pair("mirror x and bias", _mirrored, lambda out: tuple(-y for y in out), exact=True),
)
BATCH_LAW = LAWS[1:2]


# ---------------------------------------------------------------------------------------------- refusals


def _with(position: int, change: Callable[[Any, Args], Any]) -> Callable[[Args], Args | None]:
    """Arguments with one of them changed; None where that argument is absent."""

    def mutate(args: Args) -> Args | None:
        if args[position] is None:
            return None
        return (*args[:position], change(args[position], args), *args[position + 1 :])

    return mutate


def _refusals(x: int, shape: int, weight: int) -> tuple[Refusal, ...]:
    longer: Callable[[Any, Args], Any] = lambda t, args: torch.ones((t.shape[0] + 1, *t.shape[1:]), dtype=t.dtype)  # noqa: E731
    return (
        Refusal("empty normalized_shape", _with(shape, lambda s, a: ()), RuntimeError, ("normalized_shape",)),
        Refusal(
            "normalized_shape is not the trailing shape",
            _with(shape, lambda s, a: (*s[:-1], s[-1] + 1)),
            RuntimeError,
            ("normalized_shape",),
        ),
        Refusal("weight of another shape", _with(weight, longer), RuntimeError, ("weight",)),
        Refusal("bias of another shape", _with(weight + 1, longer), RuntimeError, ("bias",)),
        Refusal("integer input", _with(x, lambda t, a: t.to(torch.int64)), RuntimeError, ("input",)),
        Refusal("input is not a tensor", _with(x, lambda t, a: t.tolist()), TypeError, ("input",)),
    )


OPS: tuple[Op, ...] = (
    Op(
        name="layer_norm",
        reference=formulas.layer_norm,
        subjects={
            "opassay": impl.layer_norm,
            "torch": torch.nn.functional.layer_norm,
            "decomposition": torch._refs.nn.functional.layer_norm,
        },
        samples=_forward,
        differentiable=("input", "weight", "bias"),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=_saved),
        laws=LAWS,
        refusals=_refusals(0, 1, 2),
    ),
    Op(
        name="native_layer_norm",
        reference=formulas.native_layer_norm,
        subjects={
            "opassay": impl.native_layer_norm,
            "torch": torch.ops.aten.native_layer_norm.default,
            "decomposition": torch._refs.native_layer_norm,
        },
        samples=_forward,
        differentiable=("input", "weight", "bias"),
        promises=Promises(dtypes=lambda args: (args[0].dtype, *(_statistics_dtype(args[0]),) * 2), saved=_saved),
        laws=BATCH_LAW,
        refusals=_refusals(0, 1, 2),
    ),
    Op(
        name="native_layer_norm_backward",
        reference=formulas.native_layer_norm_backward,
        subjects={
            "opassay": impl.native_layer_norm_backward,
            "torch": torch.ops.aten.native_layer_norm_backward.default,
            "decomposition": torch._decomp.decompositions.native_layer_norm_backward,
        },
        samples=_backward,
        differentiable=("grad_out", "input", "weight"),  # mean and rstd count as functions of the input
        promises=Promises(dtypes=_backward_dtypes, order=1),
        refusals=_refusals(1, 2, 5),
    ),
)
