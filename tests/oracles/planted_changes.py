"""Changes of the process's state, one of each kind, and what the line that tells of each begins with."""

from __future__ import annotations

import ctypes
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from opassay.oracles import process

#: Keeps what would be closed, or end, when nobody held it any more.
_STORE: list[Any] = []
_RELEASED = threading.Event()


class _Functions(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class _Dispatches(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _new_dispatches() -> Any:
    make: Any = _Dispatches  # torch gives its modes no types
    return make()


def _entered(context: Any) -> None:
    context.__enter__()
    _STORE.append(context)


def _replaced(owner: Any, name: str) -> None:
    old = getattr(owner, name)
    setattr(owner, name, lambda *args, **kwargs: old(*args, **kwargs))


def _rounds_upward() -> None:
    ctypes.CDLL(None).fesetround({"x86_64": 0x800}.get(os.uname().machine, 0x400000))


def _leaves_a_thread() -> None:
    thread = threading.Thread(target=_RELEASED.wait, name="left behind", daemon=True)
    thread.start()
    _STORE.append(thread)


def _leaves_a_process() -> None:
    _STORE.append(subprocess.Popen(["sleep", "60"]))


def release() -> None:
    """End what was left, so that nothing of it reaches other tests; contexts that are dropped set what they find."""
    with process.pinned():
        _end_all()


def _end_all() -> None:
    _RELEASED.set()
    for thing in _STORE:
        if isinstance(thing, subprocess.Popen):
            thing.kill()
            thing.wait()
        elif hasattr(thing, "close"):
            thing.close()
    _STORE.clear()
    _RELEASED.clear()


#: Each can be put back.
CHANGES: dict[str, tuple[Callable[[], object], str]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), "default dtype: torch.float32 -> torch.float64"),
    "default device": (lambda: torch.set_default_device("meta"), "default device: cpu -> meta"),
    "grad mode": (lambda: torch.set_grad_enabled(False), "grad mode: on -> off"),
    "inference mode": (lambda: _entered(torch.inference_mode()), "inference mode: off -> on"),
    "flush-to-zero": (lambda: torch.set_flush_denormal(True), "flush-to-zero: off -> on"),
    "rounding": (_rounds_upward, "rounding: to nearest -> upward"),
    "torch's random state": (lambda: torch.rand(1), "random state of torch: changed"),
    "torch's seed": (lambda: torch.manual_seed(5), "random state of torch: changed"),
    "Python's random state": (random.random, "random state of Python: changed"),
    "NumPy's random state": (lambda: np.random.rand(), "random state of NumPy: changed"),  # noqa: NPY002
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "threads of torch: "),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True, warn_only=True),
        "deterministic algorithms (enabled, warn only): (False, False) -> (True, True)",
    ),
    "cudnn": (lambda: setattr(torch.backends.cudnn, "benchmark", True), "cudnn.benchmark: False -> True"),
    "matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        "float32 matmul precision: highest -> medium",
    ),
    "autocast": (lambda: _entered(torch.autocast("cpu")), "autocast on cpu: off -> on"),
    "autocast dtype": (
        lambda: torch.set_autocast_dtype("cpu", torch.float16),
        "autocast dtype on cpu: torch.bfloat16 -> torch.float16",
    ),
    "autocast cache": (lambda: torch.set_autocast_cache_enabled(False), "autocast cache: on -> off"),
    "anomaly mode": (lambda: torch.autograd.set_detect_anomaly(True), "anomaly mode"),
    "function mode": (lambda: _entered(_Functions()), "torch function modes: [] -> [_Functions]"),
    "dispatch mode": (lambda: _entered(_new_dispatches()), "torch dispatch modes: [] -> [_Dispatches]"),
    "vmap level": (lambda: torch._C._functorch._vmap_increment_nesting(2, "error"), "functorch level: 0 -> 1"),
    "dual level": (forward_ad.enter_dual_level, "forward AD level: -1 -> 0"),
    "dual level of the core": (torch._C._enter_dual_level, "forward AD level: -1 -> 0"),
    "dual level that the core has left": (
        lambda: setattr(forward_ad, "_current_level", 0),
        "forward AD level: -1 -> 0",
    ),
    "forward AD": (lambda: torch._C._set_fwd_grad_enabled(False), "forward AD: on -> off"),
    "saved tensors": (lambda: _entered(torch.autograd.graph.save_on_cpu()), "hooks on saved tensors: changed"),
    "module hook": (
        lambda: torch.nn.modules.module.register_module_forward_hook(lambda *args: None),
        "global module hooks: changed",
    ),
    "directory": (lambda: os.chdir("/"), "working directory: "),
    "SIGINT": (lambda: signal.signal(signal.SIGINT, signal.SIG_IGN), "SIGINT handler: "),
    "SIGALRM": (lambda: signal.signal(signal.SIGALRM, lambda *args: None), "SIGALRM handler: SIG_DFL -> "),
    "warnings": (lambda: warnings.simplefilter("error", UserWarning), "warnings filters: "),
    "recursion limit": (lambda: sys.setrecursionlimit(sys.getrecursionlimit() + 77), "recursion limit: "),
    "errstate": (lambda: np.seterr(all="raise"), "NumPy's error state: divide warn"),
    "sys.path": (lambda: sys.path.append("/nowhere"), "sys.path: "),
    "excepthook": (lambda: setattr(sys, "excepthook", print), "exception and display hooks: "),
    "profile": (lambda: sys.setprofile(lambda *args: None), "profile function: none -> "),
    "stdout": (lambda: setattr(sys, "stdout", sys.__stderr__), "standard streams: changed"),
    "garbage": (gc.disable, "garbage collection: on -> off"),
    "environment": (
        lambda: os.environ.__setitem__("OPASSAY_PLANTED", "1"),
        "environment variable OPASSAY_PLANTED: set",
    ),
    "torch.add": (lambda: _replaced(torch, "add"), "torch.add: replaced"),
    "a method of tensors": (lambda: _replaced(torch.Tensor, "__mul__"), "torch.Tensor.__mul__: replaced"),
    "a functional": (lambda: delattr(torch.nn.functional, "celu"), "torch.nn.functional.celu: deleted"),
    "math.exp": (lambda: _replaced(__import__("math"), "exp"), "math.exp: replaced"),
    "a builtin": (lambda: _replaced(__import__("builtins"), "len"), "builtins.len: replaced"),
    "numpy.median": (lambda: _replaced(np, "median"), "numpy.median: replaced"),
}
#: None can be taken back.
CHANGES_OF_PROCESSES: dict[str, tuple[Callable[[], object], str]] = {
    "thread": (_leaves_a_thread, "left a thread: left behind"),
    "process": (_leaves_a_process, "left a child process: "),
    "descriptor": (
        lambda: _STORE.append(os.fdopen(os.open(os.devnull, os.O_RDONLY))),
        "left a file descriptor: /dev/null",
    ),
}
