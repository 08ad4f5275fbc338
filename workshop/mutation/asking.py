"""Which questions a mutant is asked, in which order: those whose samples run its lines, the likely ones first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field

from opassay.oracles.verdicts.verdict import Cell
from opassay.properties.table import PROPERTIES, Property, Where

from .mutants import Mutant

#: (file below the folder of the production ops, line).
Line = tuple[str, int]


#: The order in which properties are tried: first what detects most mistakes, last what takes long; others come after.
PRECEDENCE = (
    "FWD", "VJP", "JVP", "DATA", "SPECIAL", "ERROR", "EMPTY", "VMAP", "COMM", "ORD2", "NEEDS", "FAKE", "LAYOUT", "MEM",
    "AUTOCAST", "PURE", "DUAL", "ADJ", "INV", "SAVE", "LAW", "WAYS", "ORD3", "NEST", "WORD", "AGREE", "SIZE", "DET",
    "CALLS", "COMP",
)  # fmt: skip


def in_order_of_precedence(rows: Iterable[Property]) -> tuple[str, ...]:
    """The codes of the properties that a mutant is asked: of all but those that change their process for good."""
    codes = [row.code for row in rows if row.where is not Where.PREPARED]
    return tuple(sorted(codes, key=lambda code: (*PRECEDENCE, code).index(code)))


ORDER = in_order_of_precedence(PROPERTIES.values())
#: Formats in the order in which they are asked: sums of float32 and of a half type go different ways in most ops.
FORMATS = ("float32", "bfloat16", "float64", "float16")
#: Compiling takes seconds, so it is asked in one format alone, and which lines run then is not traced: a compiler sees
#: that it is watched, and compiles otherwise.
COMPILED, COMPILED_FORMAT = "COMP", "float32"
#: Judged in a copy of the process before there is a mutant, too: several threads that once worked for a process are
#: not there in its copies, which would wait for them for ever; and a compiler keeps what it compiled.
APART = ("DET", COMPILED)
#: Asked of the lines that the op's other cells run in that format: the one calls other ops in between, whose lines say
#: nothing of this op, and the other is compiled.
BY_OTHERS = ("CALLS", COMPILED)


def cells_of(op: str, graph: bool = False) -> list[Cell]:
    """The cells of an op that mutants are asked: all that are judged in the process that has the mutant.

    Args:
        op: its name. graph: of mutants of the graph, which what is compiled has none of: it is traced without a mode.
    """
    return [
        Cell(op, code, dtype, "cpu", "opassay")
        for code in ORDER
        for dtype in FORMATS
        if code != COMPILED or (dtype == COMPILED_FORMAT and not graph)
    ]


@dataclass
class Reach:
    """Which lines the cells ran.

    Attributes:
        lines: of each cell that held, the lines of the production ops.
    """

    lines: dict[Cell, Set[Line]] = field(default_factory=dict)

    def note(self, cell: Cell, lines: Set[Line]) -> None:
        """A cell held, and ran these lines; for some properties, those that the op's other cells in its format ran."""
        if cell.property in BY_OTHERS:
            others = (
                others_lines
                for other, others_lines in self.lines.items()
                if (other.op, other.dtype) == (cell.op, cell.dtype)
            )
            lines = frozenset().union(*others)
        self.lines[cell] = lines

    def cells(self, mutant: Mutant) -> list[Cell]:
        """The cells that run a line of the mutant, in the order in which they are asked."""
        place = {(mutant.file, line) for line in range(mutant.line, mutant.last + 1)}
        cells = [cell for cell, lines in self.lines.items() if not place.isdisjoint(lines)]
        return sorted(cells, key=_rank(list(dict.fromkeys(cell.op for cell in cells))).__getitem__)


def _rank(ops: list[str]) -> Mapping[Cell, tuple[int, ...]]:
    """Ops take turns: one op's question in one format, then the next op's, so that none waits for all of another's.

    Of the questions after those of values the first op is asked all before another op is asked any: most ops that run a
    line run it for the same purpose, and where there are many of them the last questions would not be reached in time.
    """
    ranks = {}
    for op in ops:
        for cell in cells_of(op):
            place, form = ORDER.index(cell.property), FORMATS.index(cell.dtype)
            # Values in two formats come first, then every other question in one of them: a mistake that is there in no
            # value of these shows there more likely than in the values of another format.
            late, rare = place >= ORDER.index("VMAP"), form >= FORMATS.index("float64")
            stage = 4 if cell.property == COMPILED else 2 * rare + late
            ranks[cell] = (stage, late * (op != ops[0]), form, place, ops.index(op))
    return ranks
