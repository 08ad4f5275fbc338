"""Declarations of rms_norm, of aten's fused ops of that name, and of fused_add_rms_norm."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decompositions

from .... import impl
from ....oracles.op.declaration import Op
from ....reference.norms import rms_norm as formulas
from ...declaring import drawing, laws, refusals, torch_documents
from ...declaring.declare import declare
from ...declaring.drawing import wide_dtype
from ...declaring.signature import ArgumentsByName
from ...declaring.subjects import ours, with_parameters
from . import shared
from .layer_norm import BATCH, OF_SHAPES, backward_rows, each_row, with_mask

Tensor = torch.Tensor
CENTRES = {"weight": 1.0}
EPS = (None, None, *drawing.EPS[1:])
#: Which gradients of (input, weight) the backward op is asked for.
MASKS = ((True, True), (True, True), (True, False), (False, True))


def _resolved(input: Tensor, eps: float | None) -> dict[str, float]:
    """None is torch's: the machine epsilon of the dtype in which the squares are added."""
    return {"eps": torch.finfo(wide_dtype(input)).eps if eps is None else eps}


def _with_residual(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
    arguments = drawing.row_arguments(rng, structure, dtype, CENTRES)
    shape, table = arguments["input"].shape, (math.prod(structure["outer"]), math.prod(structure["inner"]))
    return arguments | {"residual": drawing.rows(rng, structure["regime"], shape, dtype, table=table)}


def _saved_and_cotangent(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
    arguments = drawing.row_arguments(rng, structure, dtype, CENTRES)
    x, eps = arguments["input"], arguments.pop("eps")
    grad = drawing.cotangent(rng, x.shape, dtype, structure["kind"])
    square = x.double().square().mean(tuple(range(-len(structure["inner"]), 0)), keepdim=True)
    rstd = (square + eps).rsqrt().to(wide_dtype(x))
    d_input, d_weight = structure["mask"]
    # A call that has no gradient to give would have no output to be judged by.
    mask = (d_input or arguments["weight"] is None, d_weight)
    return arguments | {"grad_out": grad, "rstd": rstd, "output_mask": mask}


def _rows_and_statistic(
    input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, wanted: set[str]
) -> int:
    rows = math.prod(input.shape[: input.ndim - len(normalized_shape)])
    # The sum with a residual is kept in place of the input, and is an output.
    wanted = {"input" if name == "residual" else name for name in wanted}
    return shared.saved(input, weight, shared.bytes_of_statistics(input, rows) // 2, wanted)


REFUSALS = (
    *OF_SHAPES, refusals.shape("weight"), refusals.integer("input"), refusals.not_a_tensor("input"),
    refusals.not_a_tensor("weight"), refusals.another_dtype("weight"), refusals.elsewhere("weight", "device"),
)  # fmt: skip
OF_RESIDUAL = (
    refusals.shape("residual"), refusals.another_dtype("residual"), refusals.elsewhere("residual", "device"),
    refusals.not_a_tensor("residual"),
)  # fmt: skip
OF_BACKWARD = (
    refusals.shape("grad_out"), refusals.another_dtype("grad_out"), refusals.another_dtype("rstd"),
    refusals.elsewhere("rstd", "device"), refusals.not_a_tensor("grad_out"), refusals.not_a_tensor("rstd"),
    refusals.wrong("output_mask", "output_mask of one", lambda mask: mask[:1], RuntimeError),
)  # fmt: skip
SCALE = laws.scale({"input": 1, "eps": 2}, when=lambda eps: eps is not None)
EXCHANGE = laws.pair(
    "input and residual exchanged", lambda input, residual: {"input": residual, "residual": input}, exact=True
)


def _declare_norm(formula: Callable[..., Any], subjects: ArgumentsByName, **more: Any) -> Op:
    usual: dict[str, Any] = {
        "samples": drawing.normalized_rows(CENTRES, eps=EPS),
        "differentiable": ("input", "weight"),
        "strides": shared.contiguous,
        "refusals": (*REFUSALS, *refusals.EPS),
        "kernels": "rms_norm",
    }
    return declare(formula, subjects, saved=_rows_and_statistic, resolved=_resolved, steady=True, **usual | more)


OPS: tuple[Op, ...] = (
    _declare_norm(
        formulas.rms_norm,
        ours(formulas.rms_norm, with_parameters("RMSNorm", "weight"), torch=torch.nn.functional.rms_norm),
        dtypes=lambda input: (input.dtype,),
        invariant=each_row(("input",), 1),
        documented=torch_documents.by(torch_documents.PLAIN),
        laws=(SCALE, BATCH, laws.mirror("input")),
        example=lambda x: impl.rms_norm(x, x.shape[-1:]),
    ),
    _declare_norm(
        formulas.fused_rms_norm,
        ours(
            formulas.fused_rms_norm,
            torch=torch.ops.aten._fused_rms_norm.default,
            decomposition=decompositions._fused_rms_norm,
        ),
        dtypes=lambda input: (input.dtype, wide_dtype(input)),
        invariant=each_row(("input",), 2),
        documented=torch_documents.aten(torch_documents.PLAIN),
        laws=(BATCH,),
    ),
    # aten's op has a kernel on CUDA alone.
    declare(
        formulas.fused_rms_norm_backward,
        ours(formulas.fused_rms_norm_backward, decomposition=decompositions._fused_rms_norm_backward),
        samples=drawing.samples_of(with_mask(CENTRES, MASKS), _saved_and_cotangent),
        # The derivative by rstd is that by the input, of which the formula takes it as a function.
        differentiable=("grad_out", "input", "weight"),
        dtypes=shared.dtypes_of_gradients,
        invariant=backward_rows,
        contiguous=True,
        documented=torch_documents.aten(torch_documents.BACKWARD),
        order=1,
        refusals=(*REFUSALS, *OF_BACKWARD),
        kernels="rms_norm",
        steady=True,
    ),
    _declare_norm(
        formulas.fused_add_rms_norm,
        ours(formulas.fused_add_rms_norm),
        samples=drawing.samples_of(
            lambda dtype, kind: drawing.row_structures(dtype, kind, CENTRES, {"eps": EPS}), _with_residual
        ),
        differentiable=("input", "residual", "weight"),
        dtypes=lambda input: (input.dtype, input.dtype),
        strides=lambda input: shared.contiguous(input) * 2,
        invariant=each_row(("input", "residual"), 2),
        laws=(EXCHANGE, laws.mirror("input", "residual")),
        refusals=(*REFUSALS, *refusals.EPS, *OF_RESIDUAL),
        kernels=True,
        example=lambda x: impl.fused_add_rms_norm(x, x, x.shape[-1:])[0],
    ),
)
