"""Declarations of group_norm, native_group_norm and native_group_norm_backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
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
    """What group_norm samples have in common: shapes, affine dtypes, regime, eps; input of 2 to 5 dims."""
    limit = 64 if kind == "empty" else 72
    rank = draw(st.sampled_from((1, 1, 2, 0, 3)))
    (n, groups), (per_group, *positions) = draw(strategies.shapes(kind, 1 + rank, 2, limit))
    if groups == 0:  # there is no op of no groups, but one of no channels
        groups, per_group = 3, 0
    affine = (dtype, "float32") if dtype in HALF else (dtype,)
    kept = draw(st.sampled_from(affine))
    return {
        "n": n,
        "groups": groups,
        "per_group": per_group,
        "positions": tuple(positions),
        "weight": draw(st.sampled_from((kept, kept, None))),
        "bias": draw(st.sampled_from((kept, kept, None))),
        "regime": "integers" if kind == "integers" else draw(strategies.regimes(kind)),
        "eps": draw(st.sampled_from(EPS)),
        "extents": {"n": n, "groups": groups, "per_group": per_group, "positions": math.prod(positions)},
    }


def _input(rng: Any, structure: dict[str, Any], dtype: str) -> torch.Tensor:
    n, groups, per_group = (structure[name] for name in ("n", "groups", "per_group"))
    rows = (n * groups, per_group * math.prod(structure["positions"]))
    fill = strategies.integers if structure["regime"] == "integers" else strategies.REGIMES[structure["regime"]]
    shape = (n, groups * per_group, *structure["positions"])
    return strategies.to_dtype(np.reshape(fill(rng, rows, FORMATS[dtype]), shape), dtype)


def _affine(rng: Any, structure: dict[str, Any], name: str) -> torch.Tensor | None:
    dtype = structure[name]
    if dtype is None:
        return None
    values = rng.standard_normal(structure["groups"] * structure["per_group"]) + (1.0 if name == "weight" else 0.0)
    return strategies.to_dtype(values, dtype)


def _forward_args(rng: Any, structure: dict[str, Any], dtype: str) -> Args:
    x = _input(rng, structure, dtype)
    weight, bias = _affine(rng, structure, "weight"), _affine(rng, structure, "bias")
    return x, structure["groups"], weight, bias, structure["eps"]


def _sizes(x: torch.Tensor) -> tuple[int, int, int]:
    """(N, C, HxW)."""
    return x.shape[0], x.shape[1], math.prod(x.shape[2:])


@st.composite
def _forward(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(_structures(dtype, kind))
    if structure["n"] * structure["per_group"] * math.prod(structure["positions"]) == 1:
        structure["n"] = 2  # one group of one element is all that torch's function refuses; aten's does not
    return Draft(lambda rng: _forward_args(rng, structure, dtype), structure["regime"], structure["extents"])


@st.composite
def _native(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(_structures(dtype, kind))
    flat = draw(st.sampled_from((False, False, False, True)))

    def fill(rng: Any) -> Args:
        x, groups, weight, bias, eps = _forward_args(rng, structure, dtype)
        # aten's op reads any shape of so many elements
        return x.reshape(-1) if flat else x, weight, bias, *_sizes(x), groups, eps

    return Draft(fill, structure["regime"], structure["extents"])


def _statistics(x: torch.Tensor, groups: int, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and rstd of the groups as a forward pass leaves them: correct to the statistics' dtype."""
    n, channels, positions = _sizes(x)
    wide = x.double().reshape(n, groups, channels // groups * positions)
    mean = wide.mean(-1, keepdim=True)
    rstd = (wide.sub(mean).square().mean(-1) + eps).rsqrt()
    kept = _statistics_dtype(x)
    return mean[..., 0].to(kept), rstd.to(kept)


@st.composite
def _backward(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(_structures(dtype, kind))
    structure["eps"] = structure["eps"] or 1e-5  # rstd must be finite: it is an argument here
    mask = draw(st.sampled_from([(True, True, True), (True, True, True), (True, False, True), (False, True, True)]))

    def fill(rng: Any) -> Args:
        x, groups, weight, _, eps = _forward_args(rng, structure, dtype)
        grad = strategies.to_dtype(rng.standard_normal(tuple(x.shape)), dtype)
        if kind == "integers":
            grad = strategies.to_dtype(strategies.integers(rng, tuple(x.shape), FORMATS[dtype]), dtype)
        wanted = (mask[0], mask[1] and weight is not None, mask[2])
        return grad, x, *_statistics(x, groups, eps), weight, *_sizes(x), groups, wanted

    return Draft(fill, structure["regime"], structure["extents"])


# ---------------------------------------------------------------------------------------------- promises


def _statistics_dtype(x: torch.Tensor) -> torch.dtype:
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def _bytes(t: torch.Tensor | None) -> int:
    return 0 if t is None else t.numel() * t.element_size()


def _saved_bytes(x: torch.Tensor, weight: torch.Tensor | None, rows: int, of_x: bool, of_weight: bool) -> int:
    """Input and statistics where the input or the weight needs a gradient, and the weight where the input does."""
    if not (of_x or of_weight):
        return 0
    return _bytes(x) + 2 * rows * _statistics_dtype(x).itemsize + (_bytes(weight) if of_x else 0)


def _saved(args: Args, wanted: frozenset[int]) -> int:
    return _saved_bytes(args[0], args[2], args[0].shape[0] * args[1], 0 in wanted, 2 in wanted)


def _saved_native(args: Args, wanted: frozenset[int]) -> int:
    return _saved_bytes(args[0], args[1], args[3] * args[6], 0 in wanted, 1 in wanted)


def _backward_dtypes(args: Args) -> tuple[torch.dtype, ...]:
    _, x, _, _, weight, *_, mask = args
    of_parameters = (x if weight is None else weight).dtype
    kinds = (x.dtype, of_parameters, of_parameters)
    return tuple(kind for kind, wanted in zip(kinds, mask, strict=True) if wanted)


# ---------------------------------------------------------------------------------------------- laws


def _scaled(args: Args, rng: Any) -> Args | None:
    """x -> 2^k x with eps -> 4^k eps: the same output, as every rounding scales."""
    x, groups, weight, bias, eps = args
    k = int(rng.integers(-3, 4))
    size = x.double().abs()
    info = torch.finfo(torch.float32 if x.dtype.itemsize == 2 else x.dtype)
    inside = size[size > 0]
    edge = inside.numel() and (inside.min() < info.tiny**0.25 or inside.max() > info.max**0.25)
    scaled = x * 2.0**k
    if edge or eps * 4.0**k < 1e-30 or not torch.equal(scaled.double(), x.double() * 2.0**k):
        return None
    return scaled, groups, weight, bias, eps * 4.0**k


def _shifted(args: Args, rng: Any) -> Sequence[Args] | None:
    """x and x + c with one c per group, both exact: x is first put on a grid that leaves room for c."""
    x, groups, weight, bias, eps = args
    n, channels, positions = _sizes(x)
    rows = x.double().reshape(n, groups, -1) if x.numel() else x.double()
    if x.numel() == 0 or not rows.abs().max() < 2.0**40 or channels * positions == groups:
        return None
    precision = {torch.float64: 53, torch.float32: 24, torch.float16: 11}.get(x.dtype, 8)
    top = rows.abs().amax(-1, keepdim=True).clamp(min=2.0**-10).log2().ceil()
    grid = torch.exp2(top - (precision - 3))
    coarse = (rows / grid).round() * grid
    c = torch.from_numpy(rng.integers(-3, 4, (n, groups, 1)).astype(np.float64)) * torch.exp2(top)
    both = [t.reshape(x.shape).to(x.dtype) for t in (coarse, coarse + c)]
    if not all(torch.equal(t.double(), e.reshape(x.shape)) for t, e in zip(both, (coarse, coarse + c), strict=True)):
        return None
    return tuple((t, groups, weight, bias, eps) for t in both)


def _rolled(args: Args, rng: Any) -> Args | None:
    x, *rest = args
    return None if x.ndim < 2 or x.numel() == 0 else (x.roll(1, 0), *rest)


def _roll_groups(t: torch.Tensor | None, dim: int, by: int) -> torch.Tensor | None:
    return None if t is None else t.roll(by, dim)


def _groups_rolled(args: Args, rng: Any) -> Args:
    """Groups and their parameters one group on."""
    x, groups, weight, bias, eps = args
    by = x.shape[1] // groups
    return x.roll(by, 1), groups, _roll_groups(weight, 0, by), _roll_groups(bias, 0, by), eps


def _mirrored(args: Args, rng: Any) -> Args | None:
    """x -> −x and b -> −b: the output changes sign."""
    x, groups, weight, bias, eps = args
    return -x, groups, weight, None if bias is None else -bias, eps


def _groups_as_samples(args: Args, rng: Any) -> Sequence[Args]:
    """Every group a sample of its own, that is layer norm of it; without parameters."""
    x, groups, _, _, eps = args
    alone = x.reshape(x.shape[0] * groups, x.shape[1] // groups, *x.shape[2:])
    return (x, groups, None, None, eps), (alone, 1, None, None, eps)


LAWS = (
    Law.pair("scale by 2^k with eps by 4^k", _scaled, lambda out: out, exact=True),
    Law("shift of each group", _shifted, lambda args, first, second: (second, first), exact=False),
    Law.pair("permutation of the batch", _rolled, lambda out: tuple(y.roll(1, 0) for y in out), exact=True),
    Law(
        "permutation of the groups",
        lambda args, rng: (args, _groups_rolled(args, rng)),
        lambda args, first, second: (second, tuple(y.roll(y.shape[1] // args[1], 1) for y in first)),
        exact=True,
    ),
    Law(
        "each group a sample of its own",
        _groups_as_samples,
        lambda args, first, second: (second, tuple(y.reshape(z.shape) for y, z in zip(first, second, strict=True))),
        exact=True,
    ),
    Law.pair("mirror x and bias", _mirrored, lambda out: tuple(-y for y in out), exact=True),
)
BATCH_LAW = LAWS[2:3]


# ---------------------------------------------------------------------------------------------- refusals


def _with(position: int, change: Callable[[Any, Args], Any]) -> Callable[[Args], Args | None]:
    """Arguments with one of them changed; None where that argument is absent."""

    def mutate(args: Args) -> Args | None:
        if args[position] is None:
            return None
        return (*args[:position], change(args[position], args), *args[position + 1 :])

    return mutate


def _longer(t: torch.Tensor, args: Args) -> torch.Tensor:
    return torch.ones((t.shape[0] + 1, *t.shape[1:]), dtype=t.dtype)


def _refusals(x: int, groups: int, label: str, *parameters: tuple[int, str]) -> tuple[Refusal, ...]:
    return (
        Refusal("no groups", _with(groups, lambda g, a: -1), RuntimeError, (label,)),
        Refusal("groups that do not divide the channels", _with(groups, lambda g, a: 1000), RuntimeError, (label,)),
        Refusal("integer input", _with(x, lambda t, a: t.to(torch.int64)), RuntimeError, ("input",)),
        Refusal("input is not a tensor", _with(x, lambda t, a: t.tolist()), TypeError, ("input",)),
        *(Refusal(f"{name} of another shape", _with(at, _longer), RuntimeError, (name,)) for at, name in parameters),
    )


FLAT = Refusal("input of one dim", _with(0, lambda t, a: t.reshape(-1)), RuntimeError, ("input",))


def _sized(x: int, n: int) -> Refusal:
    return Refusal(
        "another number of elements", _with(n, lambda size, a: size + a[x].numel() + 1), RuntimeError, ("N",)
    )


OPS: tuple[Op, ...] = (
    Op(
        name="group_norm",
        reference=formulas.group_norm,
        subjects={"opassay": impl.group_norm, "torch": torch.nn.functional.group_norm},
        samples=_forward,
        differentiable=("input", "weight", "bias"),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=_saved),
        laws=LAWS,
        refusals=(*_refusals(0, 1, "num_groups", (2, "weight"), (3, "bias")), FLAT),
    ),
    Op(
        name="native_group_norm",
        reference=formulas.native_group_norm,
        subjects={"opassay": impl.native_group_norm, "torch": torch.ops.aten.native_group_norm.default},
        samples=_native,
        differentiable=("input", "weight", "bias"),
        promises=Promises(dtypes=lambda args: (args[0].dtype, *(_statistics_dtype(args[0]),) * 2), saved=_saved_native),
        laws=BATCH_LAW,
        refusals=(*_refusals(0, 6, "group", (1, "weight"), (2, "bias")), _sized(0, 3)),
    ),
    Op(
        name="native_group_norm_backward",
        reference=formulas.native_group_norm_backward,
        subjects={
            "opassay": impl.native_group_norm_backward,
            "torch": torch.ops.aten.native_group_norm_backward.default,
        },
        samples=_backward,
        differentiable=("grad_out", "input", "weight"),  # mean and rstd count as functions of the input
        promises=Promises(dtypes=_backward_dtypes, order=1),
        refusals=(*_refusals(1, 8, "group", (4, "weight")), _sized(1, 5)),
    ),
)
