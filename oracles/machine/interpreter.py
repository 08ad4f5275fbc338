"""Triton's interpreter as a machine that judges: programs in a shuffled order, in the memory of `memory`.

All uses of private names of Triton's interpreter are in this file. What is hard here: Triton patches its language anew
for every call of every device function, which is most of the time of an interpreted program. Here the language is
patched once, for good, so a process that uses this file must do nothing else with Triton.

Three things are made as the hardware has them, whatever the version of Triton. float32 becomes bfloat16 by rounding to
the nearest even number, where the interpreter truncates, and bfloat16 becomes float32 exactly, where the interpreter
loses subnormal numbers. A fused product and sum is rounded once, where the interpreter of older versions rounds twice.
And a load without `other` gives NaN in the lanes that are masked out, where hardware gives anything.
"""

from __future__ import annotations

import inspect
import os
import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from ..op.declaration import Tensor
from ..verdicts.violation import Code, Violation
from . import types
from .fused import fma
from .memory import Book, Memory, poisoned_tensor

#: The order of a launch's programs comes from this and from the number of the launch.
SEED = 20_13


def prepare() -> None:
    """Have this process interpret kernels: to be called before Triton is imported.

    Raises:
        RuntimeError: Triton is imported already, and its kernels would be compiled.
    """
    if "triton" in sys.modules and os.environ.get("TRITON_INTERPRET") != "1":
        raise RuntimeError("machine: Triton was imported before this process was told to interpret its kernels")
    os.environ["TRITON_INTERPRET"] = "1"


def round_as_hardware() -> None:
    """Have Triton's interpreter round as the hardware rounds, for kernels that are launched in their own way.

    Raises:
        ImportError: Triton is not installed.
    """
    from triton.runtime import interpreter

    builder = type("Builder", (_Rounding, interpreter.InterpreterBuilder), {"interpreter": interpreter})()
    interpreter.interpreter_builder = builder
    interpreter.interpreter_semantic = interpreter.TritonSemantic(builder)


class Machine:
    """A launcher (`impl.gpu.launching.Launcher`) that interprets, and judges every address.

    Attributes:
        book: what the launches moved.
    """

    def __init__(self) -> None:
        from triton.runtime import interpreter

        self.book = Book()
        self._memory: Memory | None = None
        self._launches = 0
        self._interpreter = interpreter
        self._builder = _builder(interpreter, self)
        interpreter.interpreter_builder = self._builder
        interpreter.interpreter_semantic = interpreter.TritonSemantic(self._builder)
        self._patch_for_good()
        types.remember(interpreter)

    @property
    def memory(self) -> Memory:
        """That of the launch that is running."""
        assert self._memory is not None
        return self._memory

    empty = staticmethod(poisoned_tensor)

    def launch(
        self, kernel: Any, grid: tuple[int, ...], operands: tuple[object, ...], constants: Mapping[str, object],
        warps: int,
    ) -> None:  # fmt: skip
        """Interpret a kernel.

        Args:
            kernel, grid, operands, constants, warps: as `impl.gpu.launching.Launcher` has them.

        Raises:
            Violation: an address outside of every operand, a race, an atomic sum.
        """
        function = kernel.rewrite()
        tensors = [t for t in operands if isinstance(t, Tensor)]
        self._memory = Memory(kernel.fn.__name__, tensors)
        arguments = dict(zip(kernel.arg_names, map(self._operand, operands), strict=False))
        arguments |= constants
        bound = inspect.getcallargs(function, **arguments)
        sizes = (*grid, 1, 1)[:3]
        self._builder.set_grid_dim(*sizes)
        # numpy warns of overflow and of invalid operations, which are a kernel's daily business.
        with np.errstate(all="ignore"):
            for number in np.random.default_rng((SEED, self._launches)).permutation(int(np.prod(sizes))):
                self._builder.set_grid_idx(*(int(i) for i in np.unravel_index(number, sizes)))
                self._memory.begin(int(number))
                try:
                    function(**bound)
                except self._interpreter.InterpreterError as error:
                    raise _violation_in(error) from error
                self._memory.end()
        self._launches += 1
        self._memory.copy_back(tensors)
        self.book.add(kernel.fn.__name__, self._memory.traffic())

    def _patch_for_good(self) -> None:
        interpreter = self._interpreter
        # A function's globals say which parts of the language it uses: kernels use `triton.language`, and the functions
        # of its standard library `triton.language.core`.
        for named in ({"tl": interpreter.tl}, {"core": interpreter.tl.core}):
            interpreter._patch_lang(SimpleNamespace(__globals__=named))
        interpreter._patch_lang = lambda _: _Unpatched()
        # Triton 3.6 converts an array of one element, which NumPy 2.4 refuses; so no loop would know its bound.
        interpreter.tl.tensor.__index__ = lambda number: int(number.handle.data.item())

    def _operand(self, value: object) -> object:
        interpreter = self._interpreter
        if isinstance(value, Tensor):
            template = interpreter._implicit_cvt(value)
            handle = interpreter.TensorHandle(np.array([self.memory.address(value)], dtype=np.uint64), template.dtype)
            return interpreter.tl.tensor(handle, template.dtype)
        if isinstance(value, float):
            # Triton takes a float for float32 when it compiles; the interpreter would leave it what it is.
            with np.errstate(over="ignore"):
                number = np.array([value], dtype=np.float32)
            return interpreter.tl.tensor(
                interpreter.TensorHandle(number, interpreter.tl.float32), interpreter.tl.float32
            )
        return interpreter._implicit_cvt(value)


