"""The bytes that kernels move, as an interpreter books them. For a process that interprets kernels, and for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opassay.impl.gpu import launching
from opassay.impl.operator.operator import Operator
from opassay.oracles.machine.interpreter import Machine

from .classes import ShapeClass
from .recorder import Recorder
from .recording import Pass, passes
from .source import Source

#: Numbers of the arguments come from this; which ones they are decides no address but those of classes.
SEED = 20_13


class Booking:
    """A launcher that interprets and takes down, by a machine and a recorder.

    Attributes:
        recorder: what was launched. moved: bytes of each launch, in order.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.recorder = Recorder()
        self.moved: list[int] = []

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        """An empty tensor of the machine, taken down by the recorder."""
        return self.recorder.record_tensor(self._machine.empty(shape, dtype, device))

    def launch(
        self,
        kernel: Any,
        grid: tuple[int, ...],
        operands: tuple[object, ...],
        constants: Mapping[str, object],
        warps: int,
    ) -> None:
        """Interpret a launch and take it down.

        Args:
            kernel, grid, operands, constants, warps: as `impl.gpu.launching.Launcher` has them.
        """
        before = self._machine.book.bytes
        self._machine.launch(kernel, grid, operands, constants, warps)
        self.recorder.launch(kernel, grid, operands, constants, warps)
        self.moved.append(self._machine.book.bytes - before)


class Interpreter:
    """Runs shape classes at few rows: `tables.Booked`. Tensors of the CPU go to the CUDA kernels from then on."""

    def __init__(self) -> None:
        self._machine = Machine()
        Operator.serve_by_cuda_kernels("CPU")

    def __call__(self, kind: ShapeClass, dtype: torch.dtype) -> tuple[tuple[Pass, int], ...]:
        booking = Booking(self._machine)
        source = Source(dtype, torch.device("cpu"), torch.Generator().manual_seed(SEED))
        with launching.on(booking):
            directions = passes(kind, source, booking.recorder, kind.few)
        return tuple(
            (pass_, sum(booking.moved[pass_.first : pass_.first + len(pass_.launches)])) for pass_ in directions
        )
