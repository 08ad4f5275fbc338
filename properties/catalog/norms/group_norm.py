"""Declarations of group_norm, native_group_norm and native_group_norm_backward."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from .... import impl
from ....oracles.op.declaration import Op, Slices
from ....reference.norms import group_norm as formulas
from ...declaring import drawing, laws, refusals, strategies, torch_documents
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.signature import ArgumentsByName
from ...declaring.subjects import ours, with_parameters
from . import shared

Tensor = torch.Tensor


@functools.cache
@st.composite
def _group_structures(draw: st.DrawFn, dtype: str, kind: str, eps: tuple[float, ...] = drawing.EPS) -> dict[str, Any]:
    """What group_norm samples have in common: shapes, affine dtypes, regime, eps; input of 2 to 6 dims."""
    rank = draw(strategies.axes_beside("axes of positions", 2, (1, 1, 2, 0, 3)))
    (n, groups), (per_group, *positions) = draw(strategies.shapes(kind, 1 + rank, 2))
    # The op refuses a number of groups of zero, but takes channels that are none: a drawn zero means the latter.
    if groups == 0:
        groups, per_group = 3, 0
    return {
        "groups": groups,
        "shape": (n, groups * per_group, *positions),
        "parameters": draw(drawing.parameters(dtype, ("weight", "bias"))),
        "regime": draw(drawing.regime(kind)),
        "eps": draw(choose("eps", eps)),
        "extents": {"n": n, "groups": groups, "per_group": per_group, "positions": math.prod(positions)},
    }


def _arguments(rng: Any, structure: ArgumentsByName, dtype: str) -> dict[str, Any]:
    """The arguments of group_norm. Every group is one row of the regime."""
    (n, channels, *positions), groups = structure["shape"], structure["groups"]
    table = (n * groups, channels // groups * math.prod(positions))
    x = drawing.rows(rng, structure["regime"], structure["shape"], dtype, table=table)
    weight = drawing.parameter(rng, (channels,), structure["parameters"]["weight"], 1.0)
    bias = drawing.parameter(rng, (channels,), structure["parameters"]["bias"], 0.0)
    return {"input": x, "num_groups": groups, "weight": weight, "bias": bias, "eps": structure["eps"]}


def _sizes(input: Tensor) -> dict[str, int]:
    """(N, C, HxW) by the names that aten's ops have for them."""
    return {"N": input.shape[0], "C": input.shape[1], "HxW": math.prod(input.shape[2:])}


