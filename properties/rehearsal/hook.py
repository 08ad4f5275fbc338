"""Has the rehearsal begin where a process imports torch, and no sooner.

What is hard here: torch asks for its hooks of CUDA while it is imported, so the device must be loaded before, beside
torch's own libraries. The functions of `torch.cuda`, Triton's launches and what draws samples exist only after their
modules were executed. And a process that never imports torch, such as the one of the command line, must not do so
because of this.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import importlib.abc
import importlib.machinery
import os
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from .building import torch_folder

#: By the name of a module, what is done after it was executed.
_AFTER = {
    "triton": ".launches.install",
    "torch._inductor.runtime.benchmarking": ".triton_driver.take_no_times_of_inductor",
    "torch.utils.cpp_extension": ".extensions.install",
    "cutlass.base_dsl.compiler": ".cute.keep_ptx",
    "cutlass.base_dsl.jit_executor": ".cute.raise_from_calls",
    "cuda.bindings.runtime": ".cute.count_devices",
    "tvm_ffi.error": ".cute.raise_from_tvm",
}
#: torch's libraries, in the order in which the module torch loads them.
_LIBRARIES = ("libtorch_global_deps.so", "libc10.so", "libtorch_cpu.so", "libtorch.so")


class _Loader(importlib.abc.Loader):
    """Another loader, and what is done before and after it has executed a module."""

    def __init__(self, loader: Any, before: Callable[[], None], after: Callable[[], None]) -> None:
        self._loader, self._before, self._after = loader, before, after

    def __getattr__(self, name: str) -> Any:  # `inspect` and others ask the loader for sources
        return getattr(self._loader, name)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        module: ModuleType | None = self._loader.create_module(spec)
        return module

    def exec_module(self, module: ModuleType) -> None:
        self._before()
        self._loader.exec_module(module)
        self._after()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds the modules of which something is done before and after."""

    def __init__(self, steps: dict[str, tuple[Callable[[], None], Callable[[], None]]]) -> None:
        self._steps = steps

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._steps:
            return None
        before, after = self._steps[name]  # whoever asks need not go on to execute it
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, before, after)
        return spec


def _nothing() -> None:
    """What is done before a module that needs nothing before it."""


def _call(function: str, *operands: str) -> None:
    """Call a function of a module here, which is imported."""
    module, _, name = function.rpartition(".")
    getattr(importlib.import_module(module, __package__), name)(*operands)


#: Has the driver served once host code brings it a kernel: what executes kernels imports torch, which may not be done.
_SERVE = ctypes.CFUNCTYPE(None)(functools.partial(_call, ".driver.install"))


def install(library: str) -> None:
    """Rehearse in this process; torch must not have been imported.

    Args:
        library: of `building.build`.
    """
    if "torch" in sys.modules:
        raise RuntimeError("rehearsal: got a process that has imported torch, need one that has not")
    # Host code that CuTe's compiler makes finds CUDA's runtime there. What QuACK has kept for a GPU is machine code.
    os.environ |= {"CUTE_DSL_LIBS": library, "QUACK_CACHE_ENABLED": "0"}

    def load() -> None:
        for name in _LIBRARIES:
            ctypes.CDLL(str(torch_folder() / "lib" / name), mode=ctypes.RTLD_GLOBAL)
        ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL).rehearsal_start_serving(_SERVE)

    steps = {"torch": (load, lambda: _call(".torch_cuda.install", library))}
    steps |= {name: (_nothing, functools.partial(_call, function)) for name, function in _AFTER.items()}
    engine = __package__.replace("rehearsal", "engine.cells")
    steps[engine] = (_nothing, functools.partial(_call, ".samples.install"))
    sys.meta_path.insert(0, _Finder(steps))
