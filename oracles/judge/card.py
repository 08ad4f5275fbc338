"""What is wrong with outputs: an element outside its accept set, a shape, a dtype; and a program that shows it."""

from __future__ import annotations

import functools
import math
from dataclasses import replace

import numpy as np
from mpmath import libmp

from ...reference.exact import Exact
from ...reference.formats import FORMATS
from ..bound import accept, scale
from ..bound.contract import Contract
from ..bound.rounding import Ball
from ..op.declaration import Tensor, dtype_name, to_array
from ..op.paths import Expected, Path
from ..op.script import Telling
from ..programs.along import along_path
from ..programs.questions import of_element, of_equality
from ..verdicts.verdict import Code, Worst
from ..verdicts.violation import Fault, Violation
from .worst_element import ElementAlone, in_ulps, ulps_of, worst_of


def attribute(path: Path, expression: str, need: object) -> Telling:
    """A program that compares an expression of a path's `outputs` with what it must be."""
    return functools.partial(of_equality, functools.partial(along_path, path), expression, need, path.name)


def misshapen(op: str, index: int, tensor: Tensor, ball: Ball, name: str, path: str, told: Telling | None) -> Violation:
    """An output of another shape than the formula's.

    Args:
        op: its name. index, tensor, ball, name: the output, its reading, and what it is called.
        path: of the outputs. told: tells the lines of a program that computes them.
    """
    lines = [f"got shape={tuple(tensor.shape)}, need {ball.shape}"]
    found = Violation(Code.ATTRIBUTE, f"{op} {path}: shape of {name}", lines, path)
    if told is None:
        return found
    expression = f"tuple(outputs[{index}].shape)"
    return found.showing(functools.partial(of_equality, told, expression, tuple(ball.shape), found.title))


def outside(
    op: str, allowed: Contract, expected: Expected, index: int, tensor: Tensor, found: accept.Elements,
    exact: Exact | None, alone: ElementAlone | None = None,
) -> Violation:  # fmt: skip
    """What is wrong with the worst of the elements that are outside their accept sets.

    Args:
        op: its name. allowed: the contract of the path.
        expected, index: what the outputs are judged against, and which of them this one is.
        tensor, found: the output, and where its elements stand. exact: its exact reading, if one was made.
        alone: the worst element by itself, if that alone was read exactly.
    """
    refused, name, fmt = ~found.accepted, expected.names[index], FORMATS[dtype_name(tensor.dtype)]
    at = found.worst() if alone is None else alone.at
    worst = worst_of(tensor, found, exact, name, expected.path, at)
    if alone is not None:
        value = libmp.to_str(alone.exact.values[()], 25)
        worst = replace(worst, exact=value, ulp=ulps_of(fmt, alone.found, ()), ratio=float(alone.found.ratio))
    share = scale.share(to_array(tensor), fmt, found, allowed.roundoff, expected.operands)
    worst = replace(worst, share=share, roundoffs=share / fmt.unit_roundoff)
    code = Code.SPECIAL if found.special[at] or not math.isfinite(worst.ratio) else Code.VALUE
    lines = [
        f"worst     {worst.where} = {worst.computed} ({float.fromhex(worst.computed)!r}), exact {worst.exact}",
        f"error     {_error_text(worst, share)}",
        f"outside   {np.count_nonzero(refused)} of {refused.size} elements "
        f"({refused.size - np.count_nonzero(found.judged)} not judged)",
        f"format    {dtype_name(tensor.dtype)}, accumulating in {allowed.accumulate.name}",
    ]
    if allowed.roundings > 1:
        lines.append(f"bound     heuristic from second order on: {allowed.roundings:g} roundings per operation")
    # The title has no values, because failures of one cause in several samples have one title.
    size = f", {worst.ratio:.4g}x bound" if math.isfinite(worst.ratio) else f": {_kind_text(worst)}"
    title = f"{op} {expected.path}: {name} outside its accept set{size}"
    element = tuple(int(i) for i in at)
    edges = found.edges(element) if alone is None else alone.found.edges(())
    fault = Fault(index, element, worst.exact, edges)
    violation = Violation(code, title, lines, expected.path, fault=fault, worst=worst)
    if expected.told is not None:
        violation.script = functools.partial(of_element, expected.told, fault, f"{op} {worst.where}")
    return violation


def _error_text(worst: Worst, share: float) -> str:
    """The size of an error, or, where one of the two values is no number, which."""
    if not math.isfinite(worst.ratio):
        return _value_text(worst)
    return f"{in_ulps(worst)}{worst.ratio:.4g} times its bound, {share:.2g} of the largest number"


def _value_text(worst: Worst) -> str:
    return f"got {float.fromhex(worst.computed)!r}, need {worst.exact}"


def _kind_text(worst: Worst) -> str:
    """What was got in place of what, without the numbers."""
    value = float.fromhex(worst.computed)
    return "got a number where there is none" if math.isfinite(value) else f"got {abs(value)}"
