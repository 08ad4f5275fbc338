"""Broadcast, sum, gather and scatter over the devices of one program, under autograd and every transform.

The autograd classes have the arguments of torch.nn.parallel's; the functions those of torch.nn.parallel.comm. All run
on the CPU, on one accelerator and on several: `fabric.current()` says what moves. Each class is linear, and the
derivative of one is a call of another, so derivatives of every order are what the calls themselves are.

What is hard here is what autograd does around the calls. An output may be an input itself, where nothing has to move;
an input may have no gradient, no tangent or no batch while another has; and a backward pass runs later than the forward
pass, when another fabric may be active. So each class keeps the fabric, and the device of every input, in its context.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad

from ...function import Function
from . import movement
from .fabric import current
from .planner import BUCKET


class Copy(Function):
    """apply(input, device): the input on a device of the fabric, in memory of its own."""

    @staticmethod
    def forward(input: Tensor, device: Any) -> Tensor:
        fabric = current()
        return fabric.copy(input, fabric.device(device))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        ctx.fabric, ctx.home, ctx.device = current(), inputs[0].device, inputs[1]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        # Autograd comes here later, and maybe on a thread of its own, where the fabric of the forward pass is not
        # active.
        with ctx.fabric.active():
            return Copy.apply(g, ctx.home), None

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, device: Any) -> Any:
        with ctx.fabric.active():
            return Copy.apply(tangent, ctx.device)

    @staticmethod
    def vmap(info: Any, in_dims: Any, input: Tensor, device: Any) -> Any:
        return Copy.apply(input, device), in_dims[0]


class Broadcast(Function):
    """apply(target_gpus, *inputs): all inputs on the first target, then all on the second, and so on.

    The first target on an input's device gets that input itself. An output whose input needs no gradient needs none.
    """

    @staticmethod
    def forward(target_gpus: Sequence[Any], *inputs: Tensor) -> tuple[Tensor, ...]:
        fabric = current()
        # In forward mode, behind an output that is an input without a tangent, torch gives no output its tangent. A
        # clone is no input.
        given = [x.clone() if _lacks_tangent(x) else x for x in inputs]
        rows = movement.place_copies(fabric, given, [fabric.device(t) for t in target_gpus])
        return tuple(x for row in rows for x in row)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        targets, *tensors = inputs
        ctx.fabric, ctx.count = current(), len(tensors)
        ctx.targets = [ctx.fabric.device(t) for t in targets]
        ctx.homes = [x.device for x in tensors]
        ctx.zeros = [_zeros_like(x) for x in tensors]
        ctx.set_materialize_grads(False)
        # An output whose input needs no gradient is marked, so that it needs none either. But torch drops the tangent
        # of a marked output, and while a dual level is open an input may have a tangent without needing a gradient. So
        # then nothing is marked.
        needed = [_forward_ad._current_level >= 0 or needs for needs in ctx.needs_input_grad[1:]]
        ctx.mark_non_differentiable(*(y for i, y in enumerate(output) if not needed[i % ctx.count]))

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        with ctx.fabric.active():
            return (None, *_summed(ctx.homes, ctx.count, grads))

    @staticmethod
    def jvp(ctx: Any, targets: Any, *tangents: Any) -> Any:
        moved = [zeros() if t is None else t for t, zeros in zip(tangents, ctx.zeros, strict=True)]
        with ctx.fabric.active():
            copies = iter(Broadcast.apply(ctx.targets, *(t for t in moved if t is not None)))
            return tuple(None if t is None else next(copies) for _ in ctx.targets for t in moved)

    @staticmethod
    def vmap(info: Any, in_dims: Any, targets: Any, *tensors: Tensor) -> Any:
        return Broadcast.apply(targets, *tensors), tuple(in_dims[1:]) * len(targets)


class ReduceAddCoalesced(Function):
    """apply(destination, num_inputs, *grads): the sums over places, on the destination.

    `grads` are num_inputs tensors of the first place, as many of the second, and so on. None counts as zero; what is
    None everywhere comes back as None.
    """

    @staticmethod
    def forward(destination: Any, num_inputs: int, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
        fabric = current()
        if num_inputs < 1 or len(grads) % num_inputs:
            raise ValueError(
                f"ReduceAddCoalesced: got num_inputs={num_inputs}, {len(grads)} tensors; need as many at every place."
            )
        rows = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        return tuple(movement.place_sums(fabric, rows, fabric.device(destination)))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        _, ctx.count, *grads = inputs
        ctx.fabric = current()
        ctx.destination = ctx.fabric.device(inputs[0])
        ctx.places = [None if g is None else g.device for g in grads]
        ctx.zeros = [None if y is None else _zeros_like(y) for y in output]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        # The adjoint of a sum over places is a copy of the cotangent on every place that had a term.
        rows = [ctx.places[i : i + ctx.count] for i in range(0, len(ctx.places), ctx.count)]
        with ctx.fabric.active():
            copies = [_copies(list(column), g) for column, g in zip(zip(*rows, strict=True), grads, strict=True)]
        return (None, None, *(copy for row in zip(*copies, strict=True) for copy in row))

    @staticmethod
    def jvp(ctx: Any, destination: Any, num_inputs: Any, *tangents: Any) -> Any:
        with ctx.fabric.active():
            sums: Any = ReduceAddCoalesced.apply(ctx.destination, ctx.count, *tangents)
        return tuple(zeros() if t is None and zeros else t for t, zeros in zip(sums, ctx.zeros, strict=True))

    @staticmethod
    def vmap(info: Any, in_dims: Any, destination: Any, num_inputs: int, *grads: Any) -> Any:
        moved = [_batch_first(g, d, info.batch_size) for g, d in zip(grads, in_dims[2:], strict=True)]
        sums: Any = ReduceAddCoalesced.apply(destination, num_inputs, *moved)
        return sums, tuple(None if s is None else 0 for s in sums)


class Gather(Function):
    """apply(target_device, dim, *inputs): the inputs one after the other along dim, on the target.

    0-dim inputs make a vector along dim 0 (or −1), with a warning; their gradients are 0-dim.
    """

    @staticmethod
    def forward(target_device: Any, dim: int, *inputs: Tensor) -> Tensor:
        fabric = current()
        if inputs and all(x.dim() == 0 for x in inputs) and dim in (0, -1):
            warnings.warn("gather: got 0-dim tensors along dim 0; the result is a vector.", stacklevel=2)
            inputs = tuple(x.reshape(1) for x in inputs)
        return movement.place_whole(fabric, inputs, fabric.device(target_device), dim)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        target, dim, *tensors = inputs
        ctx.fabric = current()
        ctx.target, ctx.dim = ctx.fabric.device(target), dim % output.dim()
        ctx.homes = [x.device for x in tensors]
        ctx.scalars = tensors[0].dim() == 0
        ctx.sizes = [1 if ctx.scalars else x.shape[ctx.dim] for x in tensors]

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        with ctx.fabric.active():
            parts: Any = Scatter.apply(ctx.homes, ctx.sizes, ctx.dim, g)
        return (None, None, *(part[0] if ctx.scalars else part for part in parts))

    @staticmethod
    def jvp(ctx: Any, target: Any, dim: Any, *tangents: Any) -> Any:
        # The forward pass has warned of 0-dim inputs; their tangents are no news.
        with ctx.fabric.active(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Gather.apply(ctx.target, ctx.dim, *tangents)

    @staticmethod
    def vmap(info: Any, in_dims: Any, target: Any, dim: int, *tensors: Tensor) -> Any:
        moved = [_batch_first(x, d, info.batch_size) for x, d in zip(tensors, in_dims[2:], strict=True)]
        # Tensors that a slice sees without dims have the batch alone. They get the axis along which a slice puts them.
        if all(x.dim() == 1 for x in moved) and dim in (0, -1):
            moved = [x.unsqueeze(1) for x in moved]
        return Gather.apply(target, _behind_batch(dim, moved[0]), *moved), 0


class Scatter(Function):
    """apply(target_gpus, chunk_sizes, dim, input): consecutive parts of the input along dim, one on each target.

    Without sizes, those of `torch.chunk`, which may be fewer than the targets. A part on the input's own device is a
    view.
    """

    @staticmethod
    def forward(target_gpus: Sequence[Any], chunk_sizes: Sequence[int] | None, dim: int, input: Tensor) -> Any:
        fabric = current()
        return tuple(movement.place_parts(fabric, input, [fabric.device(t) for t in target_gpus], chunk_sizes, dim))

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        targets, _, dim, x = inputs
        ctx.fabric = current()
        ctx.home, ctx.dim = x.device, dim % x.dim()
        # An axis that is shorter than the row of targets gives fewer parts than there are targets.
        ctx.targets = [ctx.fabric.device(t) for t in targets][: len(output)]
        ctx.sizes = [part.shape[ctx.dim] for part in output]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        with ctx.fabric.active():
            return None, None, None, Gather.apply(ctx.home, ctx.dim, *grads)

    @staticmethod
    def jvp(ctx: Any, targets: Any, sizes: Any, dim: Any, tangent: Tensor) -> Any:
        with ctx.fabric.active():
            return Scatter.apply(ctx.targets, ctx.sizes, ctx.dim, tangent)

    @staticmethod
    def vmap(info: Any, in_dims: Any, targets: Any, sizes: Any, dim: int, x: Tensor) -> Any:
        moved = x.movedim(in_dims[3], 0)
        parts: Any = Scatter.apply(targets, sizes, _behind_batch(dim, moved), moved)
        return parts, (0,) * len(parts)


def broadcast(tensor: Tensor, devices: Sequence[Any]) -> tuple[Tensor, ...]:
    """The tensor on every device, differentiable; a gradient is the sum over devices.

    Args:
        tensor: any shape, dtype and strides, or sparse.
        devices: devices, names or indices of accelerators.

    Returns:
        A tensor per device, contiguous and with memory of its own; for the first place on the tensor's device, itself.

    Raises:
        ValueError: no devices, or one that is not there.
    """
    copies: tuple[Tensor, ...] = Broadcast.apply(tuple(devices), tensor)
    return copies


def broadcast_coalesced(
    tensors: Sequence[Tensor], devices: Sequence[Any], buffer_size: int = BUCKET
) -> list[tuple[Tensor, ...]]:
    """Every tensor on every device, a tuple per device, differentiable; small ones of one dtype travel together.

    Args:
        tensors, devices: as in `broadcast`.
        buffer_size: bytes that travel together at most; a larger tensor travels alone.

    Raises:
        ValueError: no devices, one that is not there, or buffer_size < 1.
    """
    with current().with_bucket(buffer_size).active():
        copies: Any = Broadcast.apply(tuple(devices), *tensors)
    count = len(tensors)
    return [tuple(copies[place * count : (place + 1) * count]) for place in range(len(devices))]


def reduce_add(inputs: Sequence[Tensor], destination: Any = None) -> Tensor:
    """The sum of tensors of one shape and dtype on several devices, differentiable.

    Args:
        inputs: a tensor per place.
        destination: where the sum is; by default where the first is.

    Returns:
        The sum in the order of places; of half types, taken in float32 and rounded once: as accurate in any order.

    Raises:
        ValueError: no inputs, or not all of one shape, dtype and layout.
    """
    return reduce_add_coalesced([[x] for x in inputs], destination)[0]


def reduce_add_coalesced(
    inputs: Sequence[Sequence[Tensor]], destination: Any = None, buffer_size: int = BUCKET
) -> tuple[Tensor, ...]:
    """The sums over places of corresponding tensors, differentiable; small ones of one dtype travel together.

    Args:
        inputs: a row of tensors per place, of equal shapes and dtypes.
        destination: as in `reduce_add`.
        buffer_size: as in `broadcast_coalesced`.

    Returns:
        A tensor per column.

    Raises:
        ValueError: no inputs, rows of different lengths, tensors that do not fit, or buffer_size < 1.
    """
    if not inputs or len({len(row) for row in inputs}) > 1:
        lengths = [len(row) for row in inputs]
        raise ValueError(f"reduce_add_coalesced: got rows of lengths {lengths}, need at least one, all of one length.")
    if not inputs[0]:
        return ()
    home = inputs[0][0].device if destination is None else destination
    with current().with_bucket(buffer_size).active():
        tensors = (x for row in inputs for x in row)
        sums: tuple[Tensor, ...] = ReduceAddCoalesced.apply(home, len(inputs[0]), *tensors)
    return sums


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: Any = None) -> Tensor:
    """Tensors of several devices, one after the other along a dim, differentiable.

    Args:
        tensors: of one dtype, and of one shape but for dim.
        dim: from −dims to dims − 1.
        destination: a device; by default that of the first tensor. −1 or "cpu" is the host.

    Returns:
        A contiguous tensor with memory of its own. Of 0-dim tensors a vector, with a warning.

    Raises:
        ValueError: no tensors, or shapes or dtypes that do not fit. IndexError: dim is out of range.
    """
    home = tensors[0].device if destination is None and tensors else destination
    whole: Tensor = Gather.apply("cpu" if home is None else home, dim, *tensors)
    return whole


def scatter(
    tensor: Tensor, devices: Sequence[Any], chunk_sizes: Sequence[int] | None = None, dim: int = 0
) -> tuple[Tensor, ...]:
    """Consecutive parts of a tensor along a dim, one on each device, differentiable. From the host, in the background.

    Args:
        tensor: at least one dim.
        devices: as in `broadcast`.
        chunk_sizes: a size per device; by default as `torch.chunk` cuts, which may be fewer parts than devices.
        dim: from −dims to dims − 1.

    Returns:
        The parts: a view of the tensor where it stays on its device, else contiguous, with memory of its own.

    Raises:
        ValueError: no devices, or sizes that do not add up to the axis. IndexError: dim is out of range.
    """
    parts: tuple[Tensor, ...] = Scatter.apply(tuple(devices), chunk_sizes, dim, tensor)
    return parts


def _summed(homes: Sequence[torch.device], count: int, grads: Sequence[Any]) -> list[Any]:
    """Gradients of broadcast inputs: sums over places, each where its input lives; in one call per home."""
    # Inputs that live on one device are summed in one call, because only what is in one call travels together.
    found: list[Any] = [None] * count
    for home in dict.fromkeys(homes):
        own = [i for i in range(count) if homes[i] == home]
        rows = [grads[row + i] for row in range(0, len(grads), count) for i in own]
        sums: Any = ReduceAddCoalesced.apply(home, len(own), *rows)
        for i, total in zip(own, sums, strict=True):
            found[i] = total
    return found


def _copies(places: Sequence[torch.device | None], g: Any) -> list[Any]:
    """A cotangent on every place that took part."""
    there = [place for place in places if place is not None]
    if g is None or not there:
        return [None] * len(places)
    copies = iter(Broadcast.apply(there, g))
    return [None if place is None else next(copies) for place in places]


def _zeros_like(x: Tensor) -> Any:
    """What makes a tangent of zeros for a tensor: None for one of integers. It does not keep the tensor."""
    if not (x.is_floating_point() or x.is_complex()):
        return lambda: None
    shape, dtype, device, fabric = x.shape, x.dtype, x.device, current()
    return lambda: fabric.copy(torch.zeros(shape, dtype=dtype), device)


def _lacks_tangent(x: Tensor) -> bool:
    """Whether a dual level is open in which other tensors may have tangents, and this one has none."""
    return _forward_ad._current_level >= 0 and _forward_ad.unpack_dual(x).tangent is None


def _batch_first(x: Any, dim: int | None, size: int) -> Any:
    """With the batch at axis 0; a tensor without one, expanded."""
    if x is None:
        return None
    return x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)


def _behind_batch(dim: int, batched: Tensor) -> int:
    """The dim of a batched tensor, batch at axis 0, that a slice calls `dim`."""
    return dim if dim < 0 else dim + 1
