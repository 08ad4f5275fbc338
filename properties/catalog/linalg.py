"""Declaration of trace."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch._refs
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...reference import linalg as formulas
from ...reference.formats import FORMATS
from .. import strategies

Args = tuple[Any, ...]
Tensor = torch.Tensor
#: Sides of large square matrices, whose diagonal is long: 264 is the largest within 70,000 elements.
_LARGE_SIDES = (73, 65, 128, 129, 255, 256, 257, 264)


@st.composite
def _matrices(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Wide, tall and square ones, of one row or one column, too."""
    outer, inner = draw(strategies.shapes(kind, 1, 1, 72))
    shape = (*outer, *inner)
    if kind in ("ordinary", "large") and draw(st.booleans()):
        side = draw(st.sampled_from(range(1, 9) if kind == "ordinary" else _LARGE_SIDES))
        shape = (side, side)
    shape = shape[::-1] if draw(st.booleans()) else shape
    regime = "integers" if kind == "integers" else draw(strategies.regimes(kind))
    fill = strategies.integers if regime == "integers" else strategies.REGIMES[regime]
    # A long diagonal takes a square: its length counts as the number of the square's elements.
    sizes = {"diagonal": math.prod(shape)} if shape[0] == shape[1] else {"rows": shape[0], "columns": shape[1]}
    return Draft(lambda rng: (strategies.to_dtype(fill(rng, shape, FORMATS[dtype]), dtype),), regime, sizes)


def _small(rng: Any, shape: tuple[int, ...], like: Tensor) -> Tensor:
    """A matrix of −1, 0 and 1: products and sums of a few of them are exact in every format."""
    return torch.from_numpy(rng.integers(-1, 2, shape)).to(like.dtype)


def _two_and_their_sum(args: Args, rng: Any) -> Any:
    a, b = (_small(rng, args[0].shape, args[0]) for _ in range(2))
    return (a,), (b,), (a + b,)


def _add_up(args: Args, a: tuple[Tensor, ...], b: tuple[Tensor, ...], both: tuple[Tensor, ...]) -> Any:
    return both, (a[0] + b[0],)


def _both_products(args: Args, rng: Any) -> Any:
    n, m = args[0].shape
    a, b = _small(rng, (n, m), args[0]).double(), _small(rng, (m, n), args[0]).double()
    return ((a @ b).to(args[0].dtype),), ((b @ a).to(args[0].dtype),)


LAWS = (
    Law("trace(A + B) = trace(A) + trace(B)", _two_and_their_sum, _add_up, exact=True),
    Law("trace(AB) = trace(BA)", _both_products, lambda args, ab, ba: (ab, ba), exact=True),
    Law.pair("trace of the transpose", lambda args, rng: (args[0].T,), lambda out: out, exact=True),
)

REFUSALS = (
    Refusal("a vector", lambda args: (args[0].reshape(-1),), RuntimeError, ("input", "shape=")),
    Refusal("three dims", lambda args: (args[0].unsqueeze(0),), RuntimeError, ("input", "shape=")),
    Refusal("input is not a tensor", lambda args: (args[0].tolist(),), TypeError, ("input",)),
)

OPS: tuple[Op, ...] = (
    Op(
        name="trace",
        reference=formulas.trace,
        subjects={
            "opassay": impl.trace,
            "torch": torch.trace,
            "decomposition": torch._refs.trace,
        },
        samples=_matrices,
        differentiable=("input",),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=lambda args, wanted: 0),
        laws=LAWS,
        refusals=REFUSALS,
    ),
)
