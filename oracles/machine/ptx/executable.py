"""A kernel, ready to be executed: its instructions as steps, each a function of the running threads."""

from __future__ import annotations

from collections.abc import Callable

from .accesses import copy, load, store
from .flow import barrier, branch, end
from .grammar import require_known
from .listing import Instruction, Listing, read_entry
from .moves import compute, move
from .operands import Step
from .warps import load_matrix, reduce, shuffle, store_matrix

_MAKERS: dict[str, Callable[[Instruction, Listing], Step]] = {
    "mov": move, "ld": load, "st": store, "cp": copy, "bra": branch, "ret": end, "exit": end, "bar": barrier,
    "shfl": shuffle, "redux": reduce, "ldmatrix": load_matrix, "stmatrix": store_matrix,
}  # fmt: skip


class Kernel:
    """An entry of PTX.

    Args:
        text: of a module.

    Attributes:
        entry: as it was read. steps: of every basic block.

    Raises:
        Unsupported: an instruction, a modifier or an operand that no meaning is built for, wherever in the text.
    """

    def __init__(self, text: str) -> None:
        self.entry = read_entry(text)
        self.steps = [[self._step(instruction) for instruction in block] for block in self.entry.blocks]

    def _step(self, instruction: Instruction) -> Step:
        require_known(instruction)
        return _MAKERS.get(instruction.name, compute)(instruction, self.entry)
