"""Balls evaluated by blocks of rows, for formulas in which rows do not depend on each other.

A reading of large arrays primitive by primitive moves every intermediate through memory many times. Where a formula
treats the rows along axis 0 alike and one by one (a softmax over the last axis, a chain of elementwise operations), it
is first recorded on arrays that have shapes alone, and then evaluated on so few rows at a time that all of their
intermediates stay in the cache. Every rule of the reading is elementwise or along an axis, so the balls are the same
as those of a whole reading, up to roundings of radii, which the slack of the radii covers. A formula that cannot be
recorded, because it branches by values or mixes rows, is evaluated as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from ....reference.algorithms import Algorithm, Inapplicable
from ....reference.array import ELEMENTWISE, Array, Operands, Params
from ..contract import Contract, contract
from .applications import is_plain
from .ball import Ball, ball, centre_of
from .choices import ways_of

#: The number of elements of the largest input from which on blocks are faster; and the number of elements of a block,
#: of which about ten intermediates fit a cache of a few megabytes. The memory of larger blocks goes back to the system
#: and has to be allocated anew each time.
LARGE, BLOCK = 2**17, 2**16


#: The name by which a comparison is recorded.
_COMPARE = "compare"
#: For shapes, any contract will do.
_ANY = contract("float32")


class MixedRowsError(Exception):
    """A formula that cannot be evaluated row by row."""


class Recorded(Array):
    """An array of which only the shape is known; `rows` says whether its axis 0 counts the rows."""

    __slots__ = ("is_condition", "plan", "rows", "size_", "value")

    def __init__(self, plan: PrimitiveOrder, shape: tuple[int, ...], rows: bool, value: Any = None) -> None:
        self.plan, self.size_, self.rows, self.value = plan, shape, rows, value
        self.is_condition = False

    @property
    def shape(self) -> tuple[int, ...]:
        return self.size_

    def lift(self, value: Any) -> Array:
        return Recorded(self.plan, np.shape(value), False, value)

    def __bool__(self) -> bool:
        raise MixedRowsError

    def comparable(self) -> Any:
        raise MixedRowsError

    def compare(self, ufunc: np.ufunc, other: Array) -> Any:
        out = self.plan.step(_COMPARE, (self, other), {"ufunc": ufunc})
        out.is_condition = True
        return out

    def apply(self, primitive: str, operands: Operands, params: Params) -> Array:
        return self.plan.step(primitive, operands, params)


class _Shared:
    """Steps that several ways of one choice have in common, and that are evaluated once for all of them.

    A way that computes the same step twice has two independent errors there, so it uses each earlier step at most once.
    """

    def __init__(self) -> None:
        self._results: dict[Any, list[Recorded]] = {}
        self._uses: dict[Any, int] = {}

    def begin_way(self) -> _Shared:
        """These steps for the next way, which has used none of them."""
        self._uses = {}
        return self

    def find_step(self, key: Any) -> Recorded | None:
        """The result of an earlier step with this key that the present way has not used; None if there is none."""
        number = self._uses[key] = self._uses.get(key, 0) + 1
        results = self._results.get(key, [])
        return results[number - 1] if number <= len(results) else None

    def keep(self, key: Any, result: Recorded) -> None:
        self._results.setdefault(key, []).append(result)

    def forget(self, steps: Sequence[tuple[Recorded, str, Operands, Params]]) -> None:
        """Forget all results but those of these steps, because the others were removed from the recording."""
        ids = {id(step[0]) for step in steps}
        self._results = {key: [x for x in results if id(x) in ids] for key, results in self._results.items()}


def _key_of(primitive: str, operands: Operands, params: Params) -> Any:
    """A key that is equal for two steps that compute the same; None for a step that cannot be compared."""
    keys: list[Any] = []
    for x in operands:
        if isinstance(x, Recorded) and x.value is None:
            keys.append(id(x))
        elif type(x) in (int, float):
            keys.append(repr(float(x)))
        else:
            return None
    return (primitive, *keys, repr(params)) if all(map(is_plain, params.values())) else None


def _picking(position: int) -> Algorithm:
    """The way that returns one of several results that are computed already."""
    return Algorithm(lambda *results: results[position], "")


class PrimitiveOrder:
    """The primitives of a formula in order, and the shapes of their results.

    Attributes:
        count: of rows. evaluated: whether the recording is run at values, so that no constant in it may depend on them.
    """

    evaluated = True

    def __init__(
        self, function: Callable[..., Any], shapes: Sequence[tuple[int, ...]], terms: Contract = _ANY,
        having: Sequence[bool] | None = None,
    ) -> None:  # fmt: skip
        """Records a formula.

        Args:
            function: of arrays. shapes: of them; those with the most axes have the rows along axis 0.
            terms: the contract, which says what algorithms count.
            having: for each array whether it has rows, where the number of axes does not decide that.

        Raises:
            MixedRowsError: the formula is not known to treat rows one by one.
        """
        most = max(map(len, shapes))
        if having is None:
            self.count = max(shape[0] for shape in shapes if len(shape) == most)
            having = [len(shape) == most and shape[0] == self.count for shape in shapes]
        else:
            self.count = next(shape[0] for shape, has in zip(shapes, having, strict=True) if has)
        self.terms = terms
        self.steps: list[tuple[Recorded, str, Operands, Params]] = []
        self.shared: _Shared | None = None
        self.inputs = [Recorded(self, shape, has) for shape, has in zip(shapes, having, strict=True)]
        outputs = function(*self.inputs)
        self.outputs = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
        if not all(isinstance(each, Recorded) and each.rows for each in self.outputs):
            raise MixedRowsError

    def step(self, primitive: str, operands: Operands, params: Params) -> Recorded:
        if primitive == "among":
            return self._among(operands, params)
        arrays = [x for x in (*operands, params.get("condition")) if isinstance(x, Recorded)]
        shape = self.shape_of(primitive, operands, params)
        rows = any(x.rows for x in arrays)
        if rows and not self.by_rows(primitive, operands, shape, params):
            raise MixedRowsError
        key = _key_of(primitive, operands, params) if self.shared is not None else None
        if self.shared is not None and key is not None:
            earlier = self.shared.find_step(key)
            if earlier is not None:
                return earlier
        out = Recorded(self, shape, rows)
        self.steps.append((out, primitive, operands, params))
        if self.shared is not None and key is not None:
            self.shared.keep(key, out)
        return out

    def _among(self, operands: Operands, params: Params) -> Recorded:
        """A choice of algorithms: the steps of all of them, those that several have in common once, and then a hull."""
        outer, self.shared = self.shared, _Shared()
        results: list[Any] = []
        for way in ways_of(params["ways"], self.terms):
            before, self.shared = len(self.steps), self.shared.begin_way()
            try:
                results.append(way.formula(*operands))
            except Inapplicable:
                del self.steps[before:]
                self.shared.forget(self.steps)
        self.shared = outer
        if not all(isinstance(each, Recorded) and each.rows == results[0].rows for each in results):
            raise MixedRowsError
        out = Recorded(self, results[0].shape, results[0].rows)
        ways = [_picking(i) for i in range(len(results))]
        self.steps.append((out, "among", tuple(results), {**params, "ways": ways}))
        return out

    def shape_of(self, primitive: str, operands: Operands, params: Params) -> tuple[int, ...]:
        """The shape of the result of a primitive."""
        return _shape_after(primitive, [np.shape(x) for x in operands], params)

    def by_rows(self, primitive: str, operands: Operands, shape: tuple[int, ...], params: Params) -> bool:
        """Whether every row of the result is made of the same row of the operands."""
        plain = (params[name] for name in params if name not in ("condition", "ufunc"))
        if shape[:1] != (self.count,) or not all(map(is_plain, plain)):
            return False
        elementwise = primitive in ELEMENTWISE or primitive in (_COMPARE, "broadcast")
        for x in (*operands, params.get("condition", 0.0)):
            if isinstance(x, Recorded) and x.rows:
                if elementwise and x.ndim != len(shape):
                    return False
            elif np.ndim(x) >= len(shape) and np.shape(x)[0] != 1:
                return False
        return elementwise or _KEEPS_ROWS[primitive](shape, params)

    def run(self, values: Sequence[Any], terms: Contract) -> tuple[Ball, ...]:
        """The balls of the outputs, at float64 inputs."""
        parts = _Parts(self.outputs, terms)
        for rows, blocks in self.blocks(values, terms):
            parts.put(rows, blocks)
        return parts.balls()

    def blocks(self, values: Sequence[Any], terms: Contract) -> Iterator[tuple[slice, list[Ball]]]:
        """The balls of the outputs for some rows after others, and which these are."""
        balls: dict[int, Any] = {}
        for source, value in zip(self.inputs, values, strict=True):
            if not source.rows:
                balls[id(source)] = ball(value, terms)
        for out, primitive, operands, params in self.steps:
            if not out.rows:
                balls[id(out)] = self._evaluate(primitive, operands, params, balls, terms)
        unneeded = self._unneeded_after()
        step = max(BLOCK // max(max(x.size for x in self.inputs) // self.count, 1), 1)
        for start in range(0, self.count, step):
            end = min(start + step, self.count)
            block = dict(balls)
            for source, value in zip(self.inputs, values, strict=True):
                if source.rows:
                    block[id(source)] = ball(value[start:end], terms)
            for (out, primitive, operands, params), absent in zip(self.steps, unneeded, strict=True):
                if out.rows:
                    if "shape" in params:
                        params = {**params, "shape": (end - start, *params["shape"][1:])}
                    block[id(out)] = self._evaluate(primitive, operands, params, block, terms)
                    for key in absent:
                        del block[key]
            yield slice(start, end), [block[id(each)] for each in self.outputs]

    def _unneeded_after(self) -> list[list[int]]:
        """For every step with rows, the results that no later step needs: the next step reuses their cached memory."""
        needed = {id(each) for each in self.outputs}
        unneeded: list[list[int]] = []
        for out, _, operands, params in reversed(self.steps):
            used = [x for x in (*operands, params.get("condition"), out) if isinstance(x, Recorded) and x.rows]
            unneeded.append([key for key in dict.fromkeys(map(id, used)) if key not in needed] if out.rows else [])
            needed.update(map(id, used))
        return unneeded[::-1]

    def _evaluate(
        self, primitive: str, operands: Operands, params: Params, balls: dict[int, Any], terms: Contract
    ) -> Any:
        """The result of one step, a ball or a condition.

        Args:
            primitive, operands, params: the step. balls: results of earlier steps, by the `id` of the recorded array.
            terms: the contract of constants.
        """
        arguments = tuple(balls.get(id(x), x.value) if isinstance(x, Recorded) else x for x in operands)
        holder = next((x for x in arguments if isinstance(x, Ball)), Ball(np.zeros(()), None, terms))
        if primitive == _COMPARE:
            left, right = (x if isinstance(x, Ball) else holder.lift(x) for x in arguments)
            return left.compare(params["ufunc"], right)
        condition = params.get("condition")
        if isinstance(condition, Recorded):
            params = {**params, "condition": balls[id(condition)]}
        return holder.apply(primitive, arguments, params)


class _Parts:
    """The outputs, put together from the balls of blocks."""

    def __init__(self, outputs: Sequence[Recorded], terms: Contract) -> None:
        self.terms = terms
        self.centres = [np.empty(each.shape, dtype=terms.centre_type) for each in outputs]
        self.radii: list[Any] = [None for _ in outputs]
        self.flags = [(False, True) for _ in outputs]
        self.stray: list[Any] = [None for _ in outputs]

    def put(self, rows: slice, blocks: Sequence[Ball]) -> None:
        for i, part in enumerate(blocks):
            self.centres[i][rows] = part.centre
            if part.radius is not None:
                if self.radii[i] is None:
                    self.radii[i] = np.zeros(self.centres[i].shape)
                self.radii[i][rows] = part.radius
            if part.stray is not None:
                if self.stray[i] is None:
                    self.stray[i] = np.zeros(self.centres[i].shape, dtype=bool)
                self.stray[i][rows] = part.stray
            special, nonnegative = self.flags[i]
            self.flags[i] = special or part.special, nonnegative and part.nonnegative

    def balls(self) -> tuple[Ball, ...]:
        each = zip(self.centres, self.radii, self.flags, strict=True)
        out = tuple(Ball(centre, radius, self.terms, *flags) for centre, radius, flags in each)
        for read, stray in zip(out, self.stray, strict=True):
            read.stray = stray
        return out


def _shape_after(primitive: str, shapes: Sequence[tuple[int, ...]], params: Params) -> tuple[int, ...]:
    """The shape of the result of a primitive; MixedRowsError for one that mixes rows."""
    if primitive in ELEMENTWISE or primitive == _COMPARE:
        return np.broadcast_shapes(*shapes, np.shape(params["condition"]) if "condition" in params else ())
    if primitive not in _KEEPS_ROWS:
        raise MixedRowsError
    if "shape" in params:
        return tuple(params["shape"])
    if primitive in ("store", "cast"):
        return shapes[0]
    if "axes" in params and primitive != "transpose":
        (shape,) = shapes
        return tuple(1 if i in params["axes"] else n for i, n in enumerate(shape))
    # For the other primitives their rule is applied to zeros that take no memory.
    views = (np.broadcast_to(np.float64(0.0), shape) for shape in shapes)
    return centre_of(primitive, params, _ANY, *views).shape  # type: ignore[no-any-return]


def _keeps_first(shape: tuple[int, ...], params: Params) -> bool:
    index = params["index"]
    return isinstance(index, tuple) and len(index) > 0 and isinstance(index[0], slice) and index[0] == slice(None)


#: Primitives beside the elementwise ones that may keep rows apart: whether they do, by the shape of their result.
_KEEPS_ROWS: dict[str, Callable[[tuple[int, ...], Params], bool]] = {
    "sum": lambda shape, params: 0 not in params["axes"],
    "max": lambda shape, params: 0 not in params["axes"],
    "prod": lambda shape, params: 0 not in params["axes"],
    "transpose": lambda shape, params: params["axes"][0] == 0,
    "reshape": lambda shape, params: True,
    "broadcast": lambda shape, params: True,
    "getitem": _keeps_first,
    "store": lambda shape, params: True,
    "cast": lambda shape, params: True,
}
