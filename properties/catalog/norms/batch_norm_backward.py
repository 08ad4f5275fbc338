"""Declarations of the backward ops of batch norm: one op by four signatures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch._decomp import decompositions

from ....oracles.op.declaration import Draft, Op
from ....reference.norms import batch_norm as formulas
from ...declaring import choices, drawing, laws, refusals, strategies, torch_documents
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.signature import ArgumentsByName, Signature
from ...declaring.subjects import ours, with_aten
from . import shared
from .batch_norm import filled, structures
from .batch_norm_laws import dims_of

Tensor = torch.Tensor
ALL = (True, True, True)
MASKS = (ALL,) * 3 + ((True, False, True), (False, True, True), (True, False, False))


def _saved_and_cotangents(signature: Signature, needs_weight: bool) -> Callable[..., st.SearchStrategy[Draft]]:
    @st.composite
    def adjusted(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
        gradients = "integers" if kind == "integers" else "benign"
        structure = draw(structures(dtype, kind, drawing.POSITIVE_EPS)) | {"gradients": gradients}
        # These ops take no momentum.
        choices.settle("momentum", None, always=True)
        if needs_weight:
            structure["weight"] = structure["weight"] or dtype
            choices.settle("weight", structure["weight"], always=True)
        if "training" not in signature:
            structure["training"] = True
            choices.settle("training", True, always=True)
        return structure | {"mask": draw(choose("output_mask", MASKS)) if "output_mask" in signature else ALL}

    def fill(rng: Any, structure: ArgumentsByName, dtype: str) -> dict[str, Any]:
        named = filled(rng, structure, dtype)
        x = named["input"]
        values = drawing.values(rng, structure["gradients"], tuple(x.shape), dtype)
        named |= {"grad_out": strategies.to_dtype(values, dtype), "output_mask": structure["mask"]}
        mean, invstd = shared.statistics(x, x, dims_of(x), named["eps"]) if named["training"] else (None, None)
        named |= {"save_mean": mean, "save_invstd": invstd, "reserve": torch.empty(0, dtype=torch.uint8)}
        return signature.of_these(named)

    return drawing.samples_of(adjusted, fill)


def _of_wanted_gradients(
    input: Tensor, weight: Tensor | None, running_mean: Tensor | None, save_mean: Tensor | None,
    training: bool = True, output_mask: tuple[bool, ...] = ALL,
) -> Any:  # fmt: skip
    """Dtypes of the gradients; without a weight, those of the parameters have the dtype of the statistics.

    An op without `training` takes the statistics of the batch, and one without `output_mask` gives all gradients.
    """
    tensors = [tensor for tensor in (weight, save_mean if training else running_mean) if tensor is not None]
    return [t.dtype for t, in_mask in zip((input, *tensors[:1] * 2), output_mask, strict=True) if in_mask]


def _in_training(
    input: Tensor, training: bool = True, output_mask: tuple[bool, ...] = ALL
) -> Sequence[ArgumentsByName] | None:
    return ({},) if training and output_mask[0] and output_mask[1] and input.numel() else None


def _sum_of_gradients(
    outputs: Any, *, input: Tensor, weight: Tensor | None, save_mean: Tensor, save_invstd: Tensor
) -> tuple[Any, Any]:
    """Σ d_input = −Σ(x − μ) r² w d_weight / n: zero but for the rounding of the mean μ that the op takes."""
    rows = input.detach().double().transpose(0, 1).flatten(1).tolist()
    mean, scale = save_mean.detach().double(), save_invstd.detach().double().square()
    # The mean of x − μ is a small difference of large numbers, so it is summed without any error.
    offsets = [math.fsum((*row, *[-mu] * len(row))) / len(row) for row, mu in zip(rows, mean.tolist(), strict=True)]
    factor = scale if weight is None else scale * weight.detach().double()
    return (outputs[0].sum(dims_of(input)),), (-torch.tensor(offsets, dtype=torch.float64) * factor * outputs[1],)


def _mirrored(input: Tensor, save_mean: Tensor | None, running_mean: Tensor | None) -> ArgumentsByName:
    means = {"save_mean": save_mean, "running_mean": running_mean}
    return {"input": -input, **{name: None if mean is None else -mean for name, mean in means.items()}}


def _mirror(gradients: Any, *, output_mask: tuple[bool, ...] = ALL) -> Any:
    """The gradients of the mirrored call: d_weight alone changes sign."""
    signs = [sign for sign, in_mask in zip((1, -1, 1), output_mask, strict=True) if in_mask]
    return tuple(-t if sign < 0 else t for sign, t in zip(signs, gradients, strict=True))


LAWS = (
    laws.law("the sum of d_input", _in_training, _sum_of_gradients),
    laws.pair("mirror x and its mean", _mirrored, _mirror, exact=True),
)
REFUSALS = (
    refusals.shape("weight"),
    refusals.shape("save_mean"),
    refusals.shape("save_invstd"),
    refusals.integer("input"),
    refusals.not_a_tensor("input"),
    refusals.not_a_tensor("weight"),
    refusals.shape("grad_out", "grad_out"),
    refusals.missing("save_mean"),
    refusals.value("eps", "1e-5", TypeError, "eps"),
    refusals.its_type("eps", "eps"),
)


def _op(formula: Callable[..., Any], subjects: dict[str, Any], needs_weight: bool = True) -> Op:
    return declare(
        formula,
        subjects,
        samples=_saved_and_cotangents(Signature(formula), needs_weight),
        # The derivative by the statistics is that by the input, of which the formula takes them as functions.
        differentiable=("grad_out", "input", "weight"),
        dtypes=_of_wanted_gradients,
        strides=lambda input, output_mask=ALL: shared.channels_kept_last(input) if output_mask[0] else (),
        documented=torch_documents.aten(torch_documents.BACKWARD),
        order=1,
        laws=LAWS,
        refusals=REFUSALS,
        kernels="batch_norm",
        steady=True,
    )


def _decomposed(formula: Callable[..., Any]) -> dict[str, Any]:
    """The production op, and what torch decomposes its own into."""
    return ours(formula, decomposition=getattr(decompositions, formula.__name__))


#: torch has the ops of cudnn and miopen on no CPU; their decompositions run everywhere.
OPS: tuple[Op, ...] = (
    _op(formulas.native_batch_norm_backward, with_aten(formulas.native_batch_norm_backward), needs_weight=False),
    _op(formulas.batch_norm_backward, with_aten(formulas.batch_norm_backward)),
    _op(formulas.cudnn_batch_norm_backward, _decomposed(formulas.cudnn_batch_norm_backward)),
    _op(formulas.miopen_batch_norm_backward, _decomposed(formulas.miopen_batch_norm_backward)),
)
