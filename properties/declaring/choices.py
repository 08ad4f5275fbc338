"""What a sample is drawn from, by name: so that a cell knows which of the declared values its samples had.

A strategy of Hypothesis does not tell what it chose from. `choose` is `st.sampled_from` with a name: while a draft is
drawn inside of `record_choices`, each choice is written down with all the values that it could have had.
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
    """The choices of one draft.

    Attributes:
        values: (name, value) of each. declared: by name, all values that it could have had, as text.
    """

    values: set[tuple[str, str]] = field(default_factory=set)
    declared: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def note(self, name: str, value: object, declared: tuple[str, ...]) -> None:
        """One more choice."""
        self.values.add((name, str(value)))
        earlier = self.declared.get(name, ())
        self.declared[name] = declared if earlier in ((), declared) else tuple(dict.fromkeys((*earlier, *declared)))


#: The records that are being written, innermost last.
_OPEN: list[ChoiceRecord] = []
#: Strategies by what they draw from: to make one, and to have Hypothesis check it, takes longer than to draw from it.
_STRATEGIES: dict[Hashable, st.SearchStrategy[object]] = {}


@contextlib.contextmanager
def record_choices() -> Iterator[ChoiceRecord]:
    """The record of the choices that are made inside."""
    record = ChoiceRecord()
    _OPEN.append(record)
    try:
        yield record
    finally:
        _OPEN.pop()


def settle(name: str, value: object, *, always: bool = False) -> None:
    """What was chosen under a name does not reach the op, which gets this value instead.

    Args:
        always: whether that is so in every draft, so that what was chosen from is not declared.
    """
    for record in _OPEN:
        record.values = {pair for pair in record.values if pair[0] != name} | {(name, str(value))}
        if always:
            record.declared[name] = (str(value),)


def choose(name: str, values: Sequence[Value]) -> st.SearchStrategy[Value]:
    """One of the values, each as often as it is listed; shrinks towards the first, which is to be the simplest.

    Args:
        name: of what is chosen, for the report: that of an argument, or of a part of the structure.
    """
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


def restrict(met: Collection[tuple[str, str]]) -> None:
    """Of what was declared only these values can be had: the others are of drafts that an op does not take."""
    for record in _OPEN:
        for name, values in record.declared.items():
            record.declared[name] = tuple(value for value in values if (name, value) in met)
