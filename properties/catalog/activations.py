"""Declarations of log_sigmoid, log_sigmoid_forward and log_sigmoid_backward."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch._decomp import decompositions

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...oracles.verdict import Code
from ...oracles.violation import Unsupported
from ...reference import activations as formulas
from ...reference.formats import FORMATS, Format
from .. import strategies

Args = tuple[Any, ...]
Tensor = torch.Tensor


def _both_tails(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """To where exp(−|x|) underflows in the format of the sums, and beyond."""
    return rng.uniform(-1.0, 1.0, shape) * (760.0 if fmt.bits == 64 else 110.0)


def _near_zero(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Where the branches meet, zero itself among them."""
    return rng.integers(-2, 3, shape) * 2.0 ** rng.uniform(-30, 1, shape)


VALUES: dict[str, Any] = {**strategies.REGIMES, "both tails": _both_tails, "near zero": _near_zero}
_WEIGHTED = ("benign",) * 3 + ("both tails", "near zero") * 2 + tuple(VALUES)


@st.composite
def _drafts(draw: st.DrawFn, dtype: str, kind: str, count: int) -> Draft:
    """`count` tensors of one shape, the last in a regime of its own, those before it cotangents; 0 to 3 dims."""
    outer, inner = draw(strategies.shapes(kind, 1, draw(st.sampled_from((1, 0, 2))), 72))
    shape = () if kind == "ordinary" and draw(st.integers(0, 19)) == 19 else (*outer, *inner)
    regime = draw(st.sampled_from((("benign",) * len(_WEIGHTED) if kind == "large" else ()) + _WEIGHTED))
    gradients = draw(st.sampled_from(("benign", "benign", "ties", "wide")))

    def tensor(rng: Any, name: str) -> Tensor:
        rows = VALUES[name](rng, (math.prod(shape[:-1]), math.prod(shape[-1:])), FORMATS[dtype])
        return strategies.to_dtype(np.reshape(rows, shape), dtype).reshape(shape)

    def fill(rng: Any) -> Args:
        return (*(tensor(rng, gradients) for _ in range(count - 1)), tensor(rng, regime))

    return Draft(fill, regime, strategies.rows_and_row(outer, inner))


def _require_inexact(kind: str) -> None:
    if kind == "integers":
        raise Unsupported(Code.NOT_APPLICABLE, "an exponential is exact on no data")


def _forward(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    _require_inexact(kind)
    return _drafts(dtype, kind, 1)


def _backward(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    """The buffer is that of torch's CPU op, so that torch's op can be judged, too."""
    _require_inexact(kind)

    def with_buffer(draft: Draft) -> Draft:
        def fill(rng: Any) -> Args:
            grad, x = draft.fill(rng)
            return grad, x, x.double().abs().neg().exp().to(x.dtype)

        return dataclasses.replace(draft, fill=fill)

    return _drafts(dtype, kind, 2).map(with_buffer)


# ---------------------------------------------------------------------------------------------- promises and laws


def _saved(args: Args, wanted: frozenset[int]) -> int:
    """The input, and exp(−|x|) where that is not rounded to a half format."""
    x = args[0]
    return int(x.numel() * x.dtype.itemsize * (1 if x.dtype.itemsize == 2 else 2))


def _mirrored(args: Args, rng: Any) -> Any:
    return (args, (-args[0],))


def _difference(args: Args, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Any:
    """log s(x) − log s(−x) = x."""
    return (first[0] - second[0],), (args[0].to(first[0].dtype),)


def _slopes(args: Args, first: tuple[Tensor, ...], second: tuple[Tensor, ...]) -> Any:
    """The slopes at x and −x, for equal cotangents g, add up to 1: s(x) g + s(−x) g = g."""
    grad = args[0].to(first[0].dtype)
    return (first[0] + second[0],), (grad,)


def _mirrored_input(args: Args, rng: Any) -> Any:
    grad, x, buffer = args
    return args, (grad, -x, buffer)


def _flipped(args: Args, rng: Any) -> Args | None:
    return tuple(t.flip(0) for t in args) if args[0].ndim else None


LAWS = (
    Law("log_sigmoid(x) - log_sigmoid(-x) = x", _mirrored, _difference, exact=False),
    Law.pair("permutation", _flipped, lambda out: (out[0].flip(0), *out[1:]), exact=True),
)
BACKWARD_LAWS = (Law("slopes at x and -x add up to 1", _mirrored_input, _slopes, exact=False),)

REFUSALS = (
    Refusal("integer input", lambda args: (torch.zeros(3, dtype=torch.int64),), RuntimeError, ("input", "int64")),
    Refusal("input is not a tensor", lambda args: (args[0].tolist(),), TypeError, ("input",)),
)
BACKWARD_REFUSALS = (
    Refusal("grad_output is not a tensor", lambda a: (a[0].tolist(), *a[1:]), TypeError, ("grad_output",)),
    Refusal(
        "grad_output of another shape",
        lambda a: (torch.ones((2, *a[1].shape, 2), dtype=a[1].dtype), *a[1:]),
        RuntimeError,
        ("grad_output", "shape"),
    ),
    Refusal(
        "integer input", lambda a: (a[0], torch.zeros_like(a[1], dtype=torch.int64), a[2]), RuntimeError, ("int64",)
    ),
)


def _same_dtype(args: Args) -> tuple[torch.dtype, ...]:
    return (args[0].dtype,)


OPS: tuple[Op, ...] = (
    Op(
        name="log_sigmoid",
        reference=formulas.log_sigmoid,
        subjects={"opassay": impl.log_sigmoid, "torch": torch.nn.functional.logsigmoid},
        samples=_forward,
        differentiable=("input",),
        promises=Promises(dtypes=_same_dtype, saved=_saved),
        laws=LAWS,
        refusals=REFUSALS,
    ),
    Op(
        name="log_sigmoid_forward",
        reference=formulas.log_sigmoid_forward,
        subjects={
            "opassay": impl.log_sigmoid_forward,
            "torch": torch.ops.aten.log_sigmoid_forward.default,
            "decomposition": decompositions.log_sigmoid_forward,
        },
        samples=_forward,
        differentiable=("input",),
        promises=Promises(dtypes=lambda args: (args[0].dtype, args[0].dtype), saved=_saved),
        laws=LAWS,
        refusals=REFUSALS,
    ),
    Op(
        name="log_sigmoid_backward",
        reference=formulas.log_sigmoid_backward,
        subjects={
            "opassay": impl.log_sigmoid_backward,
            "torch": torch.ops.aten.log_sigmoid_backward.default,
            "decomposition": decompositions.log_sigmoid_backward,
        },
        samples=_backward,
        differentiable=("grad_output", "input"),
        promises=Promises(dtypes=_same_dtype, order=1),
        laws=BACKWARD_LAWS,
        refusals=BACKWARD_REFUSALS,
    ),
)
