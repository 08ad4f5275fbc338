"""Steps that a text repeats, and the states that stand between two of them.

What this is for. A text of twenty rounds has one step twenty times: the same primitives of the same shapes. Between two
of them there are few numbers, which the next step starts from. `affine.py` takes each for a number that an evaluation
has, and what a kernel does within a step for its own affair.

What is hard here. Nothing marks where a step begins: any place in the period is one, and that with the fewest states is
taken, the first of equals. A loop that may be evaluated as a scan has no states at all (`recurrences.py`): a state that
reaches the next one by nothing but products and sums with others is none. And a step that comes twice may be one of two
arguments, as the norms of queries and of keys are: it counts where the second begins with what the first gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.array import ELEMENTWISE, STRUCTURAL
from .applications import Application
from .ball import CHAINED

#: Times that a step comes at least; results that stand between two steps, and primitives of a text, at most.
_TIMES, _STATES, _PRIMITIVES = 2, 2, 4096
#: Primitives that mix no elements. A step has another one, so that it is no chain of functions of single elements.
_APART = ELEMENTWISE | STRUCTURAL | {"store", "cast"}


def find_states(steps: Sequence[Application]) -> dict[int, tuple[int, ...]]:
    """The numbers of the results that stand between two repetitions, by the primitive before which they do."""
    run = _find_repetition(steps)
    if run is None:
        return {}
    start, end, period = run
    alive = _results_alive(steps)
    most, phase = min(
        (max(len(alive[at]) for at in range(start + k + period, end + 1, period)), k) for k in range(period)
    )
    if most > _STATES:
        return {}
    places = list(range(start + phase + period, end + 1, period))
    states: dict[int, tuple[int, ...]] = {}
    first = {x for step in steps[places[0] : places[0] + period] for x in step.operands}
    if end - start < 3 * period and not first.intersection(alive[places[0]]):
        return {}
    for at, following in zip(places, [*places[1:], len(steps)], strict=True):
        names, later = alive[at], alive[following] or (steps[-1].out,)
        if names and not any(_goes_on(name, steps[at:following], later) for name in names):
            states[at] = names
    return states


def _find_repetition(steps: Sequence[Application]) -> tuple[int, int, int] | None:
    """Where the longest repetition begins and ends, and its period; None where no step is repeated."""
    if not 0 < len(steps) <= _PRIMITIVES:
        return None
    numbers: dict[Any, int] = {}
    codes = np.array([numbers.setdefault(step.kind, len(numbers)) for step in steps])
    longest: tuple[int, int, int] | None = None
    for period in range(1, len(codes) // _TIMES + 1):
        start, length = _longest_run(codes[:-period] == codes[period:])
        length += period
        if length < _TIMES * period or all(each.primitive in _APART for each in steps[start : start + period]):
            continue
        if longest is None or length > longest[1] - longest[0]:
            longest = start, start + length, period
    return longest


def _longest_run(truth: Any) -> tuple[int, int]:
    """Where the longest run of true values begins, and how long it is."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], truth, [0]])))
    starts, lengths = edges[::2], edges[1::2] - edges[::2]
    if not len(starts):
        return 0, 0
    best = int(np.argmax(lengths))
    return int(starts[best]), int(lengths[best])


def _results_alive(steps: Sequence[Application]) -> list[tuple[int, ...]]:
    """Of each place between primitives, the results with errors that were computed before and are read after it."""
    built = {step.out: at for at, step in reversed(list(enumerate(steps)))}
    exact = {step.out for step in steps if step.exact}
    alive: list[tuple[int, ...]] = [()]
    reading: set[int] = set()
    for at in range(len(steps) - 1, -1, -1):
        reading |= {x for x in steps[at].operands if x is not None and x not in exact}
        reading -= {x for x in reading if built.get(x, -1) >= at}
        alive.append(tuple(sorted(reading)))
    return alive[::-1]


def _goes_on(name: int, steps: Sequence[Application], following: Sequence[int]) -> bool:
    """Whether a later state is the sum of products that a scan has of this one, with nothing else computed from it."""
    terms, others = {name}, set[int]()
    for step in steps:
        read = [x for x in step.operands if x is not None]
        if step.out in read or not any(x in terms or x in others for x in read):
            continue
        alone = sum(x in terms for x in read) == 1 and not any(x in others for x in read)
        (terms if alone and step.primitive in CHAINED else others).add(step.out)
    return any(x in terms and x != name for x in following)
