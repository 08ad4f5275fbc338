"""Named choices, so that a cell knows all values that a declaration may draw, and those that its samples had.

A strategy of Hypothesis does not say from which values it draws. `choose` is `st.sampled_from` with a name: while a
draft is drawn inside of `record_choices`, each choice is recorded, with all values that it could have had.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from hypothesis import strategies as st

Value = TypeVar("Value")


@dataclass
class ChoiceRecord:
    """The choices of one draft: (name, value) of each, and by name all values that it could have had, as text."""

    values: set[tuple[str, str]] = field(default_factory=set)
    declared: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def note(self, name: str, value: object, declared: tuple[str, ...]) -> None:
        """Record a choice, and the values among which it was."""
        self.values.add((name, str(value)))
        earlier = self.declared.get(name, ())
        self.declared[name] = declared if earlier in ((), declared) else tuple(dict.fromkeys((*earlier, *declared)))


#: The open records, innermost last.
_OPEN: list[ChoiceRecord] = []
#: Strategies by name and values, because to make one, and to have Hypothesis check it, takes longer than a draw.
_STRATEGIES: dict[Hashable, st.SearchStrategy[object]] = {}


@contextlib.contextmanager
def record_choices() -> Iterator[ChoiceRecord]:
    """The record of all choices inside the block."""
    record = ChoiceRecord()
    _OPEN.append(record)
    try:
        yield record
    finally:
        _OPEN.pop()


def settle(name: str, value: object, *, always: bool = False) -> None:
    """Record this value under a name instead of the chosen one, which does not reach the op.

    If that is so in every draft (`always`), the values to choose from are not declared either.
    """
    for record in _OPEN:
        record.values = {pair for pair in record.values if pair[0] != name} | {(name, str(value))}
        if always:
            record.declared[name] = (str(value),)


def choose(name: str, values: Sequence[Value]) -> st.SearchStrategy[Value]:
    """One of the values, each as often as it is listed; shrinks towards the first, which is to be the simplest."""
    # The text of the values is the key, because 1, 1.0 and True are equal to Python and not to an op.
    key = (name, repr(values))
    if key not in _STRATEGIES:
        declared = tuple(dict.fromkeys(map(str, values)))

        def note(value: Value) -> Value:
            for record in _OPEN:
                record.note(name, value, declared)
            return value

        _STRATEGIES[key] = st.sampled_from(values).map(note)
    return cast("st.SearchStrategy[Value]", _STRATEGIES[key])


def restrict(pairs: Collection[tuple[str, str]]) -> None:
    """Declare only these of the recorded values: drafts with other ones are never accepted."""
    for record in _OPEN:
        for name, values in record.declared.items():
            record.declared[name] = tuple(value for value in values if (name, value) in pairs)
