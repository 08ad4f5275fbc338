"""Broadcast, sum, gather and scatter over devices, with the arguments of torch.nn.parallel.comm, differentiable."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from .differentiable import Broadcast, Gather, Places, ReduceAddCoalesced, Scatter
from .fabric import DeviceName, current
from .planner import BUCKET


def broadcast(tensor: Tensor, devices: Places) -> tuple[Tensor, ...]:
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
    tensors: Sequence[Tensor], devices: Places, buffer_size: int = BUCKET
) -> list[tuple[Tensor, ...]]:
    """Every tensor on every device, a tuple per device, differentiable; small ones of one dtype travel together.

    Args:
        tensors, devices: as in `broadcast`.
        buffer_size: bytes that travel together at most; a larger tensor travels alone.

    Raises:
        ValueError: no devices, one that is not there, or buffer_size < 1.
    """
    with current().with_bucket(buffer_size).active():
        copies: tuple[Tensor, ...] = Broadcast.apply(tuple(devices), *tensors)
    count = len(tensors)
    return [tuple(copies[place * count : (place + 1) * count]) for place in range(len(devices))]


def reduce_add(inputs: Sequence[Tensor], destination: DeviceName | None = None) -> Tensor:
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
    inputs: Sequence[Sequence[Tensor]], destination: DeviceName | None = None, buffer_size: int = BUCKET
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
    first, *_ = inputs
    if not first:
        return ()
    home = first[0].device if destination is None else destination
    with current().with_bucket(buffer_size).active():
        tensors = (x for row in inputs for x in row)
        sums: tuple[Tensor, ...] = ReduceAddCoalesced.apply(home, len(first), *tensors)
    return sums


def gather(tensors: Sequence[Tensor], dim: int = 0, destination: DeviceName | None = None) -> Tensor:
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
    tensor: Tensor, devices: Places, chunk_sizes: Sequence[int] | None = None, dim: int = 0
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
