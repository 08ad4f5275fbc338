"""Words of transforms without reverse mode: what each step means, by directions and by one gradient.

A vector-Jacobian product is the gradient of a pairing, and <z, vjp f (x; c)> = ∂/∂ε <c, f(x + ε z)>. So a vjp inside
another one is a direction, and only the last vjp of a word needs a gradient: a basis variable for every element of its
inputs. No word therefore needs a tape, however its steps are nested.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from . import jets
from .intervals import ONE, ZERO
from .jets import BASIS, Jet
from .reading import Second, second, total_of


def along(
    word: Sequence[str], function: Callable[..., Any], inputs: int, outputs: int, passive: int = 0
) -> Callable[..., tuple[Any, ...]]:
    """T(f) as a function of passive operands, inputs and directions.

    Args:
        word: "jvp" and "vjp" steps, innermost first. function: takes the passive operands and then the inputs.
        inputs, outputs, passive: how many of each there are.
    """

    def transformed(*operands: Any) -> tuple[Any, ...]:
        arguments = [x if isinstance(x, Second) else second(x) for x in operands]

        def bound(*moved: Any) -> tuple[Any, ...]:
            result = function(*arguments[:passive], *moved)
            return tuple(result) if isinstance(result, (tuple, list)) else (result,)

        return _values(bound, tuple(word), (inputs, outputs), arguments[passive:], 1)

    return transformed


def _counts(word: Sequence[str], counts: tuple[int, int]) -> tuple[int, int]:
    """How many inputs and outputs the function has that a word makes."""
    inputs, outputs = counts
    for step in word:
        inputs, outputs = (2 * inputs, outputs) if step == "jvp" else (inputs + outputs, inputs)
    return inputs, outputs


def _values(
    function: Callable[..., Any], word: Sequence[str], counts: tuple[int, int], args: Sequence[Any], key: int
) -> tuple[Any, ...]:
    """The outputs of T(f).

    Args:
        function, word: f and T. counts: of the inputs and outputs of f. args: the arguments of T(f).
        key: of the next single variable that is free.
    """
    if not word:
        return tuple(function(*args))
    *inner, step = word
    count, _ = _counts(inner, counts)
    primals, directions = args[:count], args[count:]
    if step == "jvp":
        moved = [_varied(x, t, key) for x, t in zip(primals, directions, strict=True)]
        outputs = _values(function, inner, counts, moved, 2 * key)
        return tuple(y.each(lambda x: jets.coefficient(x, key)) for y in outputs)
    starts = [sum(x.size for x in primals[:i]) for i in range(count)]
    seeded = [_seeded(x, first) for x, first in zip(primals, starts, strict=True)]
    total = _pairing(function, inner, counts, seeded, (directions, key))
    return tuple(_gradient(total, x, first) for x, first in zip(primals, starts, strict=True))


def _pairing(
    function: Callable[..., Any], word: Sequence[str], counts: tuple[int, int], args: Sequence[Any],
    by: tuple[Sequence[Any], int],
) -> Jet:  # fmt: skip
    """Σ <z_i, T(f)_i>, which takes directions alone.

    Args:
        function, word, counts, args: as for `_values`. by: z, one for each output, and the key that is free.
    """
    weights, key = by
    if not word:
        products = [(z * y).values.ravel().tolist() for z, y in zip(weights, function(*args), strict=True)]
        return total_of([x for row in products for x in row])
    *inner, step = word
    count, _ = _counts(inner, counts)
    primals, rest = args[:count], args[count:]
    directions, left = (rest, weights) if step == "jvp" else (weights, rest)
    moved = [_varied(x, t, key) for x, t in zip(primals, directions, strict=True)]
    return jets.coefficient(_pairing(function, inner, counts, moved, (left, 2 * key)), key)


def _varied(x: Any, direction: Any, key: int) -> Any:
    return Second(np.frompyfunc(lambda a, t: jets.varied(a, t, key), 2, 1)(x.values, direction.values))


def _seeded(x: Any, first: int) -> Any:
    """Every element with a basis variable of its own."""
    seeds = np.frompyfunc(lambda a, number: a + Jet(ZERO, {(number + 1) * BASIS: ONE}), 2, 1)
    return Second(seeds(x.values, _numbers(x, first)))


def _numbers(x: Any, first: int) -> Any:
    return np.arange(first, first + x.size).reshape(x.shape)


def _gradient(total: Jet, like: Any, first: int) -> Any:
    return Second(np.frompyfunc(lambda number: jets.slope_along(total, number), 1, 1)(_numbers(like, first)))
