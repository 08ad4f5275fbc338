"""The bound of a spec as a function call."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms, terms
from ...oracles.op.declaration import dtype_name
from ...oracles.process import interrupt
from ...reference.choice import has_residual
from ...reference.formats import EVERY_FORMAT
from .agreement import disagreement, operands_of
from .arguments import CallArguments, Tensor
from .comparing import decide_by
from .results import SpecRun, without_numbers
from .specification import SpecError, Specification, specification

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


@interrupt.SignalScope()
def bound(spec: Any, *args: Any, contract: str | Terms = DEFAULT) -> Bound | tuple[Bound, ...]:
    """How far from its exact value every output element of a spec may be.

    Args:
        spec: a function or module of plain PyTorch, a formula in NumPy, or the name of an op of the catalog.
        args: what it is called with: tensors, and whatever else it takes.
        contract: what an evaluation may do: a name (`opassay.PRESETS`), with allowances after a +, or `Terms`.

    Returns:
        A `Bound` for each floating output; one alone where there is one. Of a spec that gives no tensor, for each
        tensor that it writes.

    Raises:
        SpecError: the spec cannot be read, gives and writes no tensor, or gives one that depends on random numbers.
        ValueError: `contract` is no name of terms.
    """
    read_spec, allowed, arguments = specification(spec), terms(contract), CallArguments.of(args)
    run = run_without_draws(read_spec, arguments)
    rows = tuple(bounds_of(read_spec, run, arguments, allowed).values())
    return rows[0] if len(rows) == 1 else rows


def bounds_of(read_spec: Specification, run: SpecRun, arguments: CallArguments, allowed: Terms) -> dict[int, Bound]:
    """The bound of each floating output by its position; arguments and errors as for `bound`."""
    native = tensors_asked(run)
    readings = read_spec.read(arguments, read_spec.state, allowed)[: len(native)]
    why = disagreement(read_spec, arguments, run, lambda _: readings, allowed)
    if why:
        raise SpecError(why)
    # Where rounding leaves open what is chosen the bound is that of torch's choice.
    decided = decide_by(native, readings, operands_of(read_spec, arguments, read_spec.state)).readings
    rows = {
        i: _bound(ball, ball.contract.stores.name if read_spec.numpy else dtype_name(tensor.dtype))
        for i, (ball, tensor) in enumerate(zip(decided, native, strict=False))
        if isinstance(ball, Ball)
    }
    if not rows and has_residual(decided):
        raise SpecError(f"{read_spec.name} gives what is judged by its residual: no element has a bound by itself")
    if not rows:
        dtypes = ", ".join(dtype_name(y.dtype) for y in run.outputs) or "no tensor"
        raise SpecError(f"{read_spec.name} gives {dtypes}, need a floating tensor: nothing else has a bound")
    return rows


def run_without_draws(read_spec: Specification, arguments: CallArguments) -> SpecRun:
    """What torch computes of a spec; SpecError where an argument has no numbers, or a draw decides what is asked."""
    for position, tensor in enumerate(arguments.tensors):
        if why := without_numbers(tensor):
            raise SpecError(f"args[{position}] {why}")
    run = read_spec.run(arguments, read_spec.state)
    positions = frozenset() if read_spec.numpy else read_spec.drawn_outputs(arguments, read_spec.state)
    for i in positions.intersection(range(len(tensors_asked(run)))):
        text = f"{run.names[i]} depends on random numbers, and one call does not show how they are distributed"
        raise SpecError(f"{read_spec.name}: {text}; use `opassay.judge`, or hand the numbers in as an argument")
    return run


def tensors_asked(run: SpecRun) -> tuple[Tensor, ...]:
    """The tensors that a spec gives, or writes where it gives none."""
    return run.outputs or run.values


def _bound(ball: Ball, dtype: str) -> Bound:
    with np.errstate(all="ignore"):
        width = ball.half_widths(EVERY_FORMAT[dtype])
    return Bound(*(_own_tensor(array) for array in (ball.centre, ball.radii(), width)))


def _own_tensor(array: Any) -> Tensor:
    """A float64 tensor of an array; a copy, unless nobody else can see the array's memory."""
    own = array.dtype == np.float64 and array.base is None and array.flags.writeable and array.flags.c_contiguous
    return torch.from_numpy(array if own else np.array(array, dtype=np.float64))
