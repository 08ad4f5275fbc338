"""The worst element of an output that is outside its accept set, and where all of them lie: in numbers and in lines.

Every card of a wrong output has these lines, whoever asked.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ...reference.formats import Format
from ..bound import accept, scale
from ..bound.contract import Contract
from ..bound.terms import Terms
from ..op.declaration import Tensor, dtype_name, to_array
from ..specs.storage import format_of
from ..verdicts.violation import Outlier
from .location import box_of, describe_place, describe_relation, draw_map

#: Elements that say how wide bounds are.
_LOOKED_AT = 2**17


def measures_at(elements: accept.Elements, at: tuple[int, ...]) -> accept.Measures:
    """The measures of one element, each an array of one number."""
    return elements.of([int(np.ravel_multi_index(at, elements.accepted.shape)) if at else 0])


def describe_outside(
    name: str, tensor: Tensor, elements: accept.Elements, contract: Contract, at: tuple[int, ...],
    here: accept.Measures, exact: str = "", terms: Terms | None = None,
) -> tuple[Outlier, tuple[str, ...]]:  # fmt: skip
    """The outlier of an output, and the lines of its card: what was computed, how far off, how severe, where.

    Args:
        name, tensor: of the output. elements: in their accept sets, not all of which are accepted.
        contract, terms: what was allowed; without terms it is not said. at: the worst element. here: its measures.
        exact: the exact value with more digits than a float64 has, where it was read.
    """
    outside, values, fmt = ~elements.accepted, to_array(tensor), format_of(tensor.dtype)
    outlier = Outlier(
        name, at, float(values[at]), float(elements.value[at]), float(here.bound[0]), float(here.ratio[0]),
        int(np.count_nonzero(outside)), outside.size, box_of(outside) if at else (), describe_place(outside),
        describe_relation(values, elements.value, outside), _share(values, elements.value, outside),
    )  # fmt: skip
    where = "; ".join(text for text in (outlier.place, outlier.relation) if text)
    lines = (
        f"computed   {outlier.computed!r} ({outlier.computed.hex()})",
        f"exact      {exact or repr(outlier.exact)}",
        *_describe_error(outlier, ulps_of(fmt, here, outlier.exact), _largest(elements.value)),
        f"outside    {outlier.outside} of {outlier.elements} elements"
        f" ({outside.size - np.count_nonzero(elements.judged)} not judged)",
        *([f"where      {where}"] if where else []),
        *(f"{'' if i else 'map':<11}{line}" for i, line in enumerate(draw_map(outside))),
        *([] if terms is None else [f"allowed    {terms}"]),
        f"format     {dtype_name(tensor.dtype)}, sums in {contract.accumulate.name}",
        _describe_width(elements, here),
    )
    heuristic = f"bound      heuristic from second order on: {contract.roundings:g} roundings per operation"
    return outlier, (*lines, heuristic) if contract.roundings > 1 else lines


def _describe_width(elements: accept.Elements, here: accept.Measures) -> str:
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
