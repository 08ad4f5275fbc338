"""Kernels of CuTe DSL on the rehearsal device: their compiled host code calls the device's driver, which reads PTX.

What is hard here: CuTe's compiler puts machine code into what it makes. In its place comes the PTX that the same passes
wrote, before anything is made of it: so whoever exports or caches host code has its kernels as PTX as well.
"""

from __future__ import annotations

import functools
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

#: An option of its passes, by which they write the PTX.
_DUMP = "dump-ptx-path="


def keep_ptx() -> None:
    """Have CuTe's compiler keep PTX in the place of machine code."""
    compiler = sys.modules["cutlass.base_dsl.compiler"].Compiler
    original = compiler.compile

    @functools.wraps(original)
    def compile_to_ptx(self: Any, module: Any, pipeline: str, *more: Any, **named: Any) -> Any:
        with tempfile.TemporaryDirectory() as folder:
            if _DUMP not in pipeline:
                pipeline = f"{pipeline.rstrip('})')} {_DUMP}{folder}/kernels}})"
            compiled = original(self, module, pipeline, *more, **named)
            path = Path(pipeline.partition(_DUMP)[2].split()[0].rstrip("})"))
            # Older versions change the module and return nothing: torch asks for CuTe DSL 4.5.2.
            for text in path.parent.glob(f"{path.name}.*.ptx"):
                _replace_images(module if compiled is None else compiled, text.read_bytes())
        return compiled

    compiler.compile = compile_to_ptx


def _replace_images(module: Any, text: bytes) -> None:
    """Put a text of PTX into the place of the images of kernels that a module of MLIR has."""
    ir: Any = sys.modules["cutlass._mlir.ir"]
    for operation in module.body.operations:
        words = operation.attributes
        if "sym_name" in words and ir.StringAttr(words["sym_name"]).value.endswith("_binary"):
            words["value"] = ir.StringAttr.get(text + b"\0", context=module.context)
            kind = ir.Type.parse(f"!llvm.array<{len(text) + 1} x i8>", context=module.context)
            words["global_type"] = ir.TypeAttr.get(kind)


def _raised_by_driver(otherwise: BaseException) -> BaseException:
    """What a launch raised, or something else; the driver's module imports torch, which a file may do later."""
    served = sys.modules.get(f"{__package__}.driver")
    return otherwise if served is None else cast(BaseException, served.DRIVER.take(otherwise))


def raise_from_calls() -> None:
    """Have calls of compiled host code raise what its launches raised."""
    executor = sys.modules["cutlass.base_dsl.jit_executor"].JitExecutor
    original = executor.run_compiled_program

    @functools.wraps(original)
    def run(self: Any, arguments: list[Any]) -> Any:
        try:
            return original(self, arguments)
        except Exception as err:
            own = _raised_by_driver(err)
            if own is err:
                raise
            raise own from None

    executor.run_compiled_program = run


class RehearsalError(Exception):
    """What TVM's FFI makes where a launch raised something: that, and no instance of this class."""

    def __new__(cls, text: str) -> Any:
        return _raised_by_driver(RuntimeError(text))


def raise_from_tvm() -> None:
    """Have calls by way of TVM's FFI raise what launches raised."""
    sys.modules["tvm_ffi.error"].register_error(RehearsalError)


def count_devices() -> None:
    """Have CUDA's runtime, of which Python's bindings have a copy that needs NVIDIA's driver, know the devices."""
    runtime: Any = sys.modules["cuda.bindings.runtime"]
    runtime.cudaGetDeviceCount = lambda: (runtime.cudaError_t.cudaSuccess, sys.modules["torch"].cuda.device_count())
    runtime.cudaLibraryUnload = lambda library: (runtime.cudaError_t.cudaSuccess,)
