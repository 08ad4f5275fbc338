"""Violations of outputs along paths in words: an element outside its accept set, a wrong shape; and their programs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from ...reference.exact import Exact, evaluate
from ..bound.rounding import Ball
from ..op.declaration import Tensor
from ..op.paths import Expected, Path
from ..op.script import ScriptMaker
from ..programs.along import along_path
from ..programs.questions import of_element, of_equality
from ..specs.calls import UntraceableError
from ..verdicts.verdict import Code
from ..verdicts.violation import Violation
from .holding import Standing
from .outlier import Alone, describe_outside


def exact_values(expected: Expected) -> Sequence[Exact] | None:
    """The exact readings of a formula's outputs; None for one that only its rounded reading can evaluate.

    A determinant is such a number: a factorisation encloses it, and no formula gives its digits.
    """
    try:
        return evaluate(expected.formula, *expected.operands)[0]
    except UntraceableError:
        return None


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
    op: str, expected: Expected, index: int, tensor: Tensor, standing: Standing, exact: Exact | None,
    alone: Alone | None,
) -> Violation:  # fmt: skip
    """The violation of an output along a path with elements outside, with a program that computes the worst of them.

    Args:
        op: its name. expected, index: what the outputs are judged against, and which of them this one is.
        tensor, standing: the output, and its place in its accept sets.
        exact, alone: as for `describe_outside`.
    """
    assert standing.in_sets is not None
    assert standing.ball is not None
    violation = describe_outside(
        expected.names[index], tensor, standing.in_sets, standing.ball, head=f"{op} {expected.path}",
        path=expected.path, number=index, exact=exact, alone=alone, operands=expected.operands,
    )  # fmt: skip
    worst = violation.outlier
    if worst is not None and expected.make_script is not None:
        element = worst.number, worst.index, worst.worst.exact, worst.edges, f"{op} {worst.worst.where}"
        violation.make_script = functools.partial(of_element, expected.make_script, *element)
    return violation
