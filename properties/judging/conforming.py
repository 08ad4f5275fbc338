"""The bound of a spec as a function call, and the assertion that an output keeps it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ...oracles.op import dtype_name
from ...oracles.rounding import Ball
from ...oracles.terms import Terms, terms
from ...reference.formats import FORMATS
from .agreement import disagreement, told_of_torch
from .arguments import Arguments, Tensor, tensors_of
from .comparing import hold_in_turn
from .specification import Reading, Run, SpecError, Specification, specification

#: The terms that count where a user names none.
DEFAULT = "torch"


class Bound(NamedTuple):
    """What every evaluation that the contract allows gives for one output: float64 tensors of its shape, on the CPU.

    Attributes:
        centre: the exact value, to about 13 digits.
        radius: how far an evaluation may end from the centre before it is rounded to the output's dtype. Infinite where
            an evaluation may overflow, and NaN where one may have no value. Beside an infinite operand NaN may be right
            as well, where a product with the margin of a convolution is formed.
        half_width: the radius and that last rounding: the smallest error that can be seen.
    """

    centre: Tensor
    radius: Tensor
    half_width: Tensor


def bound(spec: Any, *args: Any, contract: str | Terms = DEFAULT) -> Bound | tuple[Bound, ...]:
    """How far from its exact value every output element of a spec may be.

    Args:
        spec: a function or module of plain PyTorch, a formula in NumPy, or the name of an op of the catalog.
        args: what it is called with: tensors, and whatever else it takes.
        contract: what an evaluation may do: a name (`opassay.PRESETS`), with allowances after a +, or `Terms`.

    Returns:
        A `Bound` for each floating output; one alone where there is one.

    Raises:
        SpecError: the spec cannot be read. ValueError: `contract` is no name of terms.
    """
    found, allowed, arguments = specification(spec), terms(contract), Arguments.of(args)
    run = found.run(arguments, found.state)
    read = found.read(arguments, found.state, allowed)[: len(run.outputs)]
    _require_agreement(found, arguments, run, lambda _: read, allowed)
    rows = [_bound(ball, _dtype(found, run, i, ball)) for i, ball in enumerate(read) if isinstance(ball, Ball)]
    return rows[0] if len(rows) == 1 else tuple(rows)


def _require_agreement(
    spec: Specification, arguments: Arguments, run: Run, read: Callable[[Terms], Sequence[Reading]], terms: Terms
) -> None:
    """Require that what was read of a spec is what torch runs.

    Raises:
        SpecError: it is not.
    """
    why = disagreement(spec, arguments, spec.state, run, read, terms)
    if why:
        raise SpecError(why)


def _dtype(spec: Specification, run: Run, position: int, ball: Ball) -> str:
    return ball.contract.stores.name if spec.numpy else dtype_name(run.outputs[position].dtype)


def _bound(ball: Ball, dtype: str) -> Bound:
    with np.errstate(all="ignore"):
        width = ball.half_widths(FORMATS[dtype])
    return Bound(*(_own_tensor(array) for array in (ball.centre, ball.radii(), width)))


def _own_tensor(array: Any) -> Tensor:
    """A float64 tensor of an array; a copy, unless nobody else can see the array's memory."""
    own = array.dtype == np.float64 and array.base is None and array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if own else np.array(array, dtype=np.float64))


def assert_conforms(candidate_output: Any, spec: Any, *args: Any, contract: str | Terms = DEFAULT) -> None:
    """Assert that outputs lie where an evaluation of the spec may put them.

    Args:
        candidate_output: a tensor, or a tuple, list or dictionary of which the tensors are taken in order.
        spec, args, contract: as for `bound`.

    Raises:
        AssertionError: an output does not; the text is a card that can be pasted into an issue.
        SpecError: the spec cannot be read. ValueError: `contract` is no name of terms.
    """
    __tracebackhide__ = True
    found, allowed, arguments = specification(spec), terms(contract), Arguments.of(args)
    run = found.run(arguments, found.state)
    count = len(run.outputs)
    native, outputs = None if found.numpy else run.outputs, tensors_of(candidate_output)

    @functools.cache
    def read(terms: Terms) -> Sequence[Reading]:
        return found.read(arguments, found.state, terms)[:count]

    _require_agreement(found, arguments, run, read, allowed)
    held = hold_in_turn(run.names[:count], outputs, read, allowed, native, arguments.finite)
    held = told_of_torch(held, native, allowed, arguments.finite)
    wrong = [str(each.wrong) for each in held if each.wrong is not None]
    if wrong:
        raise AssertionError("\n".join([f"{found.name}: {wrong[0]}", *wrong[1:]]))
