"""The reviewed table of equivalent mutants: changes of the text that no result, error or promise of an op can show.

A line of `equivalent_changes/FAMILY.json` names a file, a function, the text there, what may stand in its place, and
one sentence on why nobody could tell. A line that fits no mutant of the present text is stale, and one that fits a
mutant which some question refuses is wrong.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from .mutants import Mutant

TABLE = Path(__file__).with_name("equivalent_changes")


@dataclass(frozen=True)
class Equivalent:
    """Changes of one text of one function, and why they change nothing.

    Attributes:
        file, function, old: as of the mutants. new: each of the texts that may stand in its place.
        within: the beginning of the statement around them, where the function has that text in several.
        why: one sentence.
    """

    file: str
    function: str
    old: str
    new: tuple[str, ...]
    why: str
    within: str = ""

    @property
    def in_graph(self) -> bool:
        """Whether `old` is an operation of torch: such a mutant is found where ops run, and not in a text alone."""
        return re.fullmatch(r"aten\.\w+\.\w+", self.old) is not None

    def fits(self, mutant: Mutant) -> bool:
        """Whether a mutant is one of these changes."""
        place = (mutant.file, mutant.function, mutant.old) == (self.file, self.function, self.old)
        return place and mutant.new in self.new and mutant.statement.startswith(self.within)


def read_equivalents(path: Path = TABLE) -> list[Equivalent]:
    """The lines of the table.

    Args:
        path: of the folder, which has a file for each family of ops.

    Raises:
        ValueError: a line lacks a field, has one that is unknown, or gives no reason.
    """
    return [one for file in sorted(path.glob("*.json")) for one in _lines_of(file)]


def _lines_of(path: Path) -> Iterator[Equivalent]:
    for number, line in enumerate(json.loads(path.read_text(encoding="utf-8")), 1):
        try:
            one = Equivalent(**{**line, "new": tuple(line["new"])})
        except (TypeError, KeyError) as err:
            raise ValueError(f"{path.name}: line {number}: {err}") from None
        if not one.why.strip() or not one.new:
            raise ValueError(f"{path.name}: line {number}: got no reason or no change, need both")
        yield one


def why_equivalent(mutant: Mutant, table: Iterable[Equivalent]) -> str:
    """The reason that the table gives; empty where it does not have the mutant."""
    return next((one.why for one in table if one.fits(mutant)), "")


def stale(table: Iterable[Equivalent], mutants: Sequence[Mutant]) -> list[Equivalent]:
    """Lines of the table of which some change fits no mutant of the present text.

    A line about the graph is stale where the text has no such function any more.
    """
    by_place: dict[tuple[str, str, str], list[Mutant]] = {}
    for mutant in mutants:
        by_place.setdefault((mutant.file, mutant.function, mutant.old), []).append(mutant)

    functions = {(mutant.file, mutant.function) for mutant in mutants}

    def changes_present(one: Equivalent) -> set[str]:
        if one.in_graph:
            return set(one.new) if (one.file, one.function) in functions else set()
        near = by_place.get((one.file, one.function, one.old), [])
        return {mutant.new for mutant in near if one.fits(mutant)}

    return [one for one in table if changes_present(one) != set(one.new)]
