"""Indices that rounding leaves open and that more is computed from: which of them a reading takes, and who asked.

A spec that gathers by its own top-k has one value for each choice that an evaluation may make. A reading takes one
choice: that of `picks`, or else the one that the centres give, and notes in `open` that there were others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch.utils import _pytree as pytree

from ...reference.choice import Choice, Decidable
from ...reference.ranked import Ranked


@dataclass
class Decisions:
    """What a reading takes for indices that are open.

    Attributes:
        picks: rows of indices (`Ranked.as_rows`), by the name of the operation that chooses.
        open: the choices with several possible indices that more was computed from, in the order of the operations.
        still: whether a floating number that is drawn is read as the largest one, and not as any, so that what is
            computed from it has the errors of rounding alone.
        present: what this reading has decided; in another one, of wider or narrower balls, that is decided anew.
    """

    picks: Mapping[str, Any] = field(default_factory=dict)
    open: dict[str, Decidable] = field(default_factory=dict)
    still: bool = False
    present: dict[str, Any] = field(default_factory=dict)

    def apply_to(self, name: str, result: Any) -> Any:
        """The result of an operation that chooses, with the elements at its indices of `picks`.

        Args:
            name: of the operation. result: what its rule gives.
        """
        leaves, structure = pytree.tree_flatten(result)
        choice = next((leaf for leaf in leaves if isinstance(leaf, Choice)), None)
        ranked = None if choice is None else choice.source
        if choice is None or not isinstance(ranked, Decidable) or ranked.name:
            return result
        ranked.name = name
        if not isinstance(ranked, Ranked):
            return result
        if not ranked.is_ordered:  # Then values stand in the order of the indices, whatever that is.
            self._of(ranked)
        if name not in self.picks:
            return result
        # An operation may be read again, of operands before they are rounded: that decides nothing.
        indices = self._of(ranked)
        values = ranked.elements(indices)
        if choice is not ranked:
            values = np.reshape(values, choice.shape)
        return pytree.tree_unflatten([leaf if leaf is choice else values for leaf in leaves], structure)

    def numbers(self, choice: Choice) -> Any:
        """The integers that a computation from a choice with a name goes on with."""
        source = choice.source
        assert isinstance(source, Decidable)
        numbers = self._of(source)
        return numbers if choice.places is None else numbers.reshape(-1)[choice.places]

    def _of(self, source: Decidable) -> Any:
        if source.name not in self.present:
            self.present[source.name] = self._decide(source)
        return self.present[source.name]

    def _decide(self, source: Decidable) -> Any:
        likely = source.likely()
        if not (np.all(source.sure()) and source.is_ordered):
            self.open.setdefault(source.name, source)
        picks = self.picks.get(source.name)
        if picks is None or np.size(picks) != np.size(likely):
            return likely
        # What no evaluation may have chosen is judged where it is an output, and what follows by it as well.
        return source.of_table(np.where(source.can_take(picks)[:, None], picks, source.as_rows(likely)))
