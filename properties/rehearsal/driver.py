"""The kernels that host code brings to CUDA's driver as PTX, and launches there, on the rehearsal device.

The library of the device is the driver that such host code finds (driver.h); what it is given and what it launches
comes here. So it is no matter whose host code it is: compiled or not, it calls the driver.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from ...oracles.machine.ptx.account import ACCOUNT
from ...oracles.machine.ptx.cuda_source import CudaKernel
from ...oracles.machine.ptx.executable import Kernel
from ...oracles.machine.ptx.listing import Listing, read_entry
from ...oracles.verdicts.violation import Code, Unsupported
from . import torch_cuda
from .launches import execute_raw

#: What the driver returns for a failure of any kind; the exception is kept.
_FAILED = 719
#: How images of kernels begin that have no PTX: ELF, and a collection for several architectures.
_MACHINE_CODE = (b"\x7fELF", b"\x50\xed\x55\xba")
#: Letters of a kernel's name that are told: compilers put all its types into it.
_LETTERS = 60


class LaunchSizes(ctypes.Structure):
    """Of a launch, as driver.h has them."""

    _fields_ = (
        ("grid", ctypes.c_uint32 * 3), ("block", ctypes.c_uint32 * 3), ("cluster", ctypes.c_uint32 * 3),
        ("shared", ctypes.c_uint64), ("stream", ctypes.c_int64),
    )  # fmt: skip


_Pointer, _Number = ctypes.c_void_p, ctypes.POINTER(ctypes.c_int64)
_LOAD = ctypes.CFUNCTYPE(ctypes.c_int, _Pointer, _Number)
_FIND = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int64, ctypes.c_char_p, _Number, ctypes.POINTER(ctypes.c_int32))
_COMPLAIN = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p)
_LAUNCH = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_int64, ctypes.POINTER(LaunchSizes), ctypes.c_int32, ctypes.POINTER(_Pointer)
)


class DriverCalls(ctypes.Structure):
    """The functions that driver.h calls."""

    _fields_ = (("load", _LOAD), ("find", _FIND), ("launch", _LAUNCH), ("complain", _COMPLAIN))


class LoadedKernel(NamedTuple):
    """A kernel of an image: the text of the image, empty for machine code, and what stands there of it."""

    text: str
    entry: Listing

    @property
    def label(self) -> str:
        """Its name, as reports have it."""
        return self.entry.name[:_LETTERS]


class Driver:
    """The images and kernels of this process.

    Attributes:
        pending: what was raised where the driver was called, by thread.
    """

    def __init__(self) -> None:
        self.pending = threading.local()
        self._texts: list[str] = []
        self._kernels: list[LoadedKernel] = []
        self.server = DriverCalls(
            _LOAD(self._load), _FIND(self._find), _LAUNCH(self._launch), _COMPLAIN(self._complain)
        )
        self._compiled = functools.lru_cache(maxsize=None)(self._compile)

    def take(self, otherwise: BaseException) -> BaseException:
        """What was raised last in this thread, which is forgotten; if there is nothing, something else."""
        own, self.pending.exception = getattr(self.pending, "exception", None), None
        return otherwise if own is None else own

    def _serve(self, label: str, work: Callable[[], None]) -> int:
        """Do some work for the driver, about what a label says: 0, or a failure, whose exception is kept."""
        self.pending.exception = None
        try:
            work()
        except BaseException as err:  # what calls is no Python: nothing can be raised into it
            if isinstance(err, LookupError | AttributeError | TypeError):  # of what reads PTX, and no mistake in it
                err = Unsupported(Code.OPCODE, f"{label}: its PTX cannot be read: {type(err).__name__}: {err}")
            self.pending.exception = err
            if isinstance(err, Unsupported) and ACCOUNT.fault is not err:
                ACCOUNT.enter(label, err)
            return _FAILED
        return 0

    def _load(self, image: int, library: Any) -> int:
        def load() -> None:
            is_text = ctypes.string_at(image, 4) not in _MACHINE_CODE
            self._texts.append(ctypes.string_at(image).decode() if is_text else "")
            library[0] = len(self._texts)

        return self._serve("an image of kernels", load)

    def _find(self, library: int, name: bytes, number: Any, shared: Any) -> int:
        def find() -> None:
            text = self._texts[library - 1]
            entry = read_entry(text, name.decode()) if text else Listing(name.decode(), sizes={"shared": 0})
            self._kernels.append(LoadedKernel(text, entry))
            number[0], shared[0] = len(self._kernels) - 1, entry.sizes["shared"]

        return self._serve(name.decode()[:_LETTERS], find)

    def _launch(self, number: int, sizes: Any, most: int, values: Any) -> int:
        def launch() -> None:
            own, loaded = sizes.contents, self._kernels[number]
            if not loaded.text:  # How many of its blocks run together may be asked all the same.
                raise Unsupported(Code.OPCODE, f"{loaded.label}: its image has machine code alone; need its PTX")
            _require_sizes(loaded.label, own, most)
            kernel = self._compiled(number, (*own.grid,), (*own.block,), own.shared, (*own.cluster,))
            widths = loaded.entry.parameters.values()
            raw = [ctypes.string_at(values[k], width) for k, width in enumerate(widths)]
            with torch_cuda.on_stream(own.stream):
                execute_raw(kernel, raw)

        return self._serve(self._kernels[number].label, launch)

    def _complain(self, text: bytes) -> int:
        """Keep an error of memory, as one of a launch."""

        def complain() -> None:
            raise RuntimeError(text.decode())

        return self._serve("memory of the driver", complain)

    def _compile(
        self, number: int, grid: tuple[int, ...], block: tuple[int, ...], shared: int, cluster: tuple[int, ...]
    ) -> CudaKernel:
        loaded = self._kernels[number]
        return CudaKernel(loaded.label, Kernel(loaded.text, loaded.entry.name), grid, block, shared, cluster)


def _require_sizes(label: str, own: Any, most: int) -> None:
    """Refuse sizes of a launch that CUDA refuses."""
    if any(m == 0 or n % m for n, m in zip(own.grid, own.cluster, strict=True)):
        sizes = f"grid={[*own.grid]}, cluster={[*own.cluster]}"
        raise RuntimeError(f"CUDA error: cluster misconfiguration ({label}: {sizes})")
    if own.shared > most:
        what = f"got {own.shared} bytes of dynamic shared memory, and its attribute allows {most}"
        raise RuntimeError(f"CUDA error: invalid argument ({label}: {what})")
    if 0 in (*own.grid, *own.block):
        sizes = f"grid={[*own.grid]}, block={[*own.block]}"
        raise RuntimeError(f"CUDA error: invalid configuration argument ({label}: {sizes})")


DRIVER = Driver()
ACCOUNT.launchers.add((Driver, "_serve"))  # Python's frames behind compiled host code would be traced as the caller's


def install() -> None:
    """Have the driver of this process be served from here."""
    torch_cuda.IN_USE.library.serve(ctypes.byref(DRIVER.server))
