"""The work of a spec at a call, counted by operations of torch: what a reading costs, before anything is read."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from .tracing import without_fused_operations

_aten = torch.ops.aten
_MATRIX_PRODUCTS = (_aten.mm, _aten.bmm, _aten.addmm, _aten.baddbmm)
#: Seconds of the processor that an operation takes, which is traced and read, and those that one of its elements takes.
#: They were measured at loops of recurrent layers and at attention; only how much is read depends on them.
_PER_OPERATION, _PER_ELEMENT = 2e-3, 6e-8
#: Operations that are read step by step along an axis.
_STEPS: dict[Any, Callable[..., int]] = {
    _aten.logcumsumexp: lambda x, dim: x.shape[dim] if x.ndim else 0,
    _aten.cumprod: lambda x, dim, **options: x.shape[dim] if x.ndim and x.is_complex() else 0,
    _aten._ctc_loss: lambda logits, *rest: len(logits),
}


class WorkExceededError(ValueError):
    """A call has more work than it may have."""


class Workload(NamedTuple):
    """Numbers: of operations of torch, of multiplications in products, of elements, of steps in operations."""

    operations: float
    multiplications: float
    elements: float
    steps: float

    @property
    def seconds(self) -> float:
        """About how long it takes to trace and read these operations."""
        return (self.operations + self.steps) * _PER_OPERATION + self.elements * _PER_ELEMENT


class WorkCounter(TorchDispatchMode):
    """Counts the work of operations of torch, and raises WorkExceededError before the operation that exceeds `most`."""

    def __init__(self, most: Workload) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.most, self.work = most, Workload(0, 0, 0, 0)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        operations, multiplications, elements, steps = self.work
        if func.overloadpacket in _MATRIX_PRODUCTS:
            left, right = args[-2:]
            multiplications += left.numel() * right.shape[-1]
        if func.overloadpacket in _STEPS:
            steps += _STEPS[func.overloadpacket](*args, **(kwargs or {}))
        self._add(Workload(operations + 1, multiplications, elements, steps))
        result = func(*args, **(kwargs or {}))
        count = sum(leaf.numel() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor))
        if func.overloadpacket is _aten.convolution:
            # A transposed one is read as a sum over the whole window, most of which meets zeros between the elements.
            weight, transposed, groups = args[1], args[6], args[8]
            channels = len(weight) // groups if transposed else weight.shape[1]
            multiplications += count * channels * math.prod(weight.shape[2:])
        self._add(self.work._replace(elements=elements + count, multiplications=multiplications))
        return result

    def _add(self, work: Workload) -> None:
        self.work = work
        if any(count > most for count, most in zip(work, self.most, strict=True)):
            raise WorkExceededError("has too many operations at this size")


def exceeds(spec: Callable[..., Any], args: Sequence[Any], operations: float) -> bool:
    """Whether a call of a spec has more operations or steps than these; what it refuses has not."""
    most = Workload(operations, math.inf, math.inf, operations)
    try:
        with torch.no_grad(), WorkCounter(most), without_fused_operations():
            spec(*args)
    except Exception as err:
        return isinstance(err, WorkExceededError)
    return False
