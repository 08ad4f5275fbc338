"""The preparation of the process of subject "ptx": once, before its first question, it begins to execute PTX."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...oracles.machine.ptx.executor import Executor


def install() -> Executor:
    """Have this process execute the compiled kernels of all ops, on tensors of the CPU, for good; return its launcher.

    Raises:
        ValueError: the variable names another architecture than the executor knows.
    """
    from ...oracles.machine.compiling import architecture, prepare_to_compile

    prepare_to_compile()
    from ...impl.gpu import launching  # imports no kernel; those must be imported after the line above
    from ...impl.operator.operator import Operator
    from ...oracles.machine.ptx.executor import Executor

    machine = Executor(architecture())
    launching.put_on(machine)
    Operator.serve_by_cuda_kernels("CPU")
    return machine


def install_for_others() -> None:
    """Have this process execute Triton kernels that are launched in their own way, on tensors of the CPU, for good.

    Where Triton is not installed there is nothing to do: kernels of CUDA C++ are executed in any process.

    Raises:
        ValueError: as `install`.
    """
    from ...oracles.machine.compiling import architecture, prepare_to_compile

    if importlib.util.find_spec("triton") is None:
        return
    prepare_to_compile()
    from ...oracles.machine.ptx.triton_launches import TritonLaunches

    TritonLaunches(architecture()).install()
