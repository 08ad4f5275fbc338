"""Declarations of layer_norm, native_layer_norm and native_layer_norm_backward."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._refs.nn.functional
from hypothesis import strategies as st

from .... import impl
from ....oracles.op.declaration import Op, Slices
from ....reference.norms import layer_norm as formulas
from ...checks.ways.module_calls import Built
from ...declaring import drawing, laws, refusals, torch_documents
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.modules import Module, without_missing
from ...declaring.signature import Named
from ...declaring.subjects import ours, with_aten
from . import shared

Tensor = torch.Tensor
CENTRES, NUMBERS = {"weight": 1.0, "bias": 0.0}, {"eps": drawing.EPS}
POSITIVE = {"eps": drawing.POSITIVE_EPS}


@st.composite
def _with_mask(draw: st.DrawFn, dtype: str, kind: str) -> Named:
    structure = draw(drawing.row_structures(dtype, kind, CENTRES, POSITIVE))
    return structure | {"kind": kind, "mask": draw(choose("output_mask", drawing.MASKS))}


def _saved_and_cotangent(rng: Any, structure: Named, dtype: str) -> Named:
    arguments = drawing.row_arguments(rng, structure, dtype, CENTRES)
    x, eps = arguments["input"], arguments.pop("eps")
    grad = drawing.cotangent(rng, x.shape, dtype, structure["kind"])
    dims = tuple(range(-len(structure["inner"]), 0))
    mean, rstd = shared.statistics(x, x, dims, eps, keepdim=True)
    d_input, d_weight, d_bias = structure["mask"]
    d_bias = d_bias and arguments["bias"] is not None
    # The gradient of a weight that is not there may be asked for, and is None. A call that has no other one to give
    # would have no output to be judged by.
    mask = (d_input or not ((d_weight and arguments["weight"] is not None) or d_bias), d_weight, d_bias)
    return arguments | {"grad_out": grad, "mean": mean, "rstd": rstd, "output_mask": mask}


# ---------------------------------------------------------------------------------------------- promises


def _input_and_row_statistics(
    input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, wanted: set[str]
) -> int:
    rows = math.prod(input.shape[: input.ndim - len(normalized_shape)])
    return shared.saved(input, weight, shared.bytes_of_statistics(input, rows), wanted)


def _backward_dtypes(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, output_mask: tuple[bool, ...]
) -> list[torch.dtype]:
    mask = (output_mask[0], output_mask[1] and weight is not None, output_mask[2])
    return shared.dtypes_of_gradients(mask, input, input if weight is None else weight, input if bias is None else bias)


# ---------------------------------------------------------------------------------------------- laws, refusals


def has_rows(input: Tensor, normalized_shape: tuple[int, ...]) -> bool:
    return input.ndim > len(normalized_shape)


def _each_row(outputs: int) -> Callable[..., Slices | None]:
    """The slices of a forward op with so many outputs."""

    def slices(input: Tensor, normalized_shape: tuple[int, ...]) -> Slices | None:
        return Slices({"input": 0}, (0,) * outputs) if has_rows(input, normalized_shape) else None

    return slices


def _backward_rows(input: Tensor, normalized_shape: tuple[int, ...], **named: Any) -> Slices | None:
    if not has_rows(input, normalized_shape):
        return None
    rows = dict.fromkeys(("grad_out", "input", "mean", "rstd"), 0)
    return Slices(rows, shared.sums_over_slices(named["output_mask"], named["weight"], named["bias"]))


BATCH = laws.permute({"input": 0}, exact=True, when=has_rows)
LAWS = (laws.scale({"input": 1, "eps": 2}), BATCH, laws.mirror("input", "bias"))
OF_SHAPES = (
    refusals.wrong("normalized_shape", "empty normalized_shape", lambda shape: (), RuntimeError),
    refusals.wrong(
        "normalized_shape", "normalized_shape is not the trailing shape",
        lambda shape: (*shape[:-1], shape[-1] + 1), RuntimeError,
    ),
    refusals.wrong(
        "normalized_shape", "normalized_shape of floats", lambda shape: tuple(map(float, shape)), TypeError
    ),
)  # fmt: skip
REFUSALS = (
    *OF_SHAPES,
    refusals.shape("weight"), refusals.shape("bias"), refusals.integer("input"), refusals.not_a_tensor("input"),
    refusals.not_a_tensor("weight"), refusals.not_a_tensor("bias"),
    refusals.another_dtype("weight"), refusals.elsewhere("weight", "device"),
)  # fmt: skip


def _module(source: Any) -> Callable[..., Built]:
    def build(
        x: Tensor, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
    ) -> Built:
        state = {"weight": weight, "bias": bias}
        return Built(without_missing(source.LayerNorm(shape, eps), state), state, (x,))

    return build


def _normalizing(
    formula: Callable[..., Any],
    theirs: Any,
    dtypes: Callable[..., Any],
    of: tuple[laws.Relation, ...],
    outputs: int,
    **more: Any,
) -> Op:
    return declare(
        formula,
        theirs,
        samples=drawing.normalized_rows(CENTRES, **NUMBERS),
        differentiable=shared.AFFINE,
        dtypes=dtypes,
        invariant=_each_row(outputs),
        saved=_input_and_row_statistics,
        strides=shared.contiguous,
        documented=torch_documents.of_op(torch_documents.PLAIN, "native" in formula.__name__),
        laws=of,
        refusals=(*REFUSALS, refusals.value("eps", "1e-5", TypeError), refusals.its_type("eps")),
        kernels="layer_norm",
        steady=True,
        **more,
    )


_functional, _refs = torch.nn.functional.layer_norm, torch._refs.nn.functional.layer_norm
_native, _native_refs = torch.ops.aten.native_layer_norm.default, torch._refs.native_layer_norm

OPS: tuple[Op, ...] = (
    _normalizing(
        formulas.layer_norm,
        ours(formulas.layer_norm, Module("LayerNorm", _module), torch=_functional, decomposition=_refs),
        lambda input: (input.dtype,),
        LAWS,
        outputs=1,
        example=lambda x: impl.layer_norm(x, x.shape[-1:]),
    ),
    _normalizing(
        formulas.native_layer_norm,
        ours(formulas.native_layer_norm, torch=_native, decomposition=_native_refs),
        shared.with_statistics,
        (BATCH,),
        3,
    ),
    declare(
        formulas.native_layer_norm_backward,
        with_aten(formulas.native_layer_norm_backward),
        samples=drawing.samples_of(_with_mask, _saved_and_cotangent),
        # The derivative by mean and rstd is that by the input, of which the formula takes them as functions.
        differentiable=("grad_out", "input", "weight"),
        dtypes=_backward_dtypes,
        invariant=_backward_rows,
        contiguous=True,
        documented=torch_documents.aten(torch_documents.ROWS_BACKWARD),
        order=1,
        refusals=(*REFUSALS, *refusals.STATISTICS),
        kernels="layer_norm",
        steady=True,
    ),
)
