"""The functions of `torch.cuda`, which a build of torch without CUDA lacks, for the rehearsal device.

Streams and events are torch's own of every device (`torch.Stream`, `torch.Event`), which ask the device guard.
"""

from __future__ import annotations

import collections
import contextlib
import ctypes
import os
import types
from collections.abc import Iterator
from typing import Any

import torch

from ...oracles.machine.compiling import CAPABILITIES, SHARED_MEMORY, architecture
from ...oracles.machine.limits import REHEARSED
from . import peer_copies
from .environment import NAME
from .graphs import Graphs, graph_class

_ARCHITECTURE = architecture()
_CAPABILITY = divmod(CAPABILITIES[_ARCHITECTURE], 10)
#: Multiprocessors of an A100, an H100 and a B200.
_PROCESSORS = {"sm_80": 108, "sm_90": 132, "sm_100": 148}
#: What is told of each device: the numbers of one of the architecture where a choice of code depends on them.
PROPERTIES = types.SimpleNamespace(
    name=NAME, major=_CAPABILITY[0], minor=_CAPABILITY[1], total_memory=1 << 34, L2_cache_size=1 << 20, warp_size=32,
    multi_processor_count=_PROCESSORS[_ARCHITECTURE], max_threads_per_multi_processor=2048, max_threads_per_block=1024,
    regs_per_multiprocessor=65536, shared_memory_per_block=48 << 10,
    shared_memory_per_block_optin=SHARED_MEMORY[_ARCHITECTURE],
    shared_memory_per_multiprocessor=SHARED_MEMORY[_ARCHITECTURE] + 1024, is_integrated=0,
    is_multi_gpu_board=0, gcnArchName="", uuid="rehearsal", pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
)  # fmt: skip
#: The same by the numbers that CUDA's driver has for attributes (cuda.h, CUdevice_attribute).
_ATTRIBUTES = {
    1: PROPERTIES.max_threads_per_block, 2: 1024, 3: 1024, 4: 64, 5: 2**31 - 1, 6: 65535, 7: 65535,
    8: PROPERTIES.shared_memory_per_block, 10: PROPERTIES.warp_size, 12: PROPERTIES.regs_per_multiprocessor,
    13: 1980000, 16: PROPERTIES.multi_processor_count, 18: 0, 36: 2619000, 37: 5120, 38: PROPERTIES.L2_cache_size,
    39: PROPERTIES.max_threads_per_multi_processor, 41: 1, 75: PROPERTIES.major, 76: PROPERTIES.minor,
    81: PROPERTIES.shared_memory_per_multiprocessor, 82: PROPERTIES.regs_per_multiprocessor, 95: 1,
    97: PROPERTIES.shared_memory_per_block_optin, 106: 32, 111: 1024, 115: 1,
    120: int(PROPERTIES.major >= 9), 127: int(PROPERTIES.major >= 9),
}  # fmt: skip
_CUDA = 1  # the number of torch's kind of device


class Library:
    """The device's own functions, of device.cpp."""

    def __init__(self, path: str) -> None:
        self._library = ctypes.CDLL(path)
        for name in ("current_stream", "allocated", "peak", "capture_size", "graph_size", "find_memory"):
            self._function(name).restype = ctypes.c_int64
        for name in ("is_initialized", "is_in_bad_fork", "initialize", "is_capturing"):
            self._function(name).restype = ctypes.c_bool
        self._function("end_capture").restype = ctypes.c_void_p
        self._function("set_stream").argtypes = (ctypes.c_int, ctypes.c_int64)

    def _function(self, name: str) -> Any:
        return getattr(self._library, f"rehearsal_{name}")

    def __getattr__(self, name: str) -> Any:
        return self._function(name)


class DeviceInUse:
    """The library of the device of this process, and the captures; from `install` on."""

    library: Library
    graphs: Graphs


IN_USE = DeviceInUse()


def index_of(device: Any) -> int:
    """The index of a device as torch's functions name one: None, an index, a name, a device, or a tensor's.

    Raises:
        RuntimeError: there is no such device. ValueError: it is of another kind.
    """
    if device is None:
        return int(IN_USE.library.current_device())
    if not isinstance(device, int):
        device = getattr(device, "device", device)
        device = torch.device(device)
        if device.type != "cuda":
            raise ValueError(f"Expected a cuda device, but got: {device}")
        device = -1 if device.index is None else device.index
    if device >= IN_USE.library.device_count():
        raise torch.AcceleratorError("CUDA error: invalid device ordinal")
    return int(IN_USE.library.current_device()) if device < 0 else device


def find_memory(address: int, begin: ctypes.c_void_p) -> int:
    """The bytes of the memory in which an address lies, whose beginning is written to `begin`; 0 outside of all."""
    return int(IN_USE.library.find_memory(ctypes.c_void_p(address), ctypes.byref(begin)))


