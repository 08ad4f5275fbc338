"""Which formulas keep rows apart: whether each row of every result is made of that row of the operands alone.

What this is for: of a large output, some rows are read in place of all of them. That says the same of those rows only
if no other row has a say in them, and if the formula is the same one for few rows as for many: a spec may read a length
off its arguments, and compute with it. Both are looked at on the primitives that a formula consists of.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ...oracles.bound.contract import Contract
from ...oracles.bound.rounding.rows import PrimitiveOrder, Recorded
from ...reference.array import Operands, Params
from ...reference.windows import positions_of

#: A step without its shapes: what two readings of one formula have in common.
_Step = tuple[Any, ...]


class RowPrimitives(PrimitiveOrder):
    """The primitives of a formula that keeps rows apart; products with what has no rows are among them.

    Args: see `PrimitiveOrder`.
    """

    evaluated = False

    def shape_of(self, primitive: str, operands: Operands, params: Params) -> tuple[int, ...]:
        shapes = [np.shape(x) for x in operands]
        if primitive == "matmul":
            one, other = shapes
            return (*np.broadcast_shapes(one[:-2], other[:-2]), one[-2], other[-1])
        if primitive == "correlate":
            x, w = shapes
            positions = positions_of(x[3:], w[3:], params["stride"], params["dilation"])
            return (x[0], x[1], w[1], *positions)
        if primitive == "windows":
            (x,), sizes = shapes, params["sizes"]
            lead = len(x) - len(sizes)
            positions = positions_of(x[lead:], sizes, params["stride"], params["dilation"])
            return (*x[:lead], *positions, *sizes)
        if primitive == "concatenate":
            lengths = [shape[params["axis"]] for shape in shapes]
            return tuple(sum(lengths) if i == params["axis"] else n for i, n in enumerate(shapes[0]))
        if primitive == "scatter":
            return tuple(params["shape"])
        if primitive in ("cumsum", "cumprod", "sort", "fourier"):
            return shapes[0]
        return super().shape_of(primitive, operands, params)

    def by_rows(self, primitive: str, operands: Operands, shape: tuple[int, ...], params: Params) -> bool:
        keeps = _KEEPS.get(primitive)
        if keeps is None:
            return super().by_rows(primitive, operands, shape, params)
        return shape[:1] == (self.count,) and keeps(operands, params)

    @property
    def steps_alone(self) -> list[_Step]:
        """The steps, with operands by their numbers and without the number of rows."""
        numbers = {id(x): i for i, x in enumerate((*self.inputs, *(step[0] for step in self.steps)))}
        steps: list[_Step] = []
        for out, primitive, operands, params in self.steps:
            parameters = {name: value for name, value in params.items() if name != "ways"}
            if out.rows and "shape" in parameters:
                parameters["shape"] = tuple(parameters["shape"])[1:]
            each = [_comparable(self._one_row(x) if out.rows else x, numbers) for x in operands]
            extents = out.shape[1:] if out.rows else out.shape
            steps.append(
                (primitive, *each, out.rows, extents, *((n, _comparable(v, numbers)) for n, v in parameters.items()))
            )
        return [*steps, tuple(numbers[id(each)] for each in self.outputs)]

    def _one_row(self, x: Any) -> Any:
        """Of a constant that is the same in every row, one row."""
        repeated = isinstance(x, np.ndarray) and x.ndim > 0 and len(x) == self.count and bool((x == x[:1]).all())
        return x[:1] if repeated else x


def keeps_rows(
    at: Callable[[int], tuple[Callable[..., Any], Sequence[tuple[int, ...]]]], having: Sequence[bool],
    counts: tuple[int, int], terms: Contract,
) -> bool:  # fmt: skip
    """Whether a formula keeps rows apart, and is the same for so many rows as for so many others.

    Args:
        at: (number of rows) -> the formula for arrays with that many rows, and the shapes of those.
        having: which of the arrays have rows, along axis 0. counts: two numbers of rows. terms: the contract.
    """
    programs = []
    for count in counts:
        try:
            formula, shapes = at(count)
            programs.append(RowPrimitives(formula, shapes, terms, having).steps_alone)
        except Exception:
            return False  # It mixes rows, branches by values, or cannot be read with so many rows.
    return programs[0] == programs[1]


def _comparable(value: Any, numbers: dict[int, int]) -> Any:
    """What can be compared of an operand or a parameter: of an array its bytes."""
    if isinstance(value, Recorded):
        return ("step", numbers[id(value)]) if id(value) in numbers else ("constant", _comparable(value.value, numbers))
    if isinstance(value, np.ndarray):
        return (value.dtype.str, value.shape, value.tobytes())
    return (type(value).__name__, repr(value))


def _only_first(operands: Operands, params: Params) -> bool:
    """Of a product: rows of the first operand, which stay along axis 0, with a second one that has none."""
    first, second = operands
    longest = np.ndim(second) <= np.ndim(first)
    return isinstance(first, Recorded) and first.rows and longest and not _has_rows(second)


def _has_rows(x: Any) -> bool:
    return isinstance(x, Recorded) and x.rows


def _matrices(operands: Operands, params: Params) -> bool:
    # A batch of matrices that has an axis 0 of its own would meet the rows there; one that has the rows there does not.
    batches = np.ndim(operands[0]) > 2 and np.ndim(operands[1]) == np.ndim(operands[0])
    if batches and all(map(_has_rows, operands)):
        return True
    return _only_first(operands, params) and not (batches and np.shape(operands[1])[0] != 1)


def _keeps_padding(operands: Operands, params: Params) -> bool:
    """Zeros around rows, by an index that has nothing to say of axis 0."""
    index = params["index"] if isinstance(params["index"], tuple) else (params["index"],)
    plain = all(isinstance(i, (slice, type(Ellipsis))) for i in index)
    if not plain or params.get("in_place") or not _has_rows(operands[0]):
        return False
    free = index[0] is Ellipsis and len(index) - 1 < np.ndim(operands[0])
    return free or index[0] == slice(None)


def _beside(operands: Operands, params: Params) -> bool:
    """Arrays put side by side, of which one without rows is the same all along axis 0."""
    if params["axis"] == 0:
        return False
    others = [x for x in operands if not _has_rows(x)]
    return all(isinstance(x, np.ndarray) and bool((x == x[:1]).all()) for x in others)


def _not_first(operands: Operands, params: Params) -> bool:
    return _has_rows(operands[0]) and params["axis"] != 0


#: What keeps rows apart besides what is evaluated by blocks of rows.
_KEEPS: dict[str, Callable[[Operands, Params], bool]] = {
    "matmul": _matrices,
    "correlate": _only_first,
    "scatter": _keeps_padding,
    "getitem": _keeps_padding,
    "concatenate": _beside,
    "cumsum": _not_first,
    "cumprod": _not_first,
    "sort": _not_first,
    "fourier": lambda operands, params: _has_rows(operands[0]) and 0 not in params["axes"],
    "windows": lambda operands, params: _has_rows(operands[0]) and np.ndim(operands[0]) > len(params["sizes"]),
}
