"""Where somebody's kernels are executed as PTX: in a process for good, or in the caller's for a while."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ...oracles.machine.compiling import (
    ARCHITECTURE,
    architecture,
    compiling_alone,
    prepare_to_compile,
    require_architecture,
)  # fmt: skip
from ..rehearsal.environment import is_rehearsed


def install_for_others() -> None:
    """Have this process execute Triton kernels that are launched in their own way, on tensors of the CPU, for good.

    Without Triton there is nothing to do, for kernels of CUDA C++ are executed in any process; nor where it rehearses.

    Raises:
        ValueError: the variable names another architecture than the executor knows.
    """
    if importlib.util.find_spec("triton") is None or is_rehearsed():
        return
    prepare_to_compile()
    from ...oracles.machine.ptx.triton_launches import TritonLaunches

    TritonLaunches(architecture()).install()


@contextmanager
def execute_launches(compiled: str) -> Iterator[None]:
    """Within it this process executes Triton kernels that are launched in their own way, on tensors of the CPU.

    Args:
        compiled: the architecture that they are compiled for, "sm_90" say; that of `opassay.cuda_kernel`, too.

    Raises:
        ValueError: it is no architecture that the machine knows. RuntimeError: Triton was imported as an interpreter.
    """
    before = os.environ.get(ARCHITECTURE)
    os.environ[ARCHITECTURE] = require_architecture("compiled", compiled)
    try:
        if importlib.util.find_spec("triton") is None or is_rehearsed():
            yield  # kernels of CUDA C++ are executed in any process
            return
        prepare_to_compile()
        from ...oracles.machine.ptx.triton_launches import TritonLaunches

        with compiling_alone():
            launches = TritonLaunches(compiled)
            launches.install()
            try:
                yield
            finally:
                launches.uninstall()
    finally:
        os.environ.pop(ARCHITECTURE)
        if before is not None:
            os.environ[ARCHITECTURE] = before
