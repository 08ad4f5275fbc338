"""The preparation of the process of subject "ptx": once, before its first question, it begins to execute PTX."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...oracles.machine.ptx.executor import Executor

#: The variable that names the architecture that kernels are compiled for; sm_90 by default.
ARCHITECTURE = "OPASSAY_PTX_ARCHITECTURE"


def install() -> Executor:
    """Have this process execute the compiled kernels of all ops, on tensors of the CPU, for good; return its launcher.

    Raises:
        ValueError: the variable names another architecture than the executor knows.
    """
    from ...oracles.machine.compiling import prepare_to_compile

    prepare_to_compile()
    from ...impl.gpu import launching  # imports no kernel; those must be imported after the line above
    from ...impl.operator.operator import Operator
    from ...oracles.machine.ptx import executor

    name = os.environ.get(ARCHITECTURE, "sm_90")
    if name not in executor.CAPABILITIES:
        raise ValueError(f"{ARCHITECTURE}={name}: need one of {', '.join(executor.CAPABILITIES)}")
    machine = executor.Executor(name)
    launching.put_on(machine)
    Operator.serve_by_cuda_kernels("CPU")
    return machine
