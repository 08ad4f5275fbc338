"""The ops that update running statistics and the count of batches, the only ones of impl that mutate their arguments.

Their schemas say so, and they return nothing. So functorch lets them through where it refuses an aten op in place, and
a tensor that a transformed function has captured is written as the untransformed call writes it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..operator import torch_private as private
from ..operator.operator import LIBRARY
from ..operator.precision import HALF
from .kernels_cpu.operands import Outputs

# These are torch's own words for the same mistake, so that a user who knows the message, or searches for
# it, finds the same explanation.
NOT_BATCHED = (
    "Batch norm got a batched tensor as input while the running_mean or running_var, which will be updated in place,"
    " were not batched.\nIf you are using a module and do not need eval mode, please set `track_running_stats` to be"
    " False."
)

_is_alias_of = private.is_alias_of
_PLAIN = frozenset((Tensor, torch.nn.Parameter))


def _update_statistics(running_mean: Tensor, running_var: Tensor, mean: Tensor, var: Tensor, momentum: float) -> None:
    """running = (1 - momentum) running + momentum moment, rounded once; a moment broadcasts against its statistic.

    Args:
        running_mean, running_var: (*batch, C), written in place.
        mean, var: the moments of the batch, in any dtype.
        momentum: the weight of the moments.

    Raises:
        RuntimeError: elements of a statistic share memory.
    """
    # Both are checked before either is written, so that a refused call changes nothing.
    for label, running in (("running_mean", running_mean), ("running_var", running_var)):
        if 0 in running.stride() and any(
            not step and size > 1 for step, size in zip(running.stride(), running.shape, strict=False)
        ):
            raise RuntimeError(
                f"batch norm: got {label} of strides={list(running.stride())}, whose elements share memory, need one"
                " with memory for each element to write to, as clone() makes it."
            )
    # The moments depend on the input. If this were recorded, the buffers would keep the graph of every
    # batch alive.
    with torch.no_grad():
        for running, moment in ((running_mean, mean), (running_var, var)):
            # In half precision both products and the sum would be rounded. In float32 only the result is.
            if running.dtype in HALF:
                running.copy_(running.float().mul_(1.0 - momentum).add_(moment, alpha=momentum))
            else:
                running.mul_(1.0 - momentum).add_(moment, alpha=momentum)


def _update_statistics_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[None, None]:
    """Batched statistics in one call; a batched moment cannot be written to a statistic that is not batched."""
    for statistic, moment in ((0, 2), (1, 3)):
        # There is one statistic, but a moment per batch index, of which no single one could be written to it.
        if in_dims[statistic] is None and in_dims[moment] is not None:
            raise RuntimeError(NOT_BATCHED)
    *tensors, momentum = args
    mean, var, *moments = (t if dim is None else t.movedim(dim, 0) for t, dim in zip(tensors, in_dims, strict=False))
    for i, running in enumerate((mean, var)):
        moment = moments[i]
        if in_dims[2 + i] is not None and moment.dim() < running.dim():  # inner batch dims that it does not have
            inner = (1,) * (running.dim() - moment.dim())
            moments[i] = moment.reshape(moment.shape[0], *inner, *moment.shape[1:])
    update(mean, var, *moments, momentum)
    return None, None


def _count_batch(num_batches_tracked: Tensor) -> None:
    with torch.no_grad():
        num_batches_tracked.add_(1)


def _count_batch_vmap(info: Any, in_dims: Any, num_batches_tracked: Tensor) -> tuple[None, None]:
    count(num_batches_tracked)
    return None, None


def _only_plain(args: Any) -> bool:
    """Whether a call may go straight to the kernel: plain tensors alone, no transform, mode or tracer."""
    if torch.compiler.is_compiling() or private.transforms_active() or private.dispatch_mode_count():
        return False
    # The types are compared exactly, because a subclass may define __torch_dispatch__ and would miss the
    # call.
    return all(type(t) in _PLAIN for t in args if not isinstance(t, float))


def _of_no_outputs(*args: Any) -> None:
    return None


def _define(schema: str, kernel: Any, vmap: Any) -> Any:
    """Registers an op that mutates and returns nothing; the function to call it by."""
    name = LIBRARY.define(schema)
    qualified = f"{LIBRARY.ns}::{name}"
    overload = getattr(getattr(torch.ops, LIBRARY.ns), name).default
    LIBRARY.impl(name, kernel, "CPU")
    LIBRARY.impl(name, kernel, "CUDA")
    # An op that returns nothing has no shapes to tell, but a tracer asks for a fake all the same.
    torch.library.register_fake(qualified, _of_no_outputs, lib=LIBRARY)
    torch.library.register_vmap(qualified, vmap, lib=LIBRARY)

    # No derivative flows through an update. Without a kernel for Autograd torch's fallback would warn about
    # a missing derivative when a backward pass comes by.
    def autograd_kernel(*args: Any) -> None:
        with private.below_autograd():
            overload(*args)

    LIBRARY.impl(name, autograd_kernel, "Autograd")

    def call(*args: Any) -> None:
        (kernel if _only_plain(args) else overload)(*args)

    return call


update = _define(
    "update_running_statistics(Tensor(a!) running_mean, Tensor(b!) running_var, Tensor mean, Tensor var,"
    " float momentum) -> ()",
    _update_statistics,
    _update_statistics_vmap,
)
count = _define("count_batch(Tensor(a!) num_batches_tracked) -> ()", _count_batch, _count_batch_vmap)


class Running(NamedTuple):
    """What a training forward updates: running mean and variance, (C,), by a momentum."""

    mean: Tensor
    var: Tensor
    momentum: float


Training = Callable[[Tensor, Tensor | None, Tensor | None, float], tuple[Tensor, Tensor, Tensor, Tensor]]
TrainingAndUpdate = Callable[[Tensor, Tensor | None, Tensor | None, float, Running], Outputs]


def updating(training: Training) -> TrainingAndUpdate:
    """A training forward, or its kernel, and then the update by its moments."""

    def trained(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, running: Running) -> Outputs:
        out, mean, invstd, moments = training(x, weight, bias, eps)
        mean_of_batch, var_of_batch = moments.unbind()
        update(running.mean, running.var, mean_of_batch, var_of_batch, running.momentum)
        return out, mean, invstd

    return trained


def in_place(running: Running, *operands: Tensor | None) -> bool:
    """Whether a kernel that reads the operands may write the running statistics; where not, `update` must.

    A kernel knows no subclass, tangent or inference tensor, and no strides. And where a statistic shares its memory
    with what is read, the order of reading and writing decides the result.
    """
    mean, var, _ = running
    if type(mean) is not Tensor or type(var) is not Tensor or forward_ad._current_level >= 0:
        return False
    if not (mean.is_contiguous() and var.is_contiguous()) or mean.is_inference() or var.is_inference():
        return False
    if _is_alias_of(mean, var):
        return False
    for operand in operands:
        if operand is not None and (_is_alias_of(operand, mean) or _is_alias_of(operand, var)):
            return False
    return True
