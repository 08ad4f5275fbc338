"""Declarations of layer_norm, native_layer_norm and native_layer_norm_backward."""

from __future__ import annotations

import math
from typing import Any

import torch
import torch._decomp.decompositions
import torch._refs.nn.functional
from hypothesis import strategies as st

from .... import impl
from ....oracles.op import Draft, Op
from ....reference import norms as formulas
from ...declaring import drawing, laws, refusals
from ...declaring.declare import declare
from . import shared

Tensor = torch.Tensor
CENTRES, NUMBERS = {"weight": 1.0, "bias": 0.0}, {"eps": drawing.EPS}


@st.composite
def _backward(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(drawing.row_structures(dtype, kind, CENTRES, NUMBERS))
    # The op takes 1/√(σ² + ε) as an argument, which must be finite; so ε is positive here.
    eps = structure["numbers"].pop("eps") or 1e-5
    mask = draw(st.sampled_from(drawing.MASKS))

    def fill(rng: Any) -> dict[str, Any]:
        given = drawing.row_arguments(rng, structure, dtype, CENTRES)
        x, weight, bias = given["input"], given["weight"], given["bias"]
        grad = drawing.cotangent(rng, x.shape, dtype, kind)
        dims = tuple(range(-len(structure["inner"]), 0))
        mean, rstd = shared.statistics(x, x, dims, eps, keepdim=True)
        wanted = (mask[0], mask[1] and weight is not None, mask[2] and bias is not None)
        # A call that wants no gradient at all would have no output to be judged by.
        wanted = wanted if any(wanted) else (True, *wanted[1:])
        return given | {"grad_out": grad, "mean": mean, "rstd": rstd, "output_mask": wanted}

    return Draft(fill, structure["regime"], structure["extents"])


# ---------------------------------------------------------------------------------------------- promises


def _saved(input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, wanted: set[str]) -> int:
    rows = math.prod(input.shape[: input.ndim - len(normalized_shape)])
    return shared.saved(input, weight, shared.bytes_of_statistics(input, rows), wanted)


def _backward_dtypes(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, output_mask: tuple[bool, ...]
) -> list[torch.dtype]:
    return shared.of_wanted(output_mask, input, input if weight is None else weight, input if bias is None else bias)


# ---------------------------------------------------------------------------------------------- laws, refusals


def _has_rows(input: Tensor, normalized_shape: tuple[int, ...]) -> bool:
    return input.ndim > len(normalized_shape)


BATCH = laws.permute({"input": 0}, exact=True, when=_has_rows)
LAWS = (laws.scale({"input": 1, "eps": 2}), BATCH, laws.mirror("input", "bias"))
REFUSALS = (
    refusals.wrong("normalized_shape", "empty normalized_shape", lambda shape: (), RuntimeError),
    refusals.wrong(
        "normalized_shape", "normalized_shape is not the trailing shape",
        lambda shape: (*shape[:-1], shape[-1] + 1), RuntimeError,
    ),
    refusals.shape("weight"), refusals.shape("bias"), refusals.integer("input"), refusals.not_a_tensor("input"),
)  # fmt: skip

OPS: tuple[Op, ...] = (
    declare(
        formulas.layer_norm,
        {
            "opassay": impl.layer_norm,
            "torch": torch.nn.functional.layer_norm,
            "decomposition": torch._refs.nn.functional.layer_norm,
        },
        samples=drawing.normalized_rows(CENTRES, **NUMBERS),
        kernels=True,
        differentiable=shared.AFFINE,
        dtypes=lambda input: (input.dtype,),
        saved=_saved,
        laws=LAWS,
        refusals=REFUSALS,
    ),
    declare(
        formulas.native_layer_norm,
        {
            "opassay": impl.native_layer_norm,
            "torch": torch.ops.aten.native_layer_norm.default,
            "decomposition": torch._refs.native_layer_norm,
        },
        samples=drawing.normalized_rows(CENTRES, **NUMBERS),
        kernels=True,
        differentiable=shared.AFFINE,
        dtypes=shared.with_statistics,
        saved=_saved,
        laws=(BATCH,),
        refusals=REFUSALS,
    ),
    declare(
        formulas.native_layer_norm_backward,
        {
            "opassay": impl.native_layer_norm_backward,
            "torch": torch.ops.aten.native_layer_norm_backward.default,
            "decomposition": torch._decomp.decompositions.native_layer_norm_backward,
        },
        samples=_backward,
        kernels=True,
        # The derivative by mean and rstd is that by the input, of which the formula takes them as functions.
        differentiable=("grad_out", "input", "weight"),
        dtypes=_backward_dtypes,
        order=1,
        refusals=REFUSALS,
    ),
)