@st.composite
def _several_per_group(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
    structure = draw(_group_structures(dtype, kind))
    # Torch's function refuses one element per group where there is one sample, so there are two then.
    if math.prod(structure["shape"]) == structure["groups"]:
        structure["shape"] = (2, *structure["shape"][1:])
    return structure


@st.composite
def _flat_or_not(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
    return draw(_group_structures(dtype, kind)) | {"flat": draw(choose("flat", (False, False, False, True)))}


def _native(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
    arguments = _arguments(rng, structure, dtype)
    x = arguments["input"]
    # Aten's op reads its sizes from N, C and HxW, so the input may have any shape of so many elements.
    return arguments | {"input": x.reshape(-1) if structure["flat"] else x} | _sizes(x)


def _statistics(input: Tensor, groups: int, eps: float) -> dict[str, Tensor]:
    """Mean and rstd of the groups."""
    n, channels, positions = _sizes(input).values()
    rows = input.reshape(n, groups, channels // groups * positions)
    return dict(zip(("mean", "rstd"), shared.statistics(input, rows, (-1,), eps), strict=True))


@st.composite
def _group_structures_and_mask(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
    structure = draw(_group_structures(dtype, kind, drawing.POSITIVE_EPS))
    structure |= {"kind": kind, "mask": draw(choose("output_mask", drawing.MASKS))}
    return structure | {"flat": draw(choose("flat", (False, False, False, True)))}


def _saved_and_cotangent(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
    arguments = _arguments(rng, structure, dtype)
    # The backward op takes no bias, because no gradient depends on it.
    del arguments["bias"]
    x, eps = arguments["input"], arguments.pop("eps")
    grad = drawing.cotangent(rng, x.shape, dtype, structure["kind"])
    # The gradient of a weight that is not there may be asked for, and is None.
    arguments |= _statistics(x, structure["groups"], eps) | _sizes(x) | {"output_mask": structure["mask"]}
    return arguments | {
        name: t.reshape(-1) if structure["flat"] else t for name, t in (("input", x), ("grad_out", grad))
    }


def _input_and_group_statistics(
    input: Tensor, num_groups: int, weight: Tensor | None, wanted: set[str], N: int | None = None
) -> int:
    """Bytes that a forward call saves; aten's op has the number of samples as an argument."""
    samples = len(input) if N is None else N
    return shared.saved(input, weight, shared.bytes_of_statistics(input, samples * num_groups), wanted)


def _groups_shifted(input: Tensor, num_groups: int, rng: Any) -> Sequence[ArgumentsByName] | None:
    """x and x + c with one c per group, both exact."""
    n, channels, positions = _sizes(input).values()
    if channels * positions == num_groups or not input.numel():
        return None
    both = laws.shifted(input.reshape(n, num_groups, -1), (-1,), rng)
    return None if both is None else [{"input": x.reshape(input.shape)} for x in both]


def _groups_rolled(input: Tensor, num_groups: int, weight: Tensor | None, bias: Tensor | None) -> ArgumentsByName:
    """Groups and their parameters one group on."""
    # To roll by one whole group leaves every group together, so each keeps its statistics bit for bit.
    by = input.shape[1] // num_groups
    parameters = {"weight": weight, "bias": bias}
    rolled = {name: None if values is None else values.roll(by) for name, values in parameters.items()}
    return {"input": input.roll(by, 1), **rolled}


def _roll_groups(first: Any, *, num_groups: int) -> Any:
    return tuple(y.roll(y.shape[1] // num_groups, 1) for y in first)


def _groups_as_samples(input: Tensor, num_groups: int) -> Sequence[ArgumentsByName]:
    """Every group a sample of its own, that is layer norm of it; without parameters."""
    alone = input.reshape(len(input) * num_groups, input.shape[1] // num_groups, *input.shape[2:])
    plain = {"weight": None, "bias": None}
    return plain, plain | {"input": alone, "num_groups": 1}


def _reshaped(first: Any, second: Any) -> tuple[Any, Any]:
    return second, tuple(y.reshape(z.shape) for y, z in zip(first, second, strict=True))


def _single_elements(input: Tensor, bias: Tensor | None) -> Sequence[ArgumentsByName] | None:
    """Two samples whose groups have one element each, with a weight of zeros and with one of ones."""
    if not input.numel() or not input.isfinite().all():
        return None
    alone = input.flatten(2)[:1, :, :1].reshape(1, -1).repeat(2, 1) if input.ndim > 2 else input[:1].repeat(2, 1)
    weights = (alone.new_full((alone.shape[1],), value) for value in (0.0, 1.0))
    arguments = {"input": alone, "num_groups": alone.shape[1], "bias": bias, "eps": 1e-5}
    return [arguments | {"weight": weight} for weight in weights]


BATCH = laws.permute({"input": 0}, exact=True, when=lambda input: input.ndim > 1)
LAWS = (
    laws.scale({"input": 1, "eps": 2}),
    laws.law("shift of each group", _groups_shifted, lambda first, second: (second, first)),
    BATCH,
    laws.pair("permutation of the groups", _groups_rolled, _roll_groups, exact=True),
    laws.law("each group a sample of its own", _groups_as_samples, _reshaped, exact=True),
    laws.mirror("input", "bias"),
    laws.law("no slope of single elements", _single_elements, lambda one, two: (one, two), exact=True, word=("vjp",)),
)

SHARED = (
    refusals.value("num_groups", -1, RuntimeError),
    refusals.value("num_groups", 1000, RuntimeError),
    refusals.not_an_int("num_groups"),
    refusals.its_type("num_groups"),
    refusals.value("num_groups", True, TypeError),
    refusals.integer("input"),
    refusals.not_a_tensor("input"),
    refusals.shape("weight"),
    refusals.not_a_tensor("weight"),
    refusals.another_dtype("weight"),
    refusals.elsewhere("weight", "device"),
)
SIZES = tuple(mistake(name) for name in ("N", "C", "HxW") for mistake in (refusals.not_an_int, refusals.its_type))
FLAT = refusals.wrong("input", "input of one dim", lambda tensor: tensor.reshape(-1), RuntimeError)
ELEMENTS = refusals.refusal(
    "another number of elements", lambda input, N: {"N": N + input.numel() + 1}, RuntimeError, "N"
)


def _negative(name: str) -> refusals.Mistake:
    """A negative size where there are no elements, so that their number does not show it."""
    sizes = {"N": 0, "C": 0, "HxW": 0, name: -1}
    return refusals.refusal(
        f"{name}=-1", lambda input: {"input": input.reshape(-1)[:0], **sizes}, RuntimeError, f"{name}=-1"
    )


NEGATIVE = tuple(map(_negative, ("N", "C", "HxW")))


def _native_slices(input: Tensor, N: int) -> Slices | None:
    # The op reads any shape of N C HxW elements; only where the samples are an axis of it can they be cut.
    return Slices({"input": 0}, (0, 0, 0), ("N",)) if input.ndim > 1 and input.shape[0] == N else None


def _backward_slices(input: Tensor, N: int, **named: Any) -> Slices | None:
    if input.ndim < 2 or input.shape[0] != N:
        return None
    samples = dict.fromkeys(("grad_out", "input", "mean", "rstd"), 0)
    # Group norm's backward op has no bias among its arguments, and returns its gradient wherever it is asked for.
    outputs = shared.sums_over_slices(named["output_mask"], named["weight"], True)
    return Slices(samples, outputs, ("N",))


OPS: tuple[Op, ...] = (
    declare(
        formulas.group_norm,
        ours(
            formulas.group_norm,
            with_parameters("GroupNorm", "weight", "bias", channels=True),
            torch=torch.nn.functional.group_norm,
        ),
        samples=drawing.samples_of(_several_per_group, _arguments),
        differentiable=shared.AFFINE,
        dtypes=lambda input: (input.dtype,),
        invariant=lambda: Slices({"input": 0}, (0,)),
        saved=_input_and_group_statistics,
        strides=shared.contiguous,
        documented=torch_documents.by(torch_documents.GROUPS),
        laws=LAWS,
        refusals=(*SHARED, *refusals.EPS, refusals.shape("bias"), FLAT),
        kernels="group_norm",
        example=lambda x: impl.group_norm(x, 2),
        steady=True,
    ),
    declare(
        formulas.native_group_norm,
        ours(formulas.native_group_norm, torch=torch.ops.aten.native_group_norm.default),
        samples=drawing.samples_of(_flat_or_not, _native),
        differentiable=shared.AFFINE,
        dtypes=shared.with_statistics,
        invariant=_native_slices,
        saved=_input_and_group_statistics,
        strides=shared.contiguous,
        documented=torch_documents.aten(torch_documents.GROUPS),
        laws=(BATCH,),
        refusals=(*SHARED, *SIZES, *refusals.EPS, refusals.shape("bias"), ELEMENTS, *NEGATIVE),
        kernels="group_norm",
        steady=True,
    ),
    declare(
        formulas.native_group_norm_backward,
        ours(formulas.native_group_norm_backward, torch=torch.ops.aten.native_group_norm_backward.default),
        samples=drawing.samples_of(_group_structures_and_mask, _saved_and_cotangent),
        # The derivative by mean and rstd is that by the input, of which the formula takes them as functions.
        differentiable=("grad_out", "input", "weight"),
        dtypes=shared.dtypes_of_gradients,
        invariant=_backward_slices,
        contiguous=True,
        documented=torch_documents.aten(torch_documents.GROUPS_BACKWARD),
        order=1,
        refusals=(*SHARED, *SIZES, ELEMENTS, *NEGATIVE, *refusals.STATISTICS),
        kernels="group_norm",
        steady=True,
    ),
)
