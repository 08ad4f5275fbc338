"""Moving tensors between the devices of a fabric, without autograd: checks, plans, copies, waits and sums.

What is hard here: a copy costs as much for its start as for thousands of bytes, so small tensors are packed into one
and unpacked behind the copy. Only tensors of equal dtype, device and layout may share a copy, and a tensor that need
not move must not be packed, because it would be copied for nothing. A copy in the background must be waited for before
its result is used, and its memory must not go to others before.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ...operator import torch_private as private
from ...operator.precision import compute_dtype
from .fabric import Fabric
from .planner import Piece, buckets, chunks

Device = torch.device


def place_copies(fabric: Fabric, tensors: Sequence[Tensor], devices: Sequence[Device]) -> list[list[Tensor]]:
    """Every tensor on every device, as rows by device. A strided tensor is itself at the first place on its own device.

    Tensors of one dtype and device travel together, in buckets of at most `fabric.bucket` bytes.
    """
    _require_devices("broadcast", devices)
    rows: list[list[Tensor]] = [list(tensors) for _ in devices]
    # Each tensor that is on all its devices already gets a kind of its own. Packed with others it would be copied for
    # nothing.
    moves = [any(device != x.device for device in devices) for x in tensors]
    kinds = [
        (x.dtype, x.device, x.layout, -1 if moving else i)
        for i, (x, moving) in enumerate(zip(tensors, moves, strict=True))
    ]
    for bucket in _plan_buckets(tensors, kinds, fabric.bucket):
        members = [tensors[i] for i in bucket]
        home = next((p for p, device in enumerate(devices) if device == members[0].device), None)
        if members[0].layout != torch.strided:
            home = None  # autograd has no views of a sparse tensor, as an input that is returned would have to be
        flat = None
        for place, device in enumerate(devices):
            if place == home:
                continue
            flat = _pack(members) if flat is None else flat
            for i, copy in zip(bucket, _unpack(fabric.copy(flat, device), members), strict=True):
                rows[place][i] = copy
    return rows


def place_sums(fabric: Fabric, rows: Sequence[Sequence[Tensor | None]], destination: Device) -> list[Tensor | None]:
    """The sum of each column of `rows`, a row per place, in the order of places.

    None counts as zero, and moves nothing. Sums of half types are taken in float32 and rounded once. A sum has memory
    of its own.
    """
    columns = [_unify_layout(column) for column in zip(*rows, strict=True)]
    rows = list(zip(*columns, strict=True))
    present = [tuple(x is not None for x in column) for column in columns]
    examples = [next((x for x in column if x is not None), None) for column in columns]
    present_columns = [i for i, x in enumerate(examples) if x is not None]
    likes = [x for x in examples if x is not None]
    for i, like in zip(present_columns, likes, strict=True):
        _require_alike(i, like, columns[i])
    totals: list[Tensor | None] = [None] * len(columns)
    # As in `place_copies`, each column that is at the destination already gets a kind of its own.
    moves = [any(x is not None and x.device != destination for x in columns[i]) for i in present_columns]
    kinds = [
        (x.dtype, x.layout, present[i], -1 if moving else i)
        for i, x, moving in zip(present_columns, likes, moves, strict=True)
    ]
    for bucket in _plan_buckets(likes, kinds, fabric.bucket):
        members = [present_columns[b] for b in bucket]  # columns with tensors at the same places
        by_place = ([x for i in members if (x := row[i]) is not None] for row in rows)
        total = _add_terms(fabric, [_pack(own) for own in by_place if own], destination)
        for i, part in zip(members, _unpack(total, [likes[b] for b in bucket]), strict=True):
            totals[i] = part
    return totals


def place_parts(
    fabric: Fabric, x: Tensor, devices: Sequence[Device], sizes: Sequence[int] | None, dim: int
) -> list[Tensor]:
    """Consecutive parts of x along a dim, part i on device i; a part that stays where x lives is a view of it.

    Args:
        fabric: what moves them.
        x: at least one dim, any dtype; strided or sparse.
        devices: where the parts go, at least one.
        sizes: the lengths of the parts; None for those of `torch.chunk`.
        dim: from −dims to dims − 1.

    Raises:
        ValueError: no devices, or sizes that do not add up to the axis.
        IndexError: dim is out of range.
    """
    _require_devices("scatter", devices)
    dim = _dimension("scatter", x, dim)
    lengths = _part_sizes(x, devices, sizes, dim)
    parts, waits = [], []
    for lane, (part, device) in enumerate(zip(x.split(lengths, dim), devices, strict=False)):
        if device == x.device:
            # Autograd has no views of sparse tensors.
            parts.append(part if x.layout == torch.strided else part.clone())
            continue
        # From the host all copies are started at once, each on a background stream of its destination. The main stream
        # of a destination waits below, when all copies are under way, so that its earlier work does not wait.
        side = fabric.side_stream(device, lane) if x.device == torch.device("cpu") else None
        copy = fabric.copy(part, device, side)
        parts.append(copy)
        waits.append((copy, side, fabric.stream(device)))
    for copy, side, main in waits:
        if side is not None:
            fabric.wait(main, side)
            # The copy's memory belongs to the background stream, which would use it again as soon as the copy is freed,
            # though the main stream may still read it.
            fabric.keep(copy, main)
    return parts


def place_whole(fabric: Fabric, tensors: Sequence[Tensor], destination: Device, dim: int) -> Tensor:
    """Tensors of one dtype, and of equal shapes but for `dim`, one after the other along it, on a device."""
    if not tensors:
        raise ValueError("gather: got no tensors, need at least one.")
    first = tensors[0]
    dim = _dimension("gather", first, dim)
    rest = [(x.dtype, x.layout, (*x.shape[:dim], *x.shape[dim + 1 :])) for x in tensors if x.dim() == first.dim()]
    if len(rest) < len(tensors) or len(set(rest)) > 1:
        shapes = ", ".join(f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" for x in tensors)
        raise ValueError(f"gather: got tensors {shapes} with dim={dim}, need one dtype and equal shapes but for dim.")
    # In the derivative of a vmapped scatter, some parts of a cotangent may have a batch and others not. vmap refuses to
    # copy a batched tensor into memory without a batch, so there the parts are concatenated, which works for both.
    batched = private.key_included(private.VMAP_MODE)
    if first.layout != torch.strided or batched:
        return _join([x if x.device == destination else fabric.copy(x, destination) for x in tensors], dim)
    whole = [*first.shape[:dim], sum(x.shape[dim] for x in tensors), *first.shape[dim + 1 :]]
    out = fabric.empty(first, whole, destination)
    for x, part in zip(tensors, out.split([x.shape[dim] for x in tensors], dim), strict=True):
        if x.device == destination:
            part.copy_(x)
        else:
            fabric.copy(x, destination, out=part)
    return out


def _plan_buckets(tensors: Sequence[Tensor], kinds: Sequence[object], limit: int) -> list[list[int]]:
    """The buckets of the tensors; a sparse tensor shares its bucket with no other."""
    alone = [x.layout != torch.strided for x in tensors]
    pieces = [
        Piece(x.numel() * x.element_size(), (kind, i if sparse else -1))
        for i, (x, kind, sparse) in enumerate(zip(tensors, kinds, alone, strict=True))
    ]
    return buckets(pieces, limit)


def _pack(tensors: Sequence[Tensor]) -> Tensor:
    """One tensor of all elements; of a single one, itself."""
    if len(tensors) == 1:
        return tensors[0]
    return _join([x.reshape(-1) for x in tensors], 0)


def _join(tensors: list[Tensor], dim: int) -> Tensor:
    """`torch.cat` without autocast, which would refuse some dtypes and cast others: moving must change no number."""
    kind = tensors[0].device.type
    if not torch.amp.is_autocast_available(kind):
        return torch.cat(tensors, dim)
    with torch.autocast(kind, enabled=False):
        return torch.cat(tensors, dim)


def _unpack(packed: Tensor, likes: Sequence[Tensor]) -> list[Tensor]:
    """Tensors shaped like `likes`, each in memory of its own, so that a write to one changes no other."""
    if len(likes) == 1:
        return [packed]
    parts = packed.split([x.numel() for x in likes])
    return [part.clone().view(x.shape) for part, x in zip(parts, likes, strict=True)]


def _unify_layout(column: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
    """A column of one layout: dense where any is, since a weight may have sparse and dense gradients on two devices."""
    if len({x.layout for x in column if x is not None}) < 2:
        return column
    return [x if x is None or x.layout == torch.strided else x.to_dense() for x in column]


def _add_terms(fabric: Fabric, terms: Sequence[Tensor], destination: Device) -> Tensor:
    first, *others = [x if x.device == destination else fabric.copy(x, destination) for x in terms]
    if not others:
        return first.clone() if terms[0] is first else first
    # Half types are added in float32 and rounded once at the end: rounded after every term, the result would depend on
    # the order of places, and its error would grow with their number.
    total = first.to(compute_dtype(first.dtype))
    for x in others:
        total = total + x
    return total.to(first.dtype)


def _require_devices(op: str, devices: Sequence[Device]) -> None:
    if not devices:
        raise ValueError(f"{op}: got devices=[], need at least one.")


def _require_alike(column: int, like: Tensor, tensors: Sequence[Tensor | None]) -> None:
    for place, x in enumerate(tensors):
        if x is not None and (x.shape, x.dtype, x.layout) != (like.shape, like.dtype, like.layout):
            raise ValueError(
                f"reduce_add_coalesced: got inputs[{place}][{column}] {x.dtype} of shape={list(x.shape)}, need "
                f"{like.dtype} of shape={list(like.shape)}, as on the places before."
            )


def _dimension(op: str, x: Tensor, dim: int) -> int:
    if not -x.dim() <= dim < x.dim():
        need = f"{-x.dim()} <= dim < {x.dim()}" if x.dim() else "at least one dim"
        raise IndexError(f"{op}: got dim={dim} of a tensor of {x.dim()} dims, need {need}.")
    return dim % x.dim()


def _part_sizes(x: Tensor, devices: Sequence[Device], sizes: Sequence[int] | None, dim: int) -> list[int]:
    length = x.shape[dim]
    if sizes is None:
        return chunks(length, len(devices))
    if len(sizes) != len(devices) or min(sizes) < 0 or sum(sizes) != length:
        raise ValueError(
            f"scatter: got chunk_sizes={list(sizes)} for {len(devices)} devices along dim={dim} of length {length}, "
            "need one non-negative size per device and the length as their sum."
        )
    return list(sizes)
