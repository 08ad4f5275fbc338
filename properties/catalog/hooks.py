"""Declaration of backward_hook_identity."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises
from ...reference import hooks as formulas
from ...reference.formats import FORMATS
from .. import strategies

Args = tuple[Any, ...]
HALF = ("bfloat16", "float16")


@st.composite
def _samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """One to three tensors, each of a shape of its own; with the half types, now and then one of float32."""
    limit = 16 if kind == "empty" else 24
    count = draw(st.sampled_from((2, 1, 3)))
    shapes = [sum(draw(strategies.shapes(kind, 1, draw(st.sampled_from((1, 0, 2))), limit)), ()) for _ in range(count)]
    dtypes = [dtype, *(draw(st.sampled_from((dtype, "float32") if dtype in HALF else (dtype,))) for _ in shapes[1:])]
    regime = "integers" if kind == "integers" else draw(strategies.regimes(kind))
    values = strategies.integers if kind == "integers" else strategies.REGIMES[regime]

    def one(rng: Any, shape: tuple[int, ...], name: str) -> torch.Tensor:
        rows = values(rng, (math.prod(shape[:-1]), shape[-1]), FORMATS[name])
        return strategies.to_dtype(np.reshape(rows, shape), name)

    sizes = strategies.rows_and_row(shapes[0][:-1], shapes[0][-1:])
    return Draft(lambda rng: tuple(one(rng, *each) for each in zip(shapes, dtypes, strict=True)), regime, sizes)


def _twice(args: Args, rng: Any) -> tuple[Args, Args]:
    return args, args[::-1]


OPS: tuple[Op, ...] = (
    Op(
        name="backward_hook_identity",
        reference=formulas.backward_hook_identity,
        subjects={
            "opassay": impl.backward_hook_identity,
            "torch": torch.nn.modules._functions.BackwardHookFunction.apply,
        },
        samples=_samples,
        differentiable=("args",),
        promises=Promises(
            dtypes=lambda args: tuple(t.dtype for t in args),
            saved=lambda args, wanted: 0,
            aliases=lambda args: tuple(range(len(args))),
        ),
        laws=(
            Law("reversed arguments, reversed outputs", _twice, lambda args, a, b: (b, a[::-1]), exact=True),
            Law("the arguments themselves", lambda args, rng: (args,), lambda args, a: (a, args), exact=True),
        ),
    ),
)
