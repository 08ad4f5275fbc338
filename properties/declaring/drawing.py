"""Parts of the samples of many ops: regimes of rows, parameters, cotangents, masks, numbers.

The order of draws decides the samples of every family: a seed gives the same samples only if no draw is added, removed
or moved.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ...oracles.op.declaration import Draft
from ...oracles.verdicts.violation import Code, Unsupported
from ...reference.dtypes import FORMATS, HALF_TYPES
from . import strategies
from .choices import choose
from .signature import ArgumentsByName

Tensor = torch.Tensor
Regimes = dict[str, strategies.Rows]

#: Values of eps, which norms add to a variance: the usual one, a large one, small ones, and zero.
EPS = (1e-5, 1e-5, 1e-5, 1e-3, 1e-8, 1e-12, 0.0)
#: The same for backward ops, whose argument 1/√(σ² + ε) must be finite.
POSITIVE_EPS = EPS[:-1]
#: Values of `output_mask`: which gradients of (input, weight, bias) a backward op computes; mostly all of them.
MASKS = ((True, True, True), (True, True, True), (True, False, True), (False, True, True))
#: Kinds of samples.
KINDS = ("ordinary", "empty", "integers", "large")


def dtypes_beside(dtype: str) -> tuple[str, ...]:
    """The dtypes that parameters may have beside an input of `dtype`: those of half types are often float32."""
    return (dtype, "float32") if dtype in HALF_TYPES else (dtype,)


def wide_dtype(tensor: Tensor) -> torch.dtype:
    """The dtype of statistics and sums of a tensor: float32 for the half types."""
    return torch.float32 if tensor.dtype.itemsize == 2 else tensor.dtype


def bytes_of(tensor: Tensor | None) -> int:
    """Bytes of a tensor; 0 for None."""
    return 0 if tensor is None else tensor.nbytes


@functools.cache
@st.composite
def regime(draw: st.DrawFn, kind: str, weighted: Sequence[str] = strategies.WEIGHTED) -> str:
    """The name of a regime of rows, each as often as it is listed; half of the large samples are benign."""
    return "integers" if kind == "integers" else draw(strategies.regimes(kind, weighted))


@functools.cache
@st.composite
def parameters(draw: st.DrawFn, dtype: str, names: Sequence[str]) -> dict[str, str | None]:
    """A dtype for each parameter, the same one for all, or None for one that is absent."""
    # The dtype stands twice in the choice below, so that a parameter is absent in a third of the samples.
    common = draw(choose("dtype of parameters", dtypes_beside(dtype)))
    return {name: draw(choose(name, (common, common, None))) for name in names}


def all_dims(ndim: int) -> tuple[int, ...]:
    """All dims of a tensor with axes, each by both of its numbers; of `MANY_DIMS` the first, one between, the last."""
    return (*range(ndim), *range(-ndim, 0)) if ndim not in strategies.MANY_DIMS else (0, ndim // 2, -1)


def without_axes() -> st.SearchStrategy[bool]:
    """Whether a tensor has no axes; true in one of twenty draws."""
    return choose("without axes", (False,) * 19 + (True,))


def values(rng: Any, regime: str, table: tuple[int, int], dtype: str, known: Regimes | None = None) -> Any:
    """float64 values of (number of rows, elements of a row).

    Args:
        rng: the generator. regime: its name; "integers" for small integers times one power of two.
        table, dtype: how many rows, of how many elements, for which dtype.
        known: regimes by name; those of `strategies.REGIMES` by default.
    """
    # "integers" is a kind of samples and no regime, so no table of regimes has it.
    fill = strategies.integers if regime == "integers" else (known or strategies.REGIMES)[regime]
    return fill(rng, table, FORMATS[dtype])


def rows(
    rng: Any, regime: str, shape: Sequence[int], dtype: str, *,
    table: tuple[int, int] | None = None, known: Regimes | None = None,
) -> Tensor:  # fmt: skip
    """A tensor of rows of a regime.

    Args:
        rng, regime, known: as for `values`. shape, dtype: of the tensor.
        table: (number of rows, elements of a row); by default a row is the last axis.
    """
    numbers = values(rng, regime, table or (math.prod(shape[:-1]), math.prod(shape[-1:])), dtype, known)
    return _in_shape(strategies.to_dtype(np.reshape(numbers, tuple(shape)), dtype), shape)


def _in_shape(tensor: Tensor, shape: Sequence[int]) -> Tensor:
    """The tensor, without axes where the shape has none: a copy of an array without axes is a vector in NumPy."""
    return tensor if shape else tensor.reshape(())


def parameter(rng: Any, shape: Sequence[int], dtype: str | None, centre: float) -> Tensor | None:
    """A parameter of values around a centre; None if its dtype is None."""
    return None if dtype is None else strategies.to_dtype(rng.standard_normal(tuple(shape)) + centre, dtype)


def cotangent(rng: Any, shape: Sequence[int], dtype: str, kind: str) -> Tensor:
    """A gradient of an output; of small integers for kind "integers"."""
    # The normal numbers are drawn even where integers replace them. Without this draw the other data of such a sample
    # would change, and the same seed would no longer give the same sample.
    values = np.asarray(rng.standard_normal(tuple(shape)))
    if kind == "integers":
        values = np.asarray(strategies.integers(rng, tuple(shape), FORMATS[dtype]))
    return _in_shape(strategies.to_dtype(values, dtype), shape)


def samples_of(
    structures: Callable[[str, str], st.SearchStrategy[ArgumentsByName]],
    fill: Callable[[Any, ArgumentsByName, str], Any],
) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples whose structure Hypothesis draws and whose data NumPy fills in.

    Args:
        structures: (dtype name, kind) -> strategy of structures; each has its "regime" and its "extents" (see `Draft`).
        fill: (generator, structure, dtype name) -> the arguments.
    """

    strategy_of = functools.cache(structures)

    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        structure = draw(strategy_of(dtype, kind))
        return Draft(lambda rng: fill(rng, structure, dtype), structure["regime"], structure["extents"])

    return samples


