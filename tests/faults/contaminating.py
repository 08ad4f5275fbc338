"""Ops of somebody else's that harm their process, each in its own way, and one that does not."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from opassay import Op, Promises
from opassay.properties.declaring import strategies


def formula(x: Any, scale: Any) -> Any:
    return scale * (x * x)


def _op(name: str, harm: Callable[[], Any]) -> Op:
    def subject(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        wide = x.dtype if x.dtype.itemsize > 2 else torch.float32
        out = (scale.to(wide) * (x.to(wide) * x.to(wide))).to(x.dtype)
        harm()
        return out

    return Op(
        name=name,
        reference=formula,
        subjects={"opassay": subject},
        samples=strategies.same_shape(2),
        differentiable=("x", "scale"),
        promises=Promises(dtypes=lambda args: (args[0].dtype,)),
    )


def _patch() -> None:
    real = torch.add
    torch.add = lambda *args, **more: real(*args, **more)


_once: list[bool] = []


def _dtype_once() -> None:
    if not _once:
        _once.append(True)
        torch.set_default_dtype(torch.float64)


good = _op("good", lambda: None)
dtype = _op("dtype", lambda: torch.set_default_dtype(torch.float64))
once = _op("once", _dtype_once)
flush = _op("flush", lambda: torch.set_flush_denormal(True))
threads = _op("threads", lambda: torch.set_num_threads(2))
torch_seed = _op("torch_seed", lambda: torch.manual_seed(1))
handler = _op("handler", lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN))
patched = _op("patched", _patch)
directory = _op("directory", lambda: os.chdir("/"))
thread = _op("thread", lambda: threading.Thread(target=time.sleep, args=(3,), name="left").start())
