"""A device on a machine without one: tensors that say `cuda:0` and keep their elements on the host.

Inside `present()` a tensor that is moved to "cuda" becomes a `DeviceTensor`, and one that is moved to "cpu" becomes
plain again. Every operation on a device's tensor runs on the host's copy and gives a device's tensor. As on a GPU it is
refused with a tensor of the host that has dims. An op of the library is not called with these tensors, because it has
kernels for real memory alone: `StandInJudge` calls it on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_iter, tree_map

from opassay.oracles.judge.judge import Judge

DEVICE = torch.device("cuda", 0)


class DeviceTensor(Tensor):
    """A tensor of the device; `host` has its elements."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> DeviceTensor:
        more: dict[str, Any] = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        tensor: DeviceTensor = Tensor._make_wrapper_subclass(cls, host.shape, device=DEVICE, **more)
        tensor.host = host
        return tensor

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]  # unannotated there
        return f"device_of({self.host!r})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # torch's own stub has no class and no function
        cls, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        for operand in tree_iter((args, kwargs)):
            if isinstance(operand, Tensor) and not isinstance(operand, DeviceTensor) and operand.dim():
                raise RuntimeError(f"{function}: Expected all tensors to be on the same device, got {DEVICE} and cpu")
        to_host = torch.device(kwargs.get("device") or DEVICE).type == "cpu"
        on_host = dict(tree_map(host_of, kwargs), **({"device": "cpu"} if "device" in kwargs else {}))
        outputs = function(*tree_map(host_of, args), **on_host)
        return outputs if to_host else tree_map(device_of, outputs)


def host_of(value: Any) -> Any:
    """A device's tensor on the host; anything else as it is."""
    return value.host if isinstance(value, DeviceTensor) else value


def device_of(value: Any) -> Any:
    """A tensor of the host on the device; anything else as it is."""
    return DeviceTensor(value) if isinstance(value, Tensor) else value


class _Moving(TorchFunctionMode):
    """Takes what torch cannot: `Tensor.to` of a device that it has not, and elements of tensors that are there."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is Tensor.to and args[1:2] in (("cuda",), (DEVICE,)):
            with torch._C.DisableTorchFunction():
                return args[0] if isinstance(args[0], DeviceTensor) else DeviceTensor(args[0].to(*args[2:]))
        if function in (Tensor.tolist, Tensor.__getitem__, Tensor.__setitem__) and isinstance(args[0], DeviceTensor):
            return device_of(function(*map(host_of, args)))
        return function(*args, **(kwargs or {}))


@contextmanager
def present() -> Iterator[None]:
    """The device is there."""
    with _Moving():
        yield


class StandInJudge(Judge):
    """A judge of samples on the device; the subject gets them on the host, and its outputs are put on the device."""

    def call(self, function: Callable[..., Any], *args: Any, **more: Any) -> Any:
        strays = [a for a in args if isinstance(a, Tensor) and not isinstance(a, DeviceTensor)]
        assert not strays, "the subject got tensors of the host beside the device's"
        return tuple(map(device_of, super().call(function, *map(host_of, args), **more)))


def on_host(subject: Callable[..., Any]) -> Callable[..., Any]:
    """A subject whose arguments are taken to the host, those that a path closes over, too."""
    return lambda *args: subject(*map(host_of, args))