def _violation_in(error: BaseException) -> BaseException:
    """The violation by which a kernel ended, which every function around it has wrapped once; else the error."""
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, Violation):
        cause = cause.__cause__
    return cause or error


class _Unpatched:
    """The result of patching the language, while the language stays patched."""

    def restore(self) -> None:
        """Nothing: the language stays as it is."""


class _Rounding:
    """Operations in place of those of the interpreter's builder: numbers round as the hardware rounds them.

    Attributes:
        interpreter: Triton's module.
    """

    interpreter: Any

    def cast_impl(self, src: Any, dst_type: Any) -> Any:
        tl, handle = self.interpreter.tl, self.interpreter.TensorHandle
        if src.dtype.scalar == tl.float32 and dst_type.scalar == tl.bfloat16:
            return handle(_to_bfloat16(src.data), tl.bfloat16)
        if src.dtype.scalar == tl.bfloat16 and dst_type.scalar == tl.float32:
            return handle((src.data.astype(np.uint32) << 16).view(np.float32), tl.float32)
        return self._plain.cast_impl(self, src, dst_type)

    def create_fp_to_fp(self, src: Any, dst_type: Any, rounding_mode: Any) -> Any:
        if self.interpreter.tl.float32 in (src.dtype.scalar, dst_type.scalar):
            return self.cast_impl(src, dst_type)
        return self._plain.create_fp_to_fp(self, src, dst_type, rounding_mode)

    def create_fma(self, x: Any, y: Any, z: Any) -> Any:
        if z.data.dtype not in (np.float32, np.float64):
            return self._plain.create_fma(self, x, y, z)
        return self.interpreter.TensorHandle(fma(x.data, y.data, z.data), z.dtype.scalar)

    @property
    def _plain(self) -> Any:
        """The interpreter's own class, whose methods these stand before."""
        return self.interpreter.InterpreterBuilder


class _MemoryJudge(_Rounding):
    """Operations in place of those of the interpreter's builder, where memory is judged as well.

    Attributes:
        machine: whose memory it is.
    """

    machine: Machine

    # How an access treats the caches is one argument or two, by the version of Triton; it is handed on as it came.
    def create_masked_load(self, ptrs: Any, mask: Any, other: Any, *caching: Any) -> Any:
        element = ptrs.get_element_ty()
        dtype = self.interpreter._get_np_dtype(element)
        mask, lanes = self._truth(mask, ptrs)
        self.machine.memory.load(ptrs.data[lanes], dtype.itemsize)
        if other is None:
            other = self.interpreter.TensorHandle(_unknown(ptrs.data.shape, dtype, element), element)
        return self._plain.create_masked_load(self, ptrs, mask, other, *caching)

    def create_masked_store(self, ptrs: Any, value: Any, mask: Any, *caching: Any) -> Any:
        mask, lanes = self._truth(mask, ptrs)
        self.machine.memory.store(ptrs.data[lanes], value.data.dtype.itemsize)
        return self._plain.create_masked_store(self, ptrs, value, mask, *caching)

    def create_atomic_rmw(self, rmwOp: Any, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        if np.issubdtype(val.data.dtype, np.floating):
            raise Violation(Code.RACE, "an atomic sum of floating numbers: its order decides its last bits")
        return self._plain.create_atomic_rmw(self, rmwOp, ptr, val, mask, sem, scope)

    def create_barrier(self) -> None:
        self.machine.memory.barrier()

    def _truth(self, mask: Any, ptrs: Any) -> tuple[Any, Any]:
        # The interpreter gives a mask that combines a block and a scalar as integers, not as truth values.
        if mask.data.dtype != np.bool_:
            mask = self.interpreter.TensorHandle(mask.data.astype(np.bool_), self.interpreter.tl.int1)
        return mask, np.broadcast_to(mask.data, ptrs.data.shape)


def _builder(interpreter: Any, machine: Machine) -> Any:
    """The interpreter's builder, which performs the operations of a program, with memory that is judged."""
    # The base class is there only once Triton is imported, so the class is made here.
    members = {"machine": machine, "interpreter": interpreter}
    return type("Builder", (_MemoryJudge, interpreter.InterpreterBuilder), members)()


def _unknown(shape: Any, dtype: Any, element: Any) -> Any:
    if np.issubdtype(dtype, np.floating):
        return np.full(shape, np.nan, dtype=dtype)
    # bfloat16 is held as 16 bits, of which these are a NaN; of integers the bits say nothing anyway.
    return np.full(shape, np.iinfo(dtype).max, dtype=dtype)


def _to_bfloat16(values: Any) -> Any:
    """Bits of bfloat16, rounded to nearest even."""
    wide = torch.from_numpy(np.ascontiguousarray(values, dtype=np.float32))
    return wide.to(torch.bfloat16).view(torch.int16).numpy().view(np.uint16).reshape(values.shape)
