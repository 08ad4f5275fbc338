"""The card of an output that is not accepted: what a user pastes into an issue.

It says where, computed, exact, how far off, how severe, what was allowed, and the smallest error that could have been
seen.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...oracles.bound import accept
from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms
from ...oracles.judge.location import box_of, describe_place, describe_relation, draw_map
from ...oracles.op.declaration import Tensor, dtype_name, to_array
from ...oracles.verdicts.verdict import Code

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


@dataclass(frozen=True)
class Wrong:
    """Why an output is not accepted: a code, a sentence, lines of detail, and the worst element where there is one."""

    code: Code
    title: str
    lines: tuple[str, ...] = ()
    outlier: Outlier | None = None

    def __str__(self) -> str:
        return "\n".join([self.title, *(f"  {line}" for line in self.lines)])

    def with_lines(self, *lines: str) -> Wrong:
        """The same with more lines at its end."""
        return replace(self, lines=(*self.lines, *lines))


def some_of(size: int) -> Any:
    """Numbers of elements that are looked at where a median is asked for: of many some, evenly."""
    return np.arange(0, size, max(size // _LOOKED_AT, 1))


def make_card(name: str, computed: Tensor, elements: accept.Elements, accepted: Any, ball: Ball, terms: Terms) -> Wrong:
    """What is wrong with the elements of an output that are outside their accept sets, by the worst of them."""
    outside, values = ~accepted, to_array(computed)
    at = tuple(map(int, elements.worst(accepted)))
    special = bool(elements.special[at]) or not np.isfinite(values[at])
    measures = elements.of([int(np.ravel_multi_index(at, outside.shape)) if at else 0])
    outlier = Outlier(
        name, at, float(values[at]), float(elements.value[at]), float(measures.bound[0]), float(measures.ratio[0]),
        int(np.count_nonzero(outside)), outside.size, box_of(outside) if at else (), describe_place(outside),
        describe_relation(values, elements.value, outside), _share(values, elements.value, outside),
    )  # fmt: skip
    where = "; ".join(text for text in (outlier.place, outlier.relation) if text)
    widths = elements.of(some_of(outside.size)).width
    widths = widths[np.isfinite(widths)]
    lines = [
        f"computed   {outlier.computed!r} ({outlier.computed.hex()})",
        f"exact      {outlier.exact!r}",
        *_describe_error(outlier, float(measures.ulp[0]), _largest(elements.value)),
        f"outside    {outlier.outside} of {outlier.elements} elements"
        f" ({outside.size - np.count_nonzero(elements.judged)} not judged)",
        *([f"where      {where}"] if where else []),
        *(f"{'' if i else 'map':<11}{line}" for i, line in enumerate(draw_map(outside))),
        f"allowed    {terms}",
        f"format     {dtype_name(computed.dtype)}, sums in {ball.contract.accumulate.name}",
        f"sees       errors from {np.median(widths) if widths.size else np.nan:.3g} ulp on (median),"
        f" {float(measures.width[0]):.3g} here",
    ]
    title = title_of(f"{name}[{', '.join(map(str, at))}]" if at else name)
    if special:
        return Wrong(Code.SPECIAL, f"{title}: a NaN or an infinity on one side alone", tuple(lines), outlier)
    return Wrong(Code.VALUE, f"{title}, {outlier.ratio:.4g} times its bound", tuple(lines), outlier)


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
    share = f"{error / largest:.2g}" if largest else "more than all"
    most = f"; {outlier.share:.2g} where the error is largest" if np.isfinite(outlier.share) else ""
    return [
        f"error      {error:.3g}: {ulp:.4g} ulp, {outlier.ratio:.4g} times the bound {outlier.bound:.3g}",
        f"severity   {share} of the largest exact element, {largest:.3g}{most}",
    ]


def title_of(where: str) -> str:
    """The first line of a card about an output or an element."""
    return f"{where} is outside its accept set"
