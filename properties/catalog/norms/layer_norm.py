"""Declarations of layer_norm, native_layer_norm and native_layer_norm_backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._refs.nn.functional
from hypothesis import strategies as st

from .... import impl
from ....oracles.op.declaration import Op, Slices
from ....reference.norms import layer_norm as formulas
from ...declaring import drawing, laws, refusals, torch_documents
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.signature import ArgumentsByName
from ...declaring.subjects import ours, with_aten, with_parameters
from . import shared

Tensor = torch.Tensor
CENTRES = {"weight": 1.0, "bias": 0.0}


def with_mask(
    centres: ArgumentsByName, masks: Sequence[tuple[bool, ...]]
) -> Callable[[str, str], st.SearchStrategy[ArgumentsByName]]:
    """Structures of the samples of a backward op; `centres` as for `drawing.normalized_rows`."""

    numbers = {"eps": drawing.POSITIVE_EPS}
    rows = functools.cache(functools.partial(drawing.row_structures, centres=centres, numbers=numbers))

    @st.composite
    def structures(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
        structure = draw(rows(dtype, kind))
        return structure | {"kind": kind, "mask": draw(choose("output_mask", masks))}

    return structures


def _saved_and_cotangent(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
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


def _input_and_row_statistics(
    input: Tensor, normalized_shape: tuple[int, ...], weight: Tensor | None, wanted: set[str]
) -> int:
    rows = math.prod(input.shape[: input.ndim - len(normalized_shape)])
    return shared.saved(input, weight, shared.bytes_of_statistics(input, rows), wanted)


def has_rows(input: Tensor, normalized_shape: tuple[int, ...]) -> bool:
    return input.ndim > len(normalized_shape)


def each_row(names: Sequence[str], outputs: int) -> Callable[..., Slices | None]:
    """The slices of a forward op: of the arguments of these names, and of so many outputs."""

    def slices(input: Tensor, normalized_shape: tuple[int, ...]) -> Slices | None:
        return Slices(dict.fromkeys(names, 0), (0,) * outputs) if has_rows(input, normalized_shape) else None

    return slices


def backward_rows(
    input: Tensor, normalized_shape: tuple[int, ...], output_mask: tuple[bool, ...], **named: Any
) -> Slices | None:
    """The slices of the backward op, or of that of RMS norm, which has neither mean nor bias."""
    if not has_rows(input, normalized_shape):
        return None
    rows = ("grad_out", "input", *(name for name in ("mean", "rstd") if name in named))
    parameters = (named[name] for name in ("weight", "bias") if name in named)
    return Slices(dict.fromkeys(rows, 0), shared.sums_over_slices(output_mask, *parameters))


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


def _declare_norm(
    formula: Callable[..., Any], theirs: Any, dtypes: Callable[..., Any], of: tuple[laws.Relation, ...], outputs: int,
    **more: Any,
) -> Op:  # fmt: skip
    """The declaration of layer norm as torch's public or native op.

    Args:
        formula: of the op. theirs: its subjects by name. dtypes: of the outputs. of: laws. outputs: their number.
        more: as for `declare`.
    """
    return declare(
        formula,
        theirs,
        samples=drawing.normalized_rows(CENTRES, eps=drawing.EPS),
        differentiable=shared.AFFINE,
        dtypes=dtypes,
        invariant=each_row(("input",), outputs),
        saved=_input_and_row_statistics,
        strides=shared.contiguous,
        documented=torch_documents.of_op(torch_documents.PLAIN, "native" in formula.__name__),
        laws=of,
        refusals=(*REFUSALS, *refusals.EPS),
        kernels="layer_norm",
        steady=True,
        **more,
    )


_functional, _refs = torch.nn.functional.layer_norm, torch._refs.nn.functional.layer_norm
_native, _native_refs = torch.ops.aten.native_layer_norm.default, torch._refs.native_layer_norm

OPS: tuple[Op, ...] = (
    _declare_norm(
        formulas.layer_norm,
        ours(
            formulas.layer_norm, with_parameters("LayerNorm", "weight", "bias"), torch=_functional, decomposition=_refs
        ),
        lambda input: (input.dtype,),
        LAWS,
        outputs=1,
        example=lambda x: impl.layer_norm(x, x.shape[-1:]),
    ),
    _declare_norm(
        formulas.native_layer_norm,
        ours(formulas.native_layer_norm, torch=_native, decomposition=_native_refs),
        shared.with_statistics,
        (BATCH,),
        3,
    ),
    declare(
        formulas.native_layer_norm_backward,
        with_aten(formulas.native_layer_norm_backward),
        samples=drawing.samples_of(with_mask(CENTRES, drawing.MASKS), _saved_and_cotangent),
        # The derivative by mean and rstd is that by the input, of which the formula takes them as functions.
        differentiable=("grad_out", "input", "weight"),
        dtypes=shared.dtypes_of_gradients,
        invariant=backward_rows,
        contiguous=True,
        documented=torch_documents.aten(torch_documents.ROWS_BACKWARD),
        order=1,
        refusals=(*REFUSALS, *refusals.STATISTICS),
        kernels="layer_norm",
        steady=True,
    ),
)
