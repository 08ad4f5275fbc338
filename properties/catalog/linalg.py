"""Declaration of trace."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch._refs
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op
from ...reference import linalg as formulas
from ..declaring import drawing, laws, refusals, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare
from ..declaring.signature import ArgumentsByName

Tensor = torch.Tensor
#: Sides of large square matrices, whose diagonal is long: 264 is the largest within 70,000 elements.
_LARGE_SIDES = (73, 65, 128, 129, 255, 256, 257, 264)


@st.composite
def _matrices(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Wide, tall and square matrices, also of one row or one column."""
    outer, inner = draw(strategies.shapes(kind, 1, 1))
    shape = (*outer, *inner)
    if kind in ("ordinary", "large") and draw(choose("square", (False, True))):
        side = draw(choose("side", range(1, 9) if kind == "ordinary" else _LARGE_SIDES))
        shape = (side, side)
    shape = shape[::-1] if draw(choose("transposed", (False, True))) else shape
    regime = draw(drawing.regime(kind))
    # A long diagonal takes a square, so its length counts as the number of the square's elements.
    sizes = {"diagonal": math.prod(shape)} if shape[0] == shape[1] else {"rows": shape[0], "columns": shape[1]}
    return Draft(lambda rng: {"input": drawing.rows(rng, regime, shape, dtype)}, regime, sizes)


def _small(rng: Any, rows: int, columns: int) -> Tensor:
    """A matrix of −1, 0 and 1: products and sums of a few of them are exact in every format."""
    return torch.from_numpy(rng.integers(-1, 2, (rows, columns)))


def _two_and_their_sum(input: Tensor, rng: Any) -> tuple[ArgumentsByName, ...]:
    first, second = (_small(rng, *input.shape).to(input.dtype) for _ in range(2))
    return {"input": first}, {"input": second}, {"input": first + second}


def _add_up(first: Any, second: Any, both: Any) -> tuple[Any, Any]:
    return both, (first[0] + second[0],)


def _both_products(input: Tensor, rng: Any) -> tuple[ArgumentsByName, ...]:
    rows, columns = input.shape
    first, second = _small(rng, rows, columns).double(), _small(rng, columns, rows).double()
    return {"input": (first @ second).to(input.dtype)}, {"input": (second @ first).to(input.dtype)}


OPS: tuple[Op, ...] = (
    declare(
        formulas.trace,
        {"opassay": impl.trace, "torch": torch.trace, "decomposition": torch._refs.trace},
        samples=_matrices,
        differentiable=("input",),
        dtypes=lambda input: (input.dtype,),
        saved=lambda: 0,
        documented=torch_documents.by(torch_documents.PLAIN),
        laws=(
            laws.law("trace(A + B) = trace(A) + trace(B)", _two_and_their_sum, _add_up, exact=True),
            laws.law("trace(AB) = trace(BA)", _both_products, lambda one, other: (one, other), exact=True),
            laws.pair("trace of the transpose", lambda input: {"input": input.T}, exact=True),
        ),
        refusals=(
            refusals.wrong("input", "a vector", lambda matrix: matrix.reshape(-1), RuntimeError, "input", "shape="),
            refusals.wrong("input", "three dims", lambda matrix: matrix.unsqueeze(0), RuntimeError, "input", "shape="),
            refusals.not_a_tensor("input"),
        ),
        kernels=True,
        example=lambda x: impl.trace(x[:, :, 0]),
    ),
)
