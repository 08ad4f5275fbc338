"""The preparations of the processes of "triton" and "ptx": before a first question they begin to run kernels so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...oracles.machine.compiling import architecture, prepare_to_compile

if TYPE_CHECKING:
    from ...oracles.machine.interpreter import Machine
    from ...oracles.machine.ptx.executor import Executor


def install() -> Machine:
    """Have this process interpret the kernels of all ops, on tensors of the CPU, for good; return its interpreter."""
    from ...oracles.machine import interpreter  # not at the top: only this process becomes such a machine

    interpreter.prepare()
    machine = interpreter.Machine()
    _serve_by(machine)
    return machine


def install_executor() -> Executor:
    """Have this process execute the compiled kernels of all ops, on tensors of the CPU, for good; return its launcher.

    Raises:
        ValueError: the variable names another architecture than the executor knows.
    """
    prepare_to_compile()
    from ...oracles.machine.ptx.executor import Executor

    machine = Executor(architecture())
    _serve_by(machine)
    return machine


def _serve_by(machine: Machine | Executor) -> None:
    """Launch the kernels of all ops on a machine; they are imported after it is prepared, and not before."""
    from ...impl.gpu import launching
    from ...impl.operator.operator import Operator

    launching.put_on(machine)
    Operator.serve_by_cuda_kernels("CPU")
