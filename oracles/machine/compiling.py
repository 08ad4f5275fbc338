"""Triton as a compiler alone: for an architecture, in a process without that GPU.

What is hard here: Triton asks its driver which GPU there is, so the driver is replaced. So a process that compiles here
must launch nothing meanwhile, and its Triton must not be set to interpret kernels.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from ...reference.distributions import require_part

#: The architectures that kernels are compiled for, by name.
CAPABILITIES = {"sm_80": 80, "sm_90": 90, "sm_100": 100}
#: Bytes of shared memory that a block may have (CUDA C++ Programming Guide, technical specifications).
SHARED_MEMORY = {"sm_80": 163 << 10, "sm_90": 227 << 10, "sm_100": 227 << 10}
#: The variable that names the one that kernels are compiled for where their PTX is executed; sm_90 by default.
ARCHITECTURE = "OPASSAY_PTX_ARCHITECTURE"


def architecture() -> str:
    """The architecture that the variable names.

    Raises:
        ValueError: it is none of `CAPABILITIES`. AbsentError: what executes kernels for it is not installed.
    """
    require_part("machine")
    return require_architecture(ARCHITECTURE, os.environ.get(ARCHITECTURE, "sm_90"))


def require_architecture(what: str, name: str) -> str:
    """The name of an architecture; `what` has it, in the message.

    Raises:
        ValueError: it is none of `CAPABILITIES`. AbsentError: what executes kernels for it is not installed.
    """
    require_part("machine")
    if name not in CAPABILITIES:
        raise ValueError(f"{what}={name}: need one of {', '.join(CAPABILITIES)}")
    return name


class _Driver:
    """What Triton asks of its driver to compile. The number of its device is the architecture's."""

    def __init__(self, capability: int) -> None:
        self._capability = capability

    def get_current_device(self) -> int:
        return self._capability

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", self._capability, 32)


def prepare_to_compile() -> None:
    """Have this process compile kernels; to be called before Triton is imported.

    Raises:
        RuntimeError: Triton has been imported as an interpreter.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") == "1":
        raise RuntimeError("compiling: got TRITON_INTERPRET=1 in a process that has to compile kernels, need it unset")
    os.environ.pop("TRITON_INTERPRET", None)
    # This variable makes Triton compile in another way than it does for a launch, whose code is to be judged.
    os.environ.pop("TRITON_ALWAYS_COMPILE", None)


def compile_for(capability: int) -> None:
    """Have Triton compile for an architecture from now on; `capability` is 90 for sm_90."""
    from triton.runtime import driver

    driver.set_active(_Driver(capability))


@contextmanager
def compiling_alone() -> Iterator[None]:
    """Within it Triton may be set to compile for any architecture; afterwards it has the driver that it had before."""
    from triton.runtime import driver

    before = driver._active
    try:
        yield
    finally:
        driver._active = before


def compiled(kernel: Any, grid: tuple[int, ...], operands: tuple[object, ...], constants: Any, warps: int) -> Any:
    """What Triton compiles for a launch, whose arguments these are (`impl.gpu.launching.Launcher`)."""
    return kernel.warmup(*operands, grid=grid, **constants, num_warps=warps, enable_fp_fusion=False)
