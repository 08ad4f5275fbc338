"""The card of an output with elements outside their accept sets, whoever asked: the worst of them, and where all lie.

Where a failing output is too large to be read exactly, its worst elements are read exactly, each by itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact
from ...reference.formats import Format, round_array
from ..bound import accept, scale
from ..bound.rounding import Ball
from ..bound.rounding.one_element import exact_element
from ..bound.terms import Terms
from ..op.declaration import Tensor, dtype_name, to_array
from ..op.paths import Expected
from ..specs.calls import UntraceableError
from ..specs.storage import format_of
from ..verdicts.verdict import Code, Worst
from ..verdicts.violation import Outlier, Violation
from .location import box_of, describe_place, describe_relation, draw_map

#: The most elements of an output that are read by themselves, the worst first, until one is outside by its exact value.
MOST = 4
#: Elements that say how wide bounds are.
_LOOKED_AT = 2**17
#: One element that was read exactly by itself: its index, its exact value, its place in its accept set.
Alone = tuple[tuple[int, ...], Exact, accept.Elements]


def find_worst_alone(
    expected: Expected, index: int, computed: Any, fmt: Format, ball: Ball, elements: accept.Elements, order: int
) -> Alone | None:
    """The worst element that is outside also by its exact value; None where its exact value would take too long.

    Up to `MOST` elements are read. One that is inside by its exact value is entered as accepted in `elements`.

    Args:
        expected, index: what the outputs are judged against, and which of them this one is.
        computed, fmt, ball: the output as float64, its format and its reading. elements: in their accept sets.
        order: of the derivative, as for `accept.place_in_accept_sets`.
    """
    for _ in range(MOST):
        if np.all(elements.accepted):
            break
        at = elements.worst()
        try:
            exact = exact_element(expected.formula, expected.operands, ball.contract, index, at)
        except UntraceableError:
            break
        if exact is None:
            break
        here = Ball(np.asarray(ball.centre[at]), np.asarray(ball.radii()[at]), ball.contract)
        alone = accept.place_in_accept_sets(np.asarray(computed[at]), fmt, here, exact, expected.finite, order)
        if not np.all(alone.accepted):
            return at, exact, alone
        elements.accepted[at] = True
    return None


def worst_at(
    name: str, at: tuple[Any, ...], path: str, computed: float, fmt: Format, elements: accept.Elements,
    exact: Exact | None = None,
) -> Worst:  # fmt: skip
    """One element as a report shows it; elements without axes are that one alone.

    Args:
        name, at: of the output, and the index of the element. path: the name of the output's path.
        computed, fmt: the element, and its format.
        elements, exact: in their accept sets, and their exact readings, if these were made.
    """
    there = at if np.ndim(elements.value) else ()
    here, value = elements.of([_flat(there, elements)]), float(elements.value[there])
    # Where the exact value is near zero an ulp measures nothing.
    ulp = math.nan if scale.near_zero(fmt, float(here.bound[0]), value) else float(here.ulp[0])
    digits = repr(value) if exact is None else libmp.to_str(exact.values[there], 25)
    return Worst(element_name(name, at), path, computed.hex(), digits, ulp, float(here.ratio[0]))


def element_name(name: str, at: tuple[Any, ...]) -> str:
    """What messages call an element of an output."""
    return f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name


def _flat(at: tuple[Any, ...], elements: accept.Elements) -> int:
    return int(np.ravel_multi_index(at, elements.accepted.shape)) if at else 0


def describe_outside(
    name: str, tensor: Tensor, elements: accept.Elements, ball: Ball, *, head: str = "", path: str = "forward",
    number: int = 0, exact: Exact | None = None, alone: Alone | None = None, terms: Terms | None = None,
    operands: Iterable[Any] = (),
) -> Violation:  # fmt: skip
    """The violation of an output with elements outside their accept sets; its card shows the worst of them.

    Args:
        name, number, tensor: of the output. elements, ball: in their accept sets, and their reading.
        head: the beginning of the title, which then names the output, and not its element, so that failures of one
            cause have one title. path: the name of the output's path.
        exact: the exact reading, if one was made. alone: the worst element, where it was read exactly by itself.
        terms: what was allowed, if that is said. operands: of the formula as float64 arrays.
    """
    outside, values, fmt = ~elements.accepted, to_array(tensor), format_of(tensor.dtype)
    at, exact, place = alone or (elements.worst(), exact, elements)
    at, there = tuple(map(int, at)), () if alone else at
    here, value, computed = place.of([_flat(there, place)]), float(place.value[there]), float(values[at])
    share = scale.share(values, fmt, elements, ball.contract.roundoff, operands)
    worst = worst_at(name, at, path, computed, fmt, place, exact)
    worst = replace(worst, share=share, roundoffs=share / fmt.unit_roundoff)
    outlier = Outlier(
        name, number, at, worst, float(here.bound[0]), place.edges(there), int(np.count_nonzero(outside)),
        outside.size, box_of(outside) if at else (), describe_place(outside),
        describe_relation(values, elements.value, outside), _share(values, elements.value, outside),
    )  # fmt: skip
    special = bool(elements.special[at]) or not math.isfinite(worst.ratio)
    kinds = _kind_of(computed), _kind_of(float(round_array(fmt, np.float64(value))))
    size = f": {kinds[0]} where {kinds[1]} is right" if special else f", {worst.ratio:.4g} times its bound"
    where = "; ".join(text for text in (outlier.place, outlier.relation) if text)
    lines = (
        *([f"element    {worst.where}"] if head else []),
        f"computed   {computed!r} ({worst.computed})",
        f"exact      {worst.exact}",
        *_describe_error(outlier, elements),
        f"outside    {outlier.outside} of {outlier.elements} elements"
        f" ({outside.size - np.count_nonzero(elements.judged)} not judged)",
        *([f"where      {where}"] if where else []),
        *(f"{'' if i else 'map':<11}{line}" for i, line in enumerate(draw_map(outside))),
        *([] if terms is None else [f"allowed    {terms}"]),
        f"format     {dtype_name(tensor.dtype)}, sums in {ball.contract.accumulate.name}",
        _describe_width(elements, float(here.width[0])),
    )
    if ball.contract.roundings > 1:
        lines += (f"bound      heuristic from second order on: {ball.contract.roundings:g} roundings per operation",)
    title = f"{f'{head}: {name}' if head else worst.where} is outside its accept set{size}"
    return Violation(Code.SPECIAL if special else Code.VALUE, title, lines, path, outlier)


def _kind_of(value: float) -> str:
    return "a number" if math.isfinite(value) else "NaN" if math.isnan(value) else "an infinity"


def _describe_width(elements: accept.Elements, here: float) -> str:
    """The line of a card about the smallest error that could have been seen: in most elements, and in the worst."""
    widths = elements.of(some_of(elements.accepted.size)).width
    widths = widths[np.isfinite(widths)]
    median = np.median(widths) if widths.size else np.nan
    return f"sees       errors from {median:.3g} ulp on (median), {here:.3g} here"


def some_of(size: int) -> Any:
    """Numbers of elements that are looked at where a median is asked for: of many some, evenly."""
    return np.arange(0, size, max(size // _LOOKED_AT, 1))


def _describe_error(outlier: Outlier, elements: accept.Elements) -> list[str]:
    """The worst error in ulp and in bounds, and on the scale of the whole output."""
    error, worst = abs(outlier.computed - outlier.exact), outlier.worst
    largest = scale.largest(elements.value)
    if not np.isfinite(error):
        return [f"severity   not finite; the largest exact element is {largest:.3g}"]
    ulps = "" if math.isnan(worst.ulp) else f"{worst.ulp:.4g} ulp, "
    share = f"{error / largest:.2g}" if largest else "more than all"
    most = f"; {outlier.share:.2g} where the error is largest" if np.isfinite(outlier.share) else ""
    return [
        f"error      {error:.3g}: {ulps}{worst.ratio:.4g} times the bound {outlier.bound:.3g}",
        f"severity   {share} of the largest exact element, {largest:.3g}{most}",
    ]


def _share(values: Any, exact: Any, outside: Any) -> float:
    with np.errstate(invalid="ignore"):
        errors = np.abs(values - exact)[outside]
    largest = scale.largest(exact)
    return float(errors.max()) / largest if np.isfinite(errors).all() and largest else math.inf
