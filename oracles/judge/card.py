"""Violations of outputs in words: an element outside its accept set, a wrong shape; and programs that show them.

Where a failing output is too large to be read exactly, its worst elements are read exactly, each by itself.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact, evaluate
from ...reference.formats import FORMATS, Format
from ..bound import accept, scale
from ..bound.contract import Contract
from ..bound.rounding import Ball
from ..bound.rounding.one_element import exact_element
from ..op.declaration import Tensor, dtype_name, to_array
from ..op.paths import Expected, Path
from ..op.script import ScriptMaker
from ..programs.along import along_path
from ..programs.questions import of_element, of_equality
from ..specs.calls import UntraceableError
from ..verdicts.verdict import Code, Worst
from ..verdicts.violation import Fault, Violation
from .outlier import describe_outside, measures_at, ulps_of

#: The most elements of an output that are read by themselves, the worst first, until one is outside by its exact value.
MOST = 4


@dataclass(frozen=True)
class ElementAlone:
    """One element that was read exactly by itself: its index, its exact value, its place in its accept set."""

    at: tuple[Any, ...]
    exact: Exact
    elements: accept.Elements


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
) -> ElementAlone | None:
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
            return ElementAlone(at, exact, alone)
        elements.accepted[at] = True
    return None


def worst_of(tensor: Tensor, elements: accept.Elements, exact: Exact | None, name: str, path: str, at: Any) -> Worst:
    """One element as a report shows it.

    Args:
        tensor: the output. elements: in their accept sets. exact: the exact reading of the output, if one was made.
        name, path: the names of the output and its path. at: the index of the element.
    """
    computed = float(to_array(tensor)[at])
    decimal = repr(float(elements.value[at])) if exact is None else libmp.to_str(exact.values[at], 25)
    where = f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name
    here = measures_at(elements, tuple(map(int, at)))
    ulps = ulps_of(FORMATS[dtype_name(tensor.dtype)], here, float(elements.value[at]))
    return Worst(where, path, computed.hex(), decimal, ulps, float(here.ratio[0]))


def attribute(path: Path, expression: str, need: object) -> ScriptMaker:
    """Makes a program that compares an expression of a path's `outputs` with the value that it must have."""
    return functools.partial(of_equality, functools.partial(along_path, path), expression, need, path.name)


def require_shape(
    op: str, index: int, tensor: Tensor, ball: Ball, name: str, path: str, make_script: ScriptMaker | None
) -> None:
    """Raise a Violation unless an output has the shape of the formula's.

    Args:
        op: its name. index, tensor, ball, name: the number of the output, the output, its reading, its name.
        path: the name of the path. make_script: makes the lines of a program that computes the outputs, or None.
    """
    got, need = tuple(tensor.shape), tuple(ball.shape)
    if got != need:
        title, expression = f"{op} {path}: shape of {name}", f"tuple(outputs[{index}].shape)"
        show = make_script and functools.partial(of_equality, make_script, expression, need, title)
        raise Violation(Code.ATTRIBUTE, title, [f"got shape={got}, need {need}"], path).showing(show)


def describe_worst(
    op: str, allowed: Contract, expected: Expected, index: int, tensor: Tensor, elements: accept.Elements,
    exact: Exact | None, alone: ElementAlone | None = None,
) -> Violation:  # fmt: skip
    """The violation of an output with elements outside their accept sets; it shows the worst of them.

    Args:
        op: its name. allowed: the contract of the path.
        expected, index: what the outputs are judged against, and which of them this one is.
        tensor, elements: the output, and its elements in their accept sets. exact: its exact reading, if one was made.
        alone: the worst element, where it was read exactly by itself.
    """
    name, fmt = expected.names[index], FORMATS[dtype_name(tensor.dtype)]
    at = tuple(map(int, elements.worst() if alone is None else alone.at))
    worst = worst_of(tensor, elements, exact, name, expected.path, at)
    here = measures_at(elements, at) if alone is None else measures_at(alone.elements, ())
    if alone is not None:
        value, ratio = libmp.to_str(alone.exact.values[()], 25), float(here.ratio[0])
        worst = replace(worst, exact=value, ulp=ulps_of(fmt, here, float(alone.elements.value)), ratio=ratio)
    share = scale.share(to_array(tensor), fmt, elements, allowed.roundoff, expected.operands)
    worst = replace(worst, share=share, roundoffs=share / fmt.unit_roundoff)
    code = Code.SPECIAL if elements.special[at] or not math.isfinite(worst.ratio) else Code.VALUE
    outlier, lines = describe_outside(name, tensor, elements, allowed, at, here, worst.exact)
    # The title shows no computed value, so that failures of one cause have one title in several samples.
    size = f", {worst.ratio:.4g}x bound" if math.isfinite(worst.ratio) else f": {_kind_text(worst)}"
    title = f"{op} {expected.path}: {name} outside its accept set{size}"
    edges = elements.edges(at) if alone is None else alone.elements.edges(())
    fault = Fault(index, at, worst.exact, edges)
    lines = (f"element    {worst.where}", *lines)
    violation = Violation(code, title, lines, expected.path, fault=fault, worst=worst, outlier=outlier)
    if expected.make_script is not None:
        violation.make_script = functools.partial(of_element, expected.make_script, fault, f"{op} {worst.where}")
    return violation


def _kind_text(worst: Worst) -> str:
    """The kind of a computed value where the error has no size: a number, NaN or an infinity."""
    value = float.fromhex(worst.computed)
    return "got a number where there is none" if math.isfinite(value) else f"got {abs(value)}"
