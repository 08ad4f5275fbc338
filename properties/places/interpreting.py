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
    from ...impl.gpu import launching  # imports no kernel; those must be imported after the line above
    from ...impl.operator.operator import Operator

    machine = interpreter.Machine()
    launching.put_on(machine)
    Operator.serve_by_cuda_kernels("CPU")
    return machine


def install_executor() -> Executor:
    """Have this process execute the compiled kernels of all ops, on tensors of the CPU, for good; return its launcher.

    Raises:
        ValueError: the variable names another architecture than the executor knows.
    """
    prepare_to_compile()
    from ...impl.gpu import launching  # as above
    from ...impl.operator.operator import Operator
    from ...oracles.machine.ptx.executor import Executor

    machine = Executor(architecture())
    launching.put_on(machine)
    Operator.serve_by_cuda_kernels("CPU")
    return machine
