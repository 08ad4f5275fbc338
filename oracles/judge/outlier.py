"""The worst element of an output that is outside its accept set, and where all of them lie: in numbers and in lines.

Every card of a wrong output has these lines, whoever asked.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...reference.formats import Format
from ..bound import accept, scale
from .location import box_of, describe_place, describe_relation, draw_map

#: Elements that say how wide bounds are.
_LOOKED_AT = 2**17


@dataclass(frozen=True)
class Outlier:
    """The worst of the elements of an output that are outside their accept sets, and where all of them lie.

    Attributes:
        output: its name. index: of the worst element.
        computed, exact: its value and the exact one, float64. bound: the largest error that is accepted there.
        ratio: its error over the bound.
        outside, elements: how many elements are outside, of how many.
        box: the first and the last index of these elements along every axis.
        place, relation: where they lie and how they go with the right values, in words; empty where nothing short is
            true of all.
        share: the largest error as a share of the largest exact element; infinite where one of both is not finite.
    """

    output: str
    index: tuple[int, ...]
    computed: float
    exact: float
    bound: float
    ratio: float
    outside: int
    elements: int
    box: tuple[tuple[int, int], ...]
    place: str
    relation: str
    share: float


def measures_at(elements: accept.Elements, at: tuple[int, ...]) -> accept.Measures:
    """The measures of one element, each an array of one number."""
    return elements.of([int(np.ravel_multi_index(at, elements.accepted.shape)) if at else 0])


def make_outlier(
    name: str, values: Any, elements: accept.Elements, outside: Any, at: tuple[int, ...], here: accept.Measures
) -> Outlier:
    """The outlier of an output.

    Args:
        name: of the output. values: it, float64. elements: in their accept sets.
        outside: which of them are wrong, a bool array with a true element. at: the worst of these. here: its measures.
    """
    return Outlier(
        name, at, float(values[at]), float(elements.value[at]), float(here.bound[0]), float(here.ratio[0]),
        int(np.count_nonzero(outside)), outside.size, box_of(outside) if at else (), describe_place(outside),
        describe_relation(values, elements.value, outside), _share(values, elements.value, outside),
    )  # fmt: skip


def describe_outlier(
    outlier: Outlier, here: accept.Measures, fmt: Format, elements: accept.Elements, outside: Any, exact: str = ""
) -> list[str]:
    """The lines of a card: what was computed, how far off, how severe, and where.

    Args:
        outlier, here, elements, outside: as for `make_outlier`. fmt: of the output.
        exact: the exact value with more digits than a float64 has, where it was read.
    """
    where = "; ".join(text for text in (outlier.place, outlier.relation) if text)
    return [
        f"computed   {outlier.computed!r} ({outlier.computed.hex()})",
        f"exact      {exact or repr(outlier.exact)}",
        *_describe_error(outlier, ulps_of(fmt, here, outlier.exact), _largest(elements.value)),
        f"outside    {outlier.outside} of {outlier.elements} elements"
        f" ({outside.size - np.count_nonzero(elements.judged)} not judged)",
        *([f"where      {where}"] if where else []),
        *(f"{'' if i else 'map':<11}{line}" for i, line in enumerate(draw_map(outside))),
    ]


def describe_width(elements: accept.Elements, here: accept.Measures) -> str:
    """The line of a card about the smallest error that could have been seen: in most elements, and in the worst."""
    widths = elements.of(some_of(elements.accepted.size)).width
    widths = widths[np.isfinite(widths)]
    median = np.median(widths) if widths.size else np.nan
    return f"sees       errors from {median:.3g} ulp on (median), {float(here.width[0]):.3g} here"


def some_of(size: int) -> Any:
    """Numbers of elements that are looked at where a median is asked for: of many some, evenly."""
    return np.arange(0, size, max(size // _LOOKED_AT, 1))


def ulps_of(fmt: Format, here: accept.Measures, exact: float) -> float:
    """The error of an element in ulp; NaN where its exact value is near zero, where an ulp measures nothing."""
    return math.nan if scale.near_zero(fmt, float(here.bound[0]), exact) else float(here.ulp[0])


def _largest(exact: Any) -> float:
    """The largest magnitude among the exact elements that are finite."""
    return float(np.abs(exact[np.isfinite(exact)]).max(initial=0.0))


def _share(values: Any, exact: Any, outside: Any) -> float:
    with np.errstate(invalid="ignore"):
        errors = np.abs(values - exact)[outside]
    largest = _largest(exact)
    return float(errors.max()) / largest if np.isfinite(errors).all() and largest else float("inf")


def _describe_error(outlier: Outlier, ulp: float, largest: float) -> list[str]:
    """The worst error in ulp and in bounds, and on the scale of the whole output."""
    error = abs(outlier.computed - outlier.exact)
    if not np.isfinite(error):
        return [f"severity   not finite; the largest exact element is {largest:.3g}"]
    ulps = "" if math.isnan(ulp) else f"{ulp:.4g} ulp, "
    share = f"{error / largest:.2g}" if largest else "more than all"
    most = f"; {outlier.share:.2g} where the error is largest" if np.isfinite(outlier.share) else ""
    return [
        f"error      {error:.3g}: {ulps}{outlier.ratio:.4g} times the bound {outlier.bound:.3g}",
        f"severity   {share} of the largest exact element, {largest:.3g}{most}",
    ]
