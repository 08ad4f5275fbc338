"""Declarations of softmax, log_softmax and their backward ops."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._refs
from hypothesis import strategies as st
from torch._decomp import decompositions

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...oracles.verdict import Code
from ...oracles.violation import Unsupported
from ...reference import softmax as formulas
from ...reference.formats import FORMATS, Format
from .. import strategies

Args = tuple[Any, ...]
Tensor = torch.Tensor
#: What `dtype` is asked for besides None: wider and narrower than the input, and the input's own.
RESULTS = {
    "float64": ("float64", "float32"),
    "float32": ("float64", "float32", "bfloat16"),
    "bfloat16": ("float32", "bfloat16", "float16"),
    "float16": ("float32", "float16", "bfloat16"),
}


# ---------------------------------------------------------------------------------------------- regimes of logits


def _far_apart(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Differences far beyond where exp overflows and underflows, with ties among the largest."""
    size = 10.0 ** rng.uniform(2, 4)
    return np.round(rng.standard_normal(shape) * 2) * size


def _near_underflow(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Probabilities around the smallest ones that the format of the sums, or that of the result, can hold."""
    deepest = 750.0 if fmt.bits == 64 else rng.uniform(12.0, 110.0)
    return rng.uniform(-deepest, 0.0, shape)


def _one_huge(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    values = rng.standard_normal(shape)
    if values.size:
        values.flat[rng.integers(values.size)] = 10.0 ** rng.uniform(1, 4)
    return values


def _masked(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Some elements absent, and now and then every element of a row."""
    values = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
    if values.size and rng.random() < 0.2:
        values[int(rng.integers(shape[0]))] = -np.inf
    return values


LOGITS: dict[str, Any] = {
    **strategies.REGIMES,
    "far apart": _far_apart,
    "near underflow": _near_underflow,
    "one huge": _one_huge,
    "masked": _masked,
}
_WEIGHTED = ("benign",) * 4 + ("far apart", "near underflow", "one huge", "masked") + tuple(LOGITS)


def _regimes(kind: str) -> st.SearchStrategy[str]:
    return st.sampled_from((("benign",) * len(_WEIGHTED) if kind == "large" else ()) + _WEIGHTED)


def _logits(rng: Any, regime: str, shape: tuple[int, ...], dim: int, dtype: str) -> Tensor:
    """A tensor of rows along `dim`."""
    if not shape:
        values = np.asarray(rng.standard_normal(())) if regime != "integers" else np.asarray(3.0)
        return strategies.to_dtype(values, dtype).reshape(())
    rest = [n for i, n in enumerate(shape) if i != dim % len(shape)]
    fill = strategies.integers if regime == "integers" else LOGITS[regime]
    rows = fill(rng, (math.prod(rest), shape[dim]), FORMATS[dtype])
    values = np.moveaxis(np.reshape(rows, (*rest, shape[dim])), -1, dim)
    absent = torch.from_numpy(np.ascontiguousarray(np.isneginf(values)))
    return strategies.to_dtype(values, dtype).masked_fill(absent, -math.inf)


@st.composite
def _structures(draw: st.DrawFn, dtype: str, kind: str) -> dict[str, Any]:
    """Shape, dim, regime; rows of length 1, odd lengths, inner and outer dims."""
    outer_rank = draw(st.sampled_from((1, 1, 0, 2)))
    scalar = kind == "ordinary" and draw(st.integers(0, 19)) == 19
    outer, inner = draw(strategies.shapes(kind, 1, outer_rank, 64 if kind == "empty" else 72))
    shape = () if scalar else (*outer, *inner)
    ndim = max(len(shape), 1)
    dim = draw(st.sampled_from((-1, -1, *range(ndim), -ndim)))
    row = shape[dim] if shape else 1
    return {
        "shape": shape,
        "dim": dim,
        "extents": {"row": row, "rows": math.prod(shape) // max(row, 1)},
        "regime": "integers" if kind == "integers" else draw(_regimes(kind)),
        "dtype": getattr(torch, draw(st.sampled_from(RESULTS[dtype]))) if draw(st.integers(0, 3)) == 3 else None,
    }


@st.composite
def _forward_drafts(draw: st.DrawFn, dtype: str, kind: str) -> Draft:
    s = draw(_structures(dtype, kind))

    def fill(rng: Any) -> Args:
        return _logits(rng, s["regime"], s["shape"], s["dim"], dtype), s["dim"], s["dtype"]

    return Draft(fill, s["regime"], s["extents"])


def _forward(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    _require_inexact(kind)
    return _forward_drafts(dtype, kind)


def _require_inexact(kind: str) -> None:
    if kind == "integers":
        raise Unsupported(Code.NOT_APPLICABLE, "an exponential is exact on no data")


def _backward(op: Callable[..., Tensor], log: bool) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of a backward op: outputs of `op`, correctly rounded, of rows that have one."""

    @st.composite
    def drafts(draw: st.DrawFn, dtype: str, kind: str) -> Draft:
        s = draw(_structures(dtype, kind))
        whole = kind == "integers"
        # The input's dtype is that of the cotangent, or a half one where that is float32.
        to = draw(st.sampled_from((dtype, dtype, dtype, "float16"))) if dtype == "float32" else dtype
        gradients = (
            "integers" if whole else draw(st.sampled_from(("benign", "benign", "constant rows", "ties", "wide")))
        )

        def fill(rng: Any) -> Args:
            x = _logits(rng, s["regime"], s["shape"], s["dim"], dtype)
            output = x if whole else op(x.double(), s["dim"]).nan_to_num(nan=0.0).to(x.dtype)
            return _logits(rng, gradients, s["shape"], s["dim"], dtype), output, s["dim"], getattr(torch, to)

        return Draft(fill, s["regime"], s["extents"])

    def samples(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
        if log:
            _require_inexact(kind)
        return drafts(dtype, kind)

    return samples


# ---------------------------------------------------------------------------------------------- promises


def _result(args: Args) -> torch.dtype:
    x, _, dtype = args
    return dtype or x.dtype  # type: ignore[no-any-return]


def _saved(args: Args, wanted: frozenset[int]) -> int:
    """The output, before it is rounded where `dtype` is narrower than what it was computed in; a zero for its shift."""
    x, result = args[0], _result(args)
    wide = torch.float32 if x.dtype.itemsize == 2 else x.dtype
    narrows = result is not x.dtype and torch.promote_types(wide, result) is not result
    kept = wide if narrows else result
    return int(x.numel() * kept.itemsize + (4 if kept.itemsize == 2 else 0))


# ---------------------------------------------------------------------------------------------- laws


def _shifted(args: Args, rng: Any) -> Any:
    """x -> x + c for every row alike, where that addition is exact."""
    x, dim, dtype = args
    c = 2.0 ** int(rng.integers(-2, 6)) * rng.choice([-1.0, 1.0])
    moved = x + c
    if not torch.equal(moved.double(), x.double() + c):
        return None
    return args, (moved, dim, dtype)


def _flipped(args: Args, rng: Any) -> Any:
    """The elements of every row in another order."""
    x, dim, dtype = args
    return (args, (x.flip(dim), dim, dtype)) if x.ndim and x.numel() else None


def _flipped_back(args: Args, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Any:
    return second, tuple(y.flip(args[1]) for y in first)


def _batch_axis(x: Tensor, dim: int) -> int:
    return 0 if dim % x.ndim else 1


def _rolled(args: Args, rng: Any) -> Any:
    """The batch in another order."""
    x, dim, dtype = args
    if x.ndim < 2 or not x.numel():
        return None
    return args, (x.roll(1, _batch_axis(x, dim)), dim, dtype)


def _rolled_back(args: Args, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Any:
    return second, tuple(y.roll(1, _batch_axis(*args[:2])) for y in first)


def _with_absent(args: Args, rng: Any) -> Any:
    """One more column, of -inf, in the middle."""
    x, dim, dtype = args
    if not x.ndim or not x.numel():
        return None
    left, right = x.tensor_split([x.shape[dim] // 2], dim)
    return args, (torch.cat([left, torch.full_like(x.narrow(dim, 0, 1), -math.inf), right], dim), dim, dtype)


def _without_absent(args: Args, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Any:
    x, dim, _ = args
    left, _, right = second[0].tensor_split([x.shape[dim] // 2, x.shape[dim] // 2 + 1], dim)
    return (torch.cat([left, right], dim),), first


def _alone(args: Args, rng: Any) -> Any:
    return (args,) if args[0].numel() and args[0].ndim else None


def _sums_to(one: float) -> Callable[..., Any]:
    def relate(args: Args, out: tuple[Tensor, ...]) -> Any:
        total = out[0].sum(args[1])
        return (total,), (torch.full_like(total, one),)

    return relate


LAWS = (
    Law("shift invariance", _shifted, lambda args, first, second: (second, first), exact=False),
    Law("a column of -inf is absent", _with_absent, _without_absent, exact=False),
    Law("gradient sums to zero", _alone, _sums_to(0.0), exact=False, word=("vjp",)),
    Law("permutation within the rows", _flipped, _flipped_back, exact=False),
    Law("permutation of the batch", _rolled, _rolled_back, exact=False),
)
SOFTMAX_LAWS = (
    *LAWS,
    Law("sums to one", _alone, _sums_to(1.0), exact=False),
    Law("tangent sums to zero", _alone, _sums_to(0.0), exact=False, word=("jvp",)),
)


def _doubled(args: Args, rng: Any) -> Args | None:
    grad, *rest = args
    return (2 * grad, *rest) if torch.isfinite(2 * grad).all() else None


BACKWARD_LAWS = (Law.pair("linear in the cotangent", _doubled, lambda out: tuple(2 * y for y in out), exact=False),)


# ---------------------------------------------------------------------------------------------- refusals


def _with(position: int, change: Callable[[Any], Any]) -> Callable[[Args], Args]:
    return lambda args: (*args[:position], change(args[position]), *args[position + 1 :])


def _longer(t: Tensor) -> Tensor:
    return torch.ones((*t.shape, 2), dtype=t.dtype)


REFUSALS = (
    Refusal("input is not a tensor", _with(0, lambda t: t.tolist()), TypeError, ("input",)),
    Refusal("dim too large", lambda args: (args[0], max(args[0].ndim, 1), args[2]), IndexError, ("dim=",)),
    Refusal("dim too small", lambda args: (args[0], -max(args[0].ndim, 1) - 1, args[2]), IndexError, ("dim=",)),
    Refusal("dim is not an int", _with(1, lambda dim: 0.5), TypeError, ("dim=0.5",)),
    Refusal("integer input", lambda args: (args[0].isnan().long(), args[1], None), RuntimeError, ("input", "int64")),
    Refusal("integer result", _with(2, lambda dtype: torch.int64), RuntimeError, ("dtype=torch.int64",)),
)
BACKWARD_REFUSALS = (
    Refusal("grad_output is not a tensor", _with(0, lambda t: t.tolist()), TypeError, ("grad_output",)),
    Refusal("output of another shape", _with(1, _longer), RuntimeError, ("output", "shape")),
    Refusal("output of another dtype", _with(1, lambda t: t.to(torch.int64)), RuntimeError, ("output", "int64")),
    Refusal("dim too large", _with(2, lambda dim: 9), IndexError, ("dim=9",)),
    Refusal("dim is not an int", _with(2, lambda dim: 0.5), TypeError, ("dim=0.5",)),
)


def _forward_op(formula: Callable[..., Any], subjects: dict[str, Any], laws: tuple[Law, ...]) -> Op:
    return Op(
        name=formula.__name__,
        reference=formula,
        subjects=subjects,
        samples=_forward,
        differentiable=("input",),
        promises=Promises(dtypes=lambda args: (_result(args),), saved=_saved),
        laws=laws,
        refusals=REFUSALS,
    )


def _backward_op(formula: Callable[..., Any], subjects: dict[str, Any], log: bool) -> Op:
    return Op(
        name=formula.__name__,
        reference=formula,
        subjects=subjects,
        samples=_backward(torch.log_softmax if log else torch.softmax, log),
        differentiable=("grad_output", "output"),
        promises=Promises(dtypes=lambda args: (args[3],), order=1),
        laws=BACKWARD_LAWS,
        refusals=BACKWARD_REFUSALS,
    )


OPS: tuple[Op, ...] = (
    _forward_op(
        formulas.softmax,
        {"opassay": impl.softmax, "torch": torch.softmax, "decomposition": torch._refs.softmax},
        SOFTMAX_LAWS,
    ),
    _forward_op(
        formulas.log_softmax,
        {"opassay": impl.log_softmax, "torch": torch.log_softmax, "decomposition": torch._refs.log_softmax},
        LAWS,
    ),
    _backward_op(
        formulas.softmax_backward_data,
        {
            "opassay": impl.softmax_backward_data,
            "torch": torch.ops.aten._softmax_backward_data.default,
            "decomposition": decompositions._softmax_backward_data,
        },
        log=False,
    ),
    _backward_op(
        formulas.log_softmax_backward_data,
        {
            "opassay": impl.log_softmax_backward_data,
            "torch": torch.ops.aten._log_softmax_backward_data.default,
            "decomposition": decompositions._log_softmax_backward_data,
        },
        log=True,
    ),
)