class DeviceContext:
    """`torch.cuda.device`. A negative index changes nothing, as in torch."""

    def __init__(self, device: Any) -> None:
        self.idx = -1 if device is None or device == -1 else index_of(device)

    def __enter__(self) -> None:
        self.prev_idx = IN_USE.library.exchange_device(self.idx)

    def __exit__(self, *_: object) -> None:
        IN_USE.library.exchange_device(self.prev_idx)


class DeviceOfContext(DeviceContext):
    """`torch.cuda.device_of`."""

    def __init__(self, of: Any) -> None:
        super().__init__(of.get_device() if of.is_cuda else -1)


class RehearsalStream(torch.Stream):
    """`torch.cuda.Stream`."""

    def __new__(cls, device: Any = None, priority: int = 0, **number: Any) -> RehearsalStream:
        if number:
            return super().__new__(cls, **number)
        return super().__new__(cls, torch.device("cuda", index_of(device)), priority=priority)

    @property
    def cuda_stream(self) -> int:
        return int(self.stream_id)


class _EventKind(type):
    """Makes plain events, because torch's own methods refuse those of a derived class."""

    def __call__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> torch.Event:
        return torch.Event(torch.device("cuda"), enable_timing=enable_timing, blocking=blocking)

    def __instancecheck__(cls, other: object) -> bool:
        return isinstance(other, torch.Event)


class RehearsalEvent(metaclass=_EventKind):
    """`torch.cuda.Event`."""


def _stream_of(device: int, number: int) -> RehearsalStream:
    return RehearsalStream(stream_id=number, device_index=device, device_type=_CUDA)


def _current_stream(device: Any = None) -> RehearsalStream:
    index = index_of(device)
    return _stream_of(index, IN_USE.library.current_stream(index))


def _set_stream(stream: Any) -> None:
    if stream is not None:
        IN_USE.library.exchange_device(stream.device.index)
        IN_USE.library.set_stream(stream.device.index, stream.stream_id)


@contextlib.contextmanager
def _stream_context(stream: Any) -> Iterator[None]:
    if stream is None:
        yield
        return
    index = stream.device.index
    device, before = IN_USE.library.exchange_device(index), IN_USE.library.current_stream(index)
    IN_USE.library.set_stream(index, stream.stream_id)
    try:
        yield
    finally:
        IN_USE.library.set_stream(index, before)
        IN_USE.library.exchange_device(device)


def on_stream(number: int) -> contextlib.AbstractContextManager[None]:
    """Within it a stream of the current device is the current one; `number` is that by which CUDA names it."""
    return _stream_context(_stream_of(index_of(None), number))


def _synchronize(device: Any = None) -> None:
    torch._C._accelerator_synchronizeDevice(index_of(device))


def _initialize() -> None:
    if not IN_USE.library.initialize():
        raise RuntimeError(
            "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must "
            "use the 'spawn' start method"
        )


def _properties(device: Any = None) -> Any:
    _initialize()  # as torch does
    return index_of(device) >= 0 and PROPERTIES


def _is_available() -> bool:
    # Unless it is asked of NVML, CUDA's driver starts, and a copy of this process cannot use it.
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") != "1":
        IN_USE.library.start_driver()
    return True


def _generators() -> dict[str, Any]:
    generators = tuple(torch.Generator() for _ in range(IN_USE.library.device_count()))

    def seed_all(seed: int) -> None:
        for generator in generators:
            generator.manual_seed(seed)

    def state(device: Any = "cuda") -> torch.Tensor:
        return generators[index_of(device)].get_state()

    def set_state(new: torch.Tensor, device: Any = "cuda") -> None:
        generators[index_of(device)].set_state(new)

    return {
        "default_generators": generators,
        "manual_seed": lambda seed: generators[index_of(None)].manual_seed(seed) and None,
        "manual_seed_all": seed_all,
        "seed": lambda: generators[index_of(None)].seed() and None,
        "seed_all": lambda: seed_all(generators[0].seed()),
        "initial_seed": lambda: generators[index_of(None)].initial_seed(),
        "get_rng_state": state,
        "set_rng_state": set_state,
        "get_rng_state_all": lambda: [generator.get_state() for generator in generators],
    }


