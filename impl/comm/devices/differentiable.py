"""Broadcast, sum, gather and scatter over the devices of one program, under autograd and every transform.

The autograd classes have the arguments of torch.nn.parallel's; `functions.py` calls them with those of
torch.nn.parallel.comm. All run on the CPU, on one accelerator and on several: `fabric.current()` moves the tensors.
Each class is linear, and the derivative of one is a call of another. So derivatives of every order are such calls.

What is hard here is what autograd does around the calls. An output may be an input itself, where nothing has to move;
an input may have no gradient, no tangent or no batch while another has; and a backward pass runs later than the forward
pass, when another fabric may be active. So each class keeps the fabric, and the device of every input, in its context.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor
from torch.autograd import forward_ad as _forward_ad

from ...function import Function, VmapInfo
from ...function.static_types import Ctx, LeafDims, Leaves
from ...operator.batching import in_front
from . import movement
from .fabric import DeviceName, current

Places: TypeAlias = Sequence[DeviceName]
Tensors: TypeAlias = tuple[Tensor | None, ...]
Batched: TypeAlias = tuple[Tensors, LeafDims]


class Copy(Function):
    """apply(input, device): the input on a device of the fabric, in memory of its own."""

    @staticmethod
    def forward(input: Tensor, device: DeviceName) -> Tensor:
        fabric = current()
        return fabric.copy(input, fabric.device(device))

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: Tensor) -> None:
        input, ctx.device = inputs
        ctx.fabric, ctx.home = current(), input.device

    @staticmethod
    def backward(ctx: Ctx, g: Tensor) -> tuple[Tensor, None]:
        # Autograd comes here later, and maybe on a thread of its own, where the fabric of the forward pass is not
        # active.
        with ctx.fabric.active():
            return Copy.apply(g, ctx.home), None

    @staticmethod
    def jvp(ctx: Ctx, tangent: Tensor, device: None) -> Tensor:
        with ctx.fabric.active():
            moved: Tensor = Copy.apply(tangent, ctx.device)
        return moved

    @staticmethod
    def vmap(info: VmapInfo, in_dims: LeafDims, input: Tensor, device: DeviceName) -> tuple[Tensor, int | None]:
        dim, _ = in_dims
        return Copy.apply(input, device), dim


class Broadcast(Function):
    """apply(target_gpus, *inputs): all inputs on the first target, then all on the second, and so on.

    The first target on an input's device gets that input itself. An output whose input needs no gradient needs none.
    """

    @staticmethod
    def forward(target_gpus: Places, *inputs: Tensor) -> tuple[Tensor, ...]:
        fabric = current()
        rows = movement.place_copies(fabric, inputs, [fabric.device(t) for t in target_gpus])
        return tuple(x for row in rows for x in row)

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: tuple[Tensor, ...]) -> None:
        targets, *tensors = inputs
        ctx.fabric, ctx.count = current(), len(tensors)
        ctx.targets = [ctx.fabric.device(t) for t in targets]
        ctx.homes = [x.device for x in tensors]
        ctx.set_materialize_grads(False)
        # An output whose input needs no gradient is marked, so that it needs none either. But torch drops the tangent
        # of a marked output, and while a dual level is open an input may have a tangent without needing a gradient. So
        # then nothing is marked.
        needed = [_forward_ad._current_level >= 0 or needs for needs in ctx.needs_input_grad[1:]]
        ctx.mark_non_differentiable(*(y for i, y in enumerate(output) if not needed[i % ctx.count]))

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor | None) -> Tensors:
        with ctx.fabric.active():
            return (None, *_sum_at_homes(ctx.homes, ctx.count, grads))

    @staticmethod
    def jvp(ctx: Ctx, targets: None, *tangents: Tensor | None) -> Tensors:
        with ctx.fabric.active():
            copies = iter(Broadcast.apply(ctx.targets, *(t for t in tangents if t is not None)))
            return tuple(None if t is None else next(copies) for _ in ctx.targets for t in tangents)

    @staticmethod
    def vmap(info: VmapInfo, in_dims: LeafDims, targets: Places, *tensors: Tensor) -> Batched:
        return Broadcast.apply(targets, *tensors), tuple(in_dims[1:]) * len(targets)


class ReduceAddCoalesced(Function):
    """apply(destination, num_inputs, *grads): the sums over places, on the destination.

    `grads` are num_inputs tensors of the first place, as many of the second, and so on. None counts as zero; a tensor
    that is None at every place has the sum None.
    """

    @staticmethod
    def forward(destination: DeviceName, num_inputs: int, *grads: Tensor | None) -> Tensors:
        fabric = current()
        if num_inputs < 1 or len(grads) % num_inputs:
            raise ValueError(
                f"ReduceAddCoalesced: got num_inputs={num_inputs}, {len(grads)} tensors; need as many at every place."
            )
        rows = [grads[i : i + num_inputs] for i in range(0, len(grads), num_inputs)]
        return tuple(movement.place_sums(fabric, rows, fabric.device(destination)))

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: tuple[Tensor, ...]) -> None:
        destination, ctx.count, *grads = inputs
        ctx.fabric = current()
        ctx.destination = ctx.fabric.device(destination)
        ctx.places = [None if g is None else g.device for g in grads]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor | None) -> Tensors:
        # The adjoint of a sum over places is a copy of the cotangent on every place that had a term.
        rows = [ctx.places[i : i + ctx.count] for i in range(0, len(ctx.places), ctx.count)]
        with ctx.fabric.active():
            copies = [_copies(list(column), g) for column, g in zip(zip(*rows, strict=True), grads, strict=True)]
        return (None, None, *(copy for row in zip(*copies, strict=True) for copy in row))

    @staticmethod
    def jvp(ctx: Ctx, destination: None, num_inputs: None, *tangents: Tensor | None) -> Tensors:
        with ctx.fabric.active():
            sums: Tensors = ReduceAddCoalesced.apply(ctx.destination, ctx.count, *tangents)
        return sums

    @staticmethod
    def vmap(
        info: VmapInfo, in_dims: LeafDims, destination: DeviceName, num_inputs: int, *grads: Tensor | None
    ) -> Batched:
        _, _, *dims = in_dims
        batched = zip(grads, dims, strict=True)
        moved = [in_front(g, dim, info.batch_size) for g, dim in batched]
        sums: Tensors = ReduceAddCoalesced.apply(destination, num_inputs, *moved)
        return sums, tuple(None if s is None else 0 for s in sums)


class Gather(Function):
    """apply(target_device, dim, *inputs): the inputs one after the other along dim, on the target.

    0-dim inputs make a vector along dim 0 (or −1), with a warning; their gradients are 0-dim.
    """

    @staticmethod
    def forward(target_device: DeviceName, dim: int, *inputs: Tensor) -> Tensor:
        fabric = current()
        if inputs and all(x.dim() == 0 for x in inputs) and dim in (0, -1):
            warnings.warn("gather: got 0-dim tensors along dim 0; the result is a vector.", stacklevel=2)
            inputs = tuple(x.reshape(1) for x in inputs)
        return movement.place_whole(fabric, inputs, fabric.device(target_device), dim)

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: Tensor) -> None:
        target, dim, *tensors = inputs
        ctx.fabric = current()
        ctx.target, ctx.dim = ctx.fabric.device(target), dim
        ctx.homes = [x.device for x in tensors]
        ctx.scalars = tensors[0].dim() == 0
        ctx.sizes = [1 if ctx.scalars else x.shape[ctx.dim] for x in tensors]

    @staticmethod
    def backward(ctx: Ctx, g: Tensor) -> Tensors:
        with ctx.fabric.active():
            parts: tuple[Tensor, ...] = Scatter.apply(ctx.homes, ctx.sizes, ctx.dim, g)
        return (None, None, *(part[0] if ctx.scalars else part for part in parts))

    @staticmethod
    def jvp(ctx: Ctx, target: None, dim: None, *tangents: Tensor) -> Tensor:
        # The forward pass has warned of 0-dim inputs. The same warning for their tangents would tell nobody anything.
        with ctx.fabric.active(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            moved: Tensor = Gather.apply(ctx.target, ctx.dim, *tangents)
        return moved

    @staticmethod
    def vmap(info: VmapInfo, in_dims: LeafDims, target: DeviceName, dim: int, *tensors: Tensor) -> tuple[Tensor, int]:
        moved = [in_front(x, d, info.batch_size) for x, d in zip(tensors, in_dims[2:], strict=True)]
        # Tensors that have no dims in a slice have only that of the batch here. They get an axis along which they can
        # be put one after the other.
        if all(x.dim() == 1 for x in moved) and dim in (0, -1):
            moved = [x.unsqueeze(1) for x in moved]
        return Gather.apply(target, _behind_batch(dim), *moved), 0


class Scatter(Function):
    """apply(target_gpus, chunk_sizes, dim, input): consecutive parts of the input along dim, one on each target.

    Without sizes, those of `torch.chunk`, which may be fewer than the targets. A part on the input's own device is a
    view.
    """

    @staticmethod
    def forward(target_gpus: Places, chunk_sizes: Sequence[int] | None, dim: int, input: Tensor) -> tuple[Tensor, ...]:
        fabric = current()
        return tuple(movement.place_parts(fabric, input, [fabric.device(t) for t in target_gpus], chunk_sizes, dim))

    @staticmethod
    def setup_context(ctx: Ctx, inputs: Leaves, output: tuple[Tensor, ...]) -> None:
        targets, _, dim, x = inputs
        ctx.fabric = current()
        ctx.home, ctx.dim = x.device, dim
        # An axis that is shorter than the row of targets gives fewer parts than there are targets.
        ctx.targets = [ctx.fabric.device(t) for t in targets][: len(output)]
        ctx.sizes = [part.shape[ctx.dim] for part in output]

    @staticmethod
    def backward(ctx: Ctx, *grads: Tensor) -> tuple[None, None, None, Tensor]:
        with ctx.fabric.active():
            return None, None, None, Gather.apply(ctx.home, ctx.dim, *grads)

    @staticmethod
    def jvp(ctx: Ctx, targets: None, sizes: None, dim: None, tangent: Tensor) -> tuple[Tensor, ...]:
        with ctx.fabric.active():
            moved: tuple[Tensor, ...] = Scatter.apply(ctx.targets, ctx.sizes, ctx.dim, tangent)
        return moved

    @staticmethod
    def vmap(
        info: VmapInfo, in_dims: LeafDims, targets: Places, sizes: Sequence[int] | None, dim: int, x: Tensor
    ) -> Batched:
        *_, batch_dim = in_dims
        assert batch_dim is not None, "the only tensor among the arguments is batched"
        moved = x.movedim(batch_dim, 0)
        parts: tuple[Tensor, ...] = Scatter.apply(targets, sizes, _behind_batch(dim), moved)
        return parts, (0,) * len(parts)


def _sum_at_homes(homes: Sequence[torch.device], count: int, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Gradients of broadcast inputs: sums over places, each where its input lives; in one call per home."""
    # Inputs that live on one device are summed in one call, because only what is in one call travels together.
    gradients: list[Tensor | None] = [None] * count
    for home in dict.fromkeys(homes):
        own = [i for i in range(count) if homes[i] == home]
        rows = [grads[row + i] for row in range(0, len(grads), count) for i in own]
        sums: Tensors = ReduceAddCoalesced.apply(home, len(own), *rows)
        for i, total in zip(own, sums, strict=True):
            gradients[i] = total
    return gradients


def _copies(places: Sequence[torch.device | None], g: Tensor | None) -> list[Tensor | None]:
    """A cotangent on every place that has a term of the sum; None for the other places."""
    there = [place for place in places if place is not None]
    if g is None or not there:
        return [None] * len(places)
    copies = iter(Broadcast.apply(there, g))
    return [None if place is None else next(copies) for place in places]


def _behind_batch(dim: int) -> int:
    """The dim of a batched tensor, batch at axis 0, that a slice calls `dim`."""
    return dim if dim < 0 else dim + 1
