"""Extensions of torch in CUDA C++ (`load_inline`, `load`) on the rehearsal device, as their authors wrote them.

Their host code is compiled by g++ with torch's own headers, their kernels by NVRTC; what the host code launches is
executed as PTX on the memory of the device. A pointer stands for all the memory of the tensor that it points into.
"""

from __future__ import annotations

import ctypes
import hashlib
import importlib.machinery
import importlib.util
import os
import re
import shutil
import sys
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, cast

import torch
from torch.utils import cpp_extension

from ...oracles.machine.ptx.cuda_source import CudaKernel, cuda_kernel
from ...oracles.machine.ptx.host_code import split_source
from .building import build_library
from .launches import execute_raw

#: Options of nvcc that NVRTC has as well.
_OF_NVRTC = ("-D", "-U", "-I", "-std", "--std", "-use_fast_math", "--use_fast_math", "-fmad", "--fmad", "-ftz", "--ftz")
#: Options of host code that say what it is; others say how quick.
_OF_HOST = ("-D", "-U", "-I", "-include")
#: What torch's headers of everything have beside those of tensors.
_WHOLE = re.compile(r"\btorch::(nn|optim|jit|serialize|data|autograd)\b")
#: Types of torch that kernels have.
_TYPES = Path(__file__).with_name("device_types.h")


class SourceLauncher:
    """Launches the kernels of a source.

    Args:
        source: what NVRTC is given. options: of it.
    """

    def __init__(self, source: str, options: Sequence[str]) -> None:
        self._source, self._options = source, options
        self._kernels: dict[tuple[Any, ...], CudaKernel] = {}

    def __call__(
        self, name: str, types: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int,
        values: Sequence[bytes],
    ) -> None:  # fmt: skip
        """Launch a kernel.

        Args:
            name: an expression of C++. types: of its parameters, in words of C++. grid, block, shared: of the launch.
            values: the bytes of each argument.

        Raises:
            RuntimeError: it does not compile. ValueError: a size is none that a GPU launches.
            Violation: what a GPU traps on, or what the language leaves undefined.
        """
        key = (name, types, grid, block, shared)
        if key not in self._kernels:
            self._kernels[key] = self._compile(*key)
        execute_raw(self._kernels[key], values)

    def _compile(
        self, name: str, types: str, grid: tuple[int, ...], block: tuple[int, ...], shared: int
    ) -> CudaKernel:  # fmt: skip
        try:
            return cuda_kernel(self._source, name, grid, block, shared=shared, options=self._options)
        except RuntimeError as err:
            if "overloaded function" not in str(err):
                raise
        name = f"(void(*)({types})){name}"  # CUDA has functions of this name as well
        return cuda_kernel(self._source, name, grid, block, shared=shared, options=self._options)


def load_inline(
    name: str, cpp_sources: Any, cuda_sources: Any = None, *more: Any, functions: Any = None, **options: Any
) -> ModuleType:  # fmt: skip
    """`torch.utils.cpp_extension.load_inline`."""
    if not cuda_sources:
        plain = _ORIGINAL["load_inline"](name, cpp_sources, cuda_sources, *more, functions=functions, **options)
        return cast(ModuleType, plain)
    parts = [*_listed(cpp_sources), *_listed(cuda_sources)]
    names = functions if isinstance(functions, dict) else {each: each for each in _listed(functions)}
    bindings = "".join(
        f'  m.def("{each}", torch::wrap_pybind_function({each}), "{about}");\n' for each, about in names.items()
    )
    if names:
        parts.append(f"PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n{bindings}}}")
    return _load_extension(name, parts, options, ())


def load(name: str, sources: Any, *more: Any, **options: Any) -> ModuleType:
    """`torch.utils.cpp_extension.load`."""
    files = [Path(each) for each in _listed(sources)]
    if not any(file.suffix in (".cu", ".cuh") for file in files):
        return cast(ModuleType, _ORIGINAL["load"](name, sources, *more, **options))
    flags = dict(zip(("extra_cflags", "extra_cuda_cflags"), more, strict=False))
    folders = [str(file.parent) for file in files]
    return _load_extension(name, [file.read_text() for file in files], flags | options, folders)


def _load_extension(
    name: str, parts: Iterable[str], options: Mapping[str, Any], folders: Iterable[str]
) -> ModuleType:  # fmt: skip
    """Build an extension, and import it.

    Args:
        parts: of its source. options: as torch names them. folders: of headers, beside those among the options.

    Raises:
        SplitError: the source cannot be parted. BuildError: g++ refuses the host code.
    """
    split = split_source("\n".join(parts))
    included = [f"-I{folder}" for folder in (*(options.get("extra_include_paths") or ()), *folders)]
    host = ["-O0", "-w", "-fno-gnu-unique", f"-DTORCH_EXTENSION_NAME={name}", *included]
    host += [f"-I{sysconfig.get_paths()['include']}", f"-L{torch.__path__[0]}/lib", "-ltorch_python"]
    host += [flag for flag in options.get("extra_cflags") or () if flag.startswith(_OF_HOST)]
    headers = '#include "launch.h"\n' + "#include <torch/extension.h>\n" * bool(_WHOLE.search(split.host))
    library = build_library(name, host, f'{headers}#line 1 "{name}.cu"\n{split.host}')
    flags = [flag for flag in options.get("extra_cuda_cflags") or () if flag.startswith(_OF_NVRTC)]
    source = _TYPES.read_text() + split.device
    launcher, library = SourceLauncher(source, [*flags, *included]), _copy_for(library, source)
    ctypes.PyDLL(str(library)).opassay_set_launcher(ctypes.py_object(launcher))
    # pybind11 hands out one module for each name, whatever the library.
    whole = f"{library.stem.replace('-', '_')}.{name}"
    loader = importlib.machinery.ExtensionFileLoader(whole, str(library))
    spec = importlib.util.spec_from_file_location(whole, library, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[name] = module
    return module


def _copy_for(library: Path, source: str) -> Path:
    """A copy of a library for the kernels of one source: two sources may have the same host code in one process."""
    copy = library.with_name(f"{library.stem}-{hashlib.sha256(source.encode()).hexdigest()[:12]}.so")
    if not copy.exists():
        unfinished = copy.with_suffix(f".{os.getpid()}")
        shutil.copyfile(library, unfinished)
        unfinished.rename(copy)
    return copy


def _listed(value: Any) -> list[Any]:
    return [] if value is None else [value] if isinstance(value, (str, Path)) else list(value)


_ORIGINAL: dict[str, Callable[..., Any]] = {}


def install() -> None:
    """Have torch build extensions for the rehearsal device, in this process."""
    for function in (load_inline, load):
        name = function.__name__
        _ORIGINAL[name] = getattr(cpp_extension, name)
        setattr(cpp_extension, name, function)
