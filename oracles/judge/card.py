"""The card of an output with elements outside their accept sets, whoever asked: the worst of them, and where all lie.

Along a path it has a program of that element, and what a declaration would have to allow. Where an output is too large
to be read exactly, its worst elements are, each by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from mpmath import libmp

from ...reference.algorithms import names_of
from ...reference.exact import Exact, evaluate
from ...reference.formats import Format, round_array
from ..bound import accept, scale
from ..bound.contract import EXP2
from ..bound.rounding import Ball
from ..bound.rounding.one_element import exact_element
from ..bound.terms import Terms
from ..op.declaration import Tensor, dtype_name, to_array
from ..op.paths import Expected, Path
from ..programs.questions import of_element
from ..specs.calls import UntraceableError
from ..specs.storage import format_of
from ..verdicts.verdict import Code, Worst
from ..verdicts.violation import Outlier, Violation
from .holding import OperandFacts, Standing, hold, some_of
from .location import box_of, describe_place, describe_relation, draw_map

#: The most elements of an output that are read by themselves, the worst first, until one is outside by its exact value.
MOST = 4
#: One element: its index, the exact reading of it or of all, if one was made, and its place, or that of all, in sets.
Place = tuple[tuple[int, ...], Exact | None, accept.Elements]


def exact_values(expected: Expected) -> Sequence[Exact] | None:
    """The exact readings of a formula's outputs; None for one that only its rounded reading can evaluate.

    A determinant is such a number: a factorisation encloses it, and no formula gives its digits.
    """
    try:
        return evaluate(expected.formula, *expected.operands)[0]
    except UntraceableError:
        return None


def find_worst_alone(
    expected: Expected, index: int, computed: Any, fmt: Format, ball: Ball, elements: accept.Elements, order: int
) -> Place | None:
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
    name: str, tensor: Tensor, standing: Standing, *, terms: Terms | None = None, path: str = "forward",
    number: int = 0, place: Place | None = None, operands: Iterable[Any] = (),
) -> Violation:  # fmt: skip
    """The violation of an output with elements outside their accept sets; its card shows the worst of them.

    Args:
        name, number, tensor, standing: of the output.
        terms: what was allowed, if that is said. path: the name of the output's path.
        place: of the worst element, where anything was read exactly. operands: of the formula as float64 arrays.
    """
    elements, ball = standing.in_sets, standing.ball
    assert elements is not None
    assert ball is not None
    outside, values, fmt = ~elements.accepted, to_array(tensor), format_of(tensor.dtype)
    at, exact, own = place or (elements.worst(), None, elements)
    at, there = tuple(map(int, at)), at if np.ndim(own.value) else ()
    here, computed = own.of([_flat(there, own)]), float(values[at])
    share = scale.share(values, fmt, elements, ball.contract.roundoff, operands)
    worst = worst_at(name, at, path, computed, fmt, own, exact)
    worst = replace(worst, share=share, roundoffs=share / fmt.unit_roundoff)
    outlier = Outlier(
        name, number, at, worst, float(here.bound[0]), own.edges(there), int(np.count_nonzero(outside)),
        outside.size, box_of(outside) if at else (), describe_place(outside),
        describe_relation(values, elements.value, outside), _share(values, elements.value, outside),
    )  # fmt: skip
    special = bool(elements.special[at]) or not math.isfinite(worst.ratio)
    where = "; ".join(text for text in (outlier.place, outlier.relation) if text)
    lines = (
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
    code = Code.SPECIAL if special else Code.VALUE
    return Violation(code, _describe_numbers(outlier, special), lines, path, outlier)


def _describe_numbers(outlier: Outlier, special: bool) -> str:
    """The title about an element: what was computed, and what is right."""
    numbers = outlier.computed, outlier.exact
    computed, exact = (f"{number:.6g}" for number in numbers)
    computed, exact = map(repr, numbers) if computed == exact else (computed, exact)
    size = "" if special else f", {outlier.ratio:.4g} times its bound"
    return f"{outlier.worst.where} is {computed} where the exact value is {exact}{size}".replace(" nan", " NaN")


def _describe_kinds(outlier: Outlier, fmt: Format, special: bool) -> str:
    """The end of a title about an output, which is the same for failures of one cause."""
    kinds = _kind_of(outlier.computed), _kind_of(float(round_array(fmt, np.float64(outlier.exact))))
    return f": {kinds[0]} where {kinds[1]} is right" if special else f", {outlier.ratio:.4g} times its bound"


def _kind_of(value: float) -> str:
    return "a number" if math.isfinite(value) else "NaN" if math.isnan(value) else "an infinity"


def _describe_width(elements: accept.Elements, here: float) -> str:
    """The line of a card about the smallest error that could have been seen: in most elements, and in the worst."""
    widths = elements.of(some_of(elements.accepted.size)).width
    widths = widths[np.isfinite(widths)]
    median = np.median(widths) if widths.size else np.nan
    return f"sees       errors from {median:.3g} ulp on (median), {here:.3g} here"


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


def describe_worst(
    op: str, expected: Expected, index: int, tensor: Tensor, standing: Standing, exact: Exact | None,
    alone: Place | None,
) -> Violation:  # fmt: skip
    """The violation of an output along a path with elements outside, with a program that computes the worst of them.

    Args:
        op: its name. expected, index: what the outputs are judged against, and which of them this one is.
        tensor, standing: the output, and its place in its accept sets.
        exact: the exact reading, if one was made. alone: the worst element, where it was read exactly by itself.
    """
    name, path, elements = expected.names[index], expected.path, standing.in_sets
    assert elements is not None
    place = alone or (elements.worst(), exact, elements)
    card = describe_outside(name, tensor, standing, path=path, number=index, place=place, operands=expected.operands)
    worst = card.outlier
    assert worst is not None
    # The title names the output, and not its element, so that failures of one cause have one title.
    where, kinds = worst.worst.where, _describe_kinds(worst, format_of(tensor.dtype), card.code is Code.SPECIAL)
    title, lines = f"{op} {path}: {name} is outside its accept set{kinds}", (f"element    {where}", *card.lines)
    violation = Violation(card.code, title, lines, path, worst)
    if expected.make_script is not None:
        element = index, worst.index, worst.worst.exact, worst.edges, f"{op} {where}"
        violation.make_script = functools.partial(of_element, expected.make_script, *element)
    return violation


def allowance(judge: Any, path: Path, computed: Sequence[Tensor], worst: Outlier) -> str:
    """A sentence that names an allowance under which a path's outputs would be accepted; "" if there is none."""
    arithmetic = path.problem.op.promises.arithmetic
    wider = {
        f"algorithms={{{name!r}}}": path.problem.op.changed(algorithms=arithmetic.algorithms | {name})
        for name in (*names_of(judge.op.reference), EXP2)
        if name not in arithmetic.algorithms
    }
    if not arithmetic.flush:
        wider["flush=True"] = path.problem.op.changed(flush=True)
    for what, op in wider.items():
        expected = path.with_op(op).expected()
        facts = OperandFacts.FINITE if expected.finite else OperandFacts.UNKNOWN
        readings = judge.of(op).read(expected, computed)
        standings = [hold("", y, ball, facts) for y, ball in zip(computed, readings, strict=True)]
        # Under a wider bound the element may no longer be judged, which does not mean that it is accepted.
        elements = standings[worst.number].in_sets
        if elements is not None and elements.judged[worst.index] and not any(each.is_outside for each in standings):
            return f"accepted   if the declaration allowed {what}"
    return ""