@st.composite
def row_structures(
    draw: st.DrawFn, dtype: str, kind: str, centres: Mapping[str, float], numbers: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """The structure of a sample of an op on rows: shapes, dtypes of parameters, regime, numbers.

    Args:
        dtype, kind: of the samples. centres, numbers: as for `normalized_rows`.
    """
    inner_rank = draw(choose("axes of a row", (1, 1, 2)))
    outer_rank = draw(strategies.axes_beside("axes of rows", inner_rank, (1, 1, 0, 2)))
    outer, inner = draw(strategies.shapes(kind, inner_rank, outer_rank))
    return {
        "outer": outer,
        "inner": inner,
        "parameters": draw(parameters(dtype, tuple(centres))),
        "regime": draw(regime(kind)),
        "numbers": {name: draw(choose(name, values)) for name, values in numbers.items()},
        "extents": strategies.rows_and_row(outer, inner),
    }


def row_arguments(rng: Any, structure: ArgumentsByName, dtype: str, centres: Mapping[str, float]) -> dict[str, Any]:
    """The arguments of a sample of `row_structures` by name: input, normalized_shape, the parameters, the numbers."""
    inner, dtypes = structure["inner"], structure["parameters"]
    outer, table = structure["outer"], (math.prod(structure["outer"]), math.prod(inner))
    x = rows(rng, structure["regime"], (*outer, *inner), dtype, table=table)
    weights = {name: parameter(rng, inner, dtypes[name], centre) for name, centre in centres.items()}
    return {"input": x, "normalized_shape": inner, **weights, **structure["numbers"]}


def normalized_rows(centres: Mapping[str, float], **numbers: Sequence[Any]) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of an op like layer_norm, whose rows extend along the last axes of `input`, of `normalized_shape`.

    Args:
        centres: name -> mean of the values, for each parameter of shape `normalized_shape`, which is sometimes None.
        numbers: name -> values to draw from, the simplest first, for each other argument.

    Raises:
        ValueError: there is nothing to draw a number from.
    """
    for name, choices in numbers.items():
        if not choices:
            raise ValueError(f"{name}={choices!r}: need at least one value to draw from")
    return samples_of(
        lambda dtype, kind: row_structures(dtype, kind, centres, numbers),
        lambda rng, structure, dtype: row_arguments(rng, structure, dtype, centres),
    )


def inexact(samples: Callable[..., Any], why: str = "an exponential is exact on no data") -> Callable[..., Any]:
    """Samples of an op that has no exact values: all but those of kind "integers"."""
    return without(samples, "integers", why)


def without(samples: Callable[..., Any], kind: str, why: str) -> Callable[..., Any]:
    """Samples of all kinds but one.

    Args:
        samples: (dtype name, kind) -> strategy of drafts. kind: the kind that is not offered. why: the reason.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r}: need one of {', '.join(KINDS)}")

    def others(dtype: str, other: str = "ordinary") -> Any:
        if other == kind:
            raise Unsupported(Code.NOT_APPLICABLE, why)
        return samples(dtype, other)

    return others