def _of_devices() -> dict[str, Any]:
    return {
        "is_available": _is_available,
        "is_initialized": lambda: bool(IN_USE.library.is_initialized()),
        "_is_compiled": lambda: True,
        "_is_in_bad_fork": lambda: bool(IN_USE.library.is_in_bad_fork()),
        "_lazy_init": _initialize,
        "init": _initialize,
        "device_count": lambda: int(IN_USE.library.device_count()),
        "current_device": lambda: int(IN_USE.library.current_device()),
        "set_device": lambda device: IN_USE.library.exchange_device(index_of(device)) and None,
        "_exchange_device": lambda index: int(IN_USE.library.exchange_device(index)),
        "_maybe_exchange_device": lambda index: int(IN_USE.library.exchange_device(index)),
        "device": DeviceContext,
        "device_of": DeviceOfContext,
        "get_device_properties": _properties,
        "get_device_capability": lambda device=None: (_properties(device).major, PROPERTIES.minor),
        "get_device_name": lambda device=None: NAME,
        "get_arch_list": lambda: [_ARCHITECTURE],
        "is_bf16_supported": lambda including_emulation=True: True,
        "can_device_access_peer": lambda device, peer: index_of(device) != index_of(peer),
        "synchronize": _synchronize,
    }


def _of_memory() -> dict[str, Any]:
    def free(device: Any = None) -> tuple[int, int]:
        total = PROPERTIES.total_memory
        return total - IN_USE.library.allocated(index_of(device)), total

    counts = {"current": IN_USE.library.allocated, "peak": IN_USE.library.peak}
    return {
        "memory_allocated": lambda device=None: IN_USE.library.allocated(index_of(device)),
        "max_memory_allocated": lambda device=None: IN_USE.library.peak(index_of(device)),
        "memory_reserved": lambda device=None: IN_USE.library.allocated(index_of(device)),
        "max_memory_reserved": lambda device=None: IN_USE.library.peak(index_of(device)),
        "reset_peak_memory_stats": lambda device=None: IN_USE.library.reset_peak(index_of(device)) and None,
        "mem_get_info": free,
        "memory_stats": lambda device=None: collections.Counter(
            {f"allocated_bytes.all.{name}": get(index_of(device)) for name, get in counts.items()}
        ),
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "set_per_process_memory_fraction": lambda fraction, device=None: None,
    }


def _of_streams() -> dict[str, Any]:
    return {
        "Stream": RehearsalStream,
        "Event": RehearsalEvent,
        "stream": _stream_context,
        "set_stream": _set_stream,
        "current_stream": _current_stream,
        "default_stream": lambda device=None: _stream_of(index_of(device), 0),
        "is_current_stream_capturing": lambda: bool(IN_USE.library.is_capturing(IN_USE.library.current_device())),
        "CUDAGraph": graph_class(IN_USE.graphs, IN_USE.library),
        "graph_pool_handle": lambda: (0, 0),
    }


def _make_storages() -> None:
    """Have `torch.UntypedStorage(size, device="cuda")` make one: it knows those that torch was built with alone."""
    plain: Any = torch.UntypedStorage.__new__

    def new(cls: Any, *sizes: Any, device: Any = None, **more: Any) -> Any:
        if device is None or torch.device(device).type != "cuda":
            return plain(cls, *sizes, **more) if device is None else plain(cls, *sizes, device=device, **more)
        return torch.empty(*(sizes or (0,)), dtype=torch.uint8, device=device).untyped_storage()

    setattr(torch.UntypedStorage, "__new__", staticmethod(new))  # noqa: B010 (mypy knows no other way)


def install(path: str) -> None:
    """Give `torch.cuda` of this process its functions, by the library at a path."""
    IN_USE.library = Library(path)
    IN_USE.graphs = Graphs(IN_USE.library)
    for which, value in _ATTRIBUTES.items():
        IN_USE.library.set_attribute(which, value)
    cuda: Any = torch.cuda
    for name, value in {**_of_devices(), **_of_memory(), **_of_streams(), **_generators()}.items():
        setattr(cuda, name, value)
    elsewhere = {
        cuda.memory: _of_memory(),
        cuda.streams: ("Stream", "Event"),
        cuda.graphs: ("CUDAGraph", "graph_pool_handle"),
    }
    for module, names in elsewhere.items():
        for name in names:
            setattr(module, name, getattr(cuda, name))
    _make_storages()
    peer_copies.install()
    torch.version.cuda = REHEARSED
    for name in ("range_push", "range_pop", "range_start", "range_end", "mark"):
        setattr(cuda.nvtx, name, lambda *_, **__: 0)
    private: Any = torch._C
    private._dynamo.guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(
        size, stride, dtype=dtype, device="cuda"
    )
    private._cuda_getCurrentRawStream = lambda index: IN_USE.library.current_stream(index)
    private._cuda_getCurrentStream = lambda index: (IN_USE.library.current_stream(index), index, _CUDA)
    private._host_emptyCache = lambda: None
    private._cuda_getDevice = lambda: int(IN_USE.library.current_device())
    private._cuda_isCurrentStreamCapturing = cuda.is_current_stream_capturing
    private._cuda_exchangeDevice = private._cuda_maybeExchangeDevice = lambda index: int(
        IN_USE.library.exchange_device(index)
    )
