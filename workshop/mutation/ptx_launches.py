"""A launcher that executes PTX, notes which cells execute which programs, and executes a mutant of one of them."""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from opassay.oracles.machine.memory import bytes_of
from opassay.oracles.machine.ptx.chunk import Chunk
from opassay.oracles.machine.ptx.executable import Kernel
from opassay.oracles.machine.ptx.executor import Executor
from opassay.oracles.machine.ptx.operands import Step
from opassay.oracles.verdicts.verdict import Cell

from .ptx_changes import PtxMutant, place_of, targets_of


class CountedSteps(list[list[Step]]):
    """The steps of every basic block; `executed` are the numbers of those that were asked for."""

    def __init__(self, steps: list[list[Step]]) -> None:
        super().__init__(steps)
        self.executed: set[int] = set()

    def __getitem__(self, number: Any) -> Any:
        self.executed.add(number)
        return super().__getitem__(number)


@dataclass
class Program:
    """A program that was executed.

    Attributes:
        text, kernel: as it was compiled, and ready. steps: of the kernel. cells: those that execute it.
    """

    text: str
    kernel: Kernel
    steps: CountedSteps
    cells: list[Cell] = field(default_factory=list)


class MutableExecutor(Executor):
    """Executes programs as they are, but for one that may have a mutant.

    Attributes:
        programs: that were executed, by the digest of their text. cell: that is judged now.
        differs: whether a launch of the mutant has left other bits than the program as it is.
        acts: whether the changed instruction has given other results than it gives as it is.
    """

    def __init__(self, architecture: str) -> None:
        super().__init__(architecture)
        self.programs: dict[str, Program] = {}
        self.cell: Cell | None = None
        self.differs = self.acts = False
        self._digests: dict[str, str] = {}
        self._mutant: tuple[str, Kernel] | None = None

    def program(self, binary: Any) -> Kernel:
        """The program; where it has a mutant, that of the mutant."""
        digest = self._digest(binary)
        if self._mutant is not None and self._mutant[0] == digest:
            return self._mutant[1]
        if digest not in self.programs:
            kernel = Kernel(binary.asm["ptx"])
            steps = kernel.steps = CountedSteps(kernel.steps)
            self.programs[digest] = Program(binary.asm["ptx"], kernel, steps)
        program = self.programs[digest]
        if self.cell is not None and self.cell not in program.cells:
            program.cells.append(self.cell)
        return program.kernel

    def _digest(self, binary: Any) -> str:
        if binary.hash not in self._digests:
            self._digests[binary.hash] = hashlib.sha256(binary.asm["ptx"].encode()).hexdigest()[:16]
        return self._digests[binary.hash]

    def execute(self, binary: Any, grid: tuple[int, ...], values: Mapping[str, object]) -> None:
        """Execute a launch; one of the mutant also as it was, for its bits, on the same operands."""
        if self._mutant is None or self._mutant[0] != self._digest(binary) or self.differs:
            super().execute(binary, grid, values)
            return
        storages = [bytes_of(value.untyped_storage()) for value in values.values() if isinstance(value, torch.Tensor)]
        before, fault = [each.copy() for each in storages], self._mutant
        self._mutant = None
        super().execute(binary, grid, values)
        self._mutant = fault
        expected = [each.copy() for each in storages]
        for storage, content in zip(storages, before, strict=True):
            storage[:] = content
        super().execute(binary, grid, values)
        self.differs = any((a != b).any() for a, b in zip(storages, expected, strict=True))

    @contextlib.contextmanager
    def plant(self, mutant: PtxMutant) -> Iterator[None]:
        """Within it the mutant is executed in the place of its program.

        Raises:
            Unsupported: it cannot be executed.
        """
        program = self.programs[mutant.program]
        kernel = Kernel(mutant.text_of(program.text), mutant.kernel)
        if mutant.new and kernel.entry.registers.keys() == program.kernel.entry.registers.keys():
            self._watch(mutant, program, kernel)
        self._mutant = mutant.program, kernel
        self.differs = False
        self.acts = not mutant.new
        try:
            yield
        finally:
            self._mutant = None

    def _watch(self, mutant: PtxMutant, program: Program, kernel: Kernel) -> None:
        """Have the changed instruction of a mutant's kernel note whether it acts."""
        number, place = place_of(program.kernel.entry, mutant.line)
        targets = targets_of(program.kernel.entry.blocks[number][place], program.kernel.entry)
        before, changed = list.__getitem__(program.steps, number)[place], kernel.steps[number][place]

        def step(chunk: Chunk) -> None:
            if not targets:
                self.acts = True
                changed(chunk)
                return
            old = [chunk.read(name) for name in targets if name in used]
            before(chunk)
            expected = [chunk.read(name) for name in targets]
            for name, value in zip(used, old, strict=True):
                chunk.write(name, value, None)
            changed(chunk)
            pairs = zip(expected, (chunk.read(name) for name in targets), strict=True)
            self.acts = self.acts or any(np.any(a != b) for a, b in pairs)

        sources = " ".join(map(str, program.kernel.entry.blocks[number][place].operands[1:]))
        used = [name for name in targets if re.search(rf"{re.escape(name)}\b", sources)]
        kernel.steps[number][place] = step
