"""A recorded call as a function in float64: what it casts to a narrower format, or makes in one, is float64 as well."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .call import DispatcherCall, Tensor, is_floating
from .compiled import GraphRegion
from .judging import as_function

_ATEN = torch.ops.aten
_WIDE = {
    torch.float32: torch.float64, torch.bfloat16: torch.float64, torch.float16: torch.float64,
    torch.complex64: torch.complex128, torch.complex32: torch.complex128,
}  # fmt: skip
_ALIGNMENTS = frozenset({_ATEN._ctc_loss.default, _ATEN._ctc_loss.Tensor})
#: Operations that are told to give float32 of a half type, which nothing is any more.
_TOLD = frozenset({_ATEN._softmax.default, _ATEN._log_softmax.default})


class _Widening(TorchDispatchMode):
    """Asks every operation for the wider format."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = {name: _widened(value) for name, value in (kwargs or {}).items()}
        args = [_widened(value) for value in args]
        if func in _TOLD:
            args[2] = False
        return func(*args, **kwargs)


def _widened(value: Any) -> Any:
    return _WIDE.get(value, value) if isinstance(value, torch.dtype) else value


def widen(tensor: Tensor) -> Tensor:
    """A tensor in the wider format; integers as they are."""
    return tensor.detach().to(_WIDE.get(tensor.dtype, tensor.dtype))


def as_wide_function(call: DispatcherCall) -> Callable[..., tuple[Tensor, ...]]:
    """A call as a function of wide tensors, as `as_function` otherwise."""
    if isinstance(call.op, GraphRegion):
        return _widening(call.op.function_of_tensors(call, widen))
    call = _without_out(call)
    leaves = tuple(_widened(x) for x in call.leaves)
    if call.op in _TOLD:
        leaves = (*leaves[:2], False, *leaves[3:])
    call = replace(call, op=_align) if call.op in _ALIGNMENTS else call
    return _widening(as_function(replace(call, leaves=leaves)))


def _widening(run: Callable[..., tuple[Tensor, ...]]) -> Callable[..., tuple[Tensor, ...]]:
    """A function that gives dense results, and whose operations are asked for the wider format."""

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        with _Widening():  # type: ignore[no-untyped-call]
            return tuple(y if y.layout == torch.strided else y.to_dense() for y in run(*tensors))

    return function


def _align(log_probs: Tensor, targets: Tensor, steps: Any, *rest: Any) -> tuple[Tensor, ...]:
    """CTC's loss as a function of the logarithms that it takes.

    torch's derivative is that by the logits of a softmax before it, which has the probabilities besides: what is added
    is 0, and takes them off.
    """
    loss, alpha = _ATEN._ctc_loss(log_probs, targets, steps, *rest)
    chances = log_probs.exp()
    counts = torch.as_tensor(steps, device=loss.device).reshape(log_probs.shape[1:-1])
    numbers = torch.arange(len(log_probs), device=loss.device).reshape(-1, *[1] * (log_probs.dim() - 2))
    excess = (chances - chances.detach()).sum(-1) * (numbers < counts)
    return torch.where(loss.isfinite(), loss - excess.sum(0), loss), alpha


def _without_out(call: DispatcherCall) -> DispatcherCall:
    """The call that gives what this one writes into `out=`, which has no derivative."""
    args, kwargs = pytree.tree_unflatten(list(call.leaves), call.structure)
    if "out" not in kwargs or not isinstance(call.op, torch._ops.OpOverload):
        return call
    wanted = [(a.name, str(a.type)) for a in call.op._schema.arguments if not a.is_out]
    packet = call.op.overloadpacket
    for op in (getattr(packet, name) for name in packet.overloads()):
        if [(a.name, str(a.type)) for a in op._schema.arguments] == wanted:
            leaves, structure = pytree.tree_flatten((args, {k: v for k, v in kwargs.items() if k != "out"}))
            return replace(call, op=op, leaves=tuple(leaves), structure=structure)
    return call


@contextlib.contextmanager
def wide_numbers() -> Iterator[None]:
    """What is made of no tensor is float64, too."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def difference(a: Tensor, b: Tensor) -> Tensor:
    """a - b in the wider format; 0 where both are the same infinity, or one is no number, and of choices."""
    a, b = widen(a), widen(b)
    if not is_floating(a):
        return torch.zeros_like(a, dtype=torch.float64)
    apart = a - b
    return torch.where((a == b) | apart.isnan(), torch.zeros_like(apart), apart)
