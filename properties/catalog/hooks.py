"""Declaration of backward_hook_identity."""

from __future__ import annotations

from typing import Any

import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op
from ...reference import collectives as formulas
from ..declaring import drawing, laws, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare

Tensors = tuple[torch.Tensor, ...]


@st.composite
def _some_tensors(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """One to three tensors, each of a shape of its own; with the half types, now and then one of float32."""
    count = draw(choose("tensors", (2, 1, 3)))
    ranks = [draw(strategies.axes_beside("axes of rows", 1, (1, 0, 2))) for _ in range(count)]
    shapes = [sum(draw(strategies.shapes(kind, 1, rank, 24)), ()) for rank in ranks]
    # The first tensor has the dtype of the cell, so that no sample is without it.
    dtypes = [dtype, *(draw(choose("dtypes", drawing.dtypes_beside(dtype))) for _ in shapes[1:])]
    regime = draw(drawing.regime(kind))

    def fill(rng: Any) -> Tensors:
        return tuple(drawing.rows(rng, regime, shape, own) for shape, own in zip(shapes, dtypes, strict=True))

    return Draft(fill, regime, strategies.rows_and_row(shapes[0][:-1], shapes[0][-1:]))


def _reversed(args: Tensors) -> dict[str, Tensors]:
    return {"args": args[::-1]}


OPS: tuple[Op, ...] = (
    declare(
        formulas.backward_hook_identity,
        {"opassay": impl.backward_hook_identity, "torch": torch.nn.modules._functions.BackwardHookFunction.apply},
        samples=_some_tensors,
        differentiable=("args",),
        dtypes=lambda args: [x.dtype for x in args],
        saved=lambda: 0,
        documented=torch_documents.by(torch_documents.HOOK),
        aliases=lambda args: [f"args[{i}]" for i in range(len(args))],
        identity=True,
        laws=(
            laws.pair("reversed arguments, reversed outputs", _reversed, lambda first: first[::-1], exact=True),
            laws.law("the arguments themselves", lambda: ({},), lambda first, *, args: (first, args), exact=True),
        ),
    ),
)
