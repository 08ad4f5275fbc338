"""The preparation of the process of `interpreted`: once, before its first question, it begins to interpret kernels."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...oracles.machine.interpreter import Machine


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
