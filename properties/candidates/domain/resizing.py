"""Tensors of other shapes like the given ones: numbers repeated, and integers that keep their role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from .integer_roles import IntegerRole, is_integer
from .symbols import Shapes

Tensor = torch.Tensor


def resize_all(
    tensors: Sequence[Tensor], shapes: Shapes, roles: Mapping[int, IntegerRole] | None = None
) -> list[Tensor]:
    """The given tensors with other shapes: what holds of every element goes on to hold.

    Args:
        tensors, shapes: of a call, and the new shapes. roles: of tensors of integers, by their positions.
    """
    roles = roles or {}
    before = tuple(tuple(t.shape) for t in tensors)
    return [_resized(t, shapes, i, roles.get(i), before) for i, t in enumerate(tensors)]


def _resized(tensor: Tensor, shapes: Shapes, place: int, role: IntegerRole | None, before: Shapes) -> Tensor:
    shape = shapes[place]
    other = tensor.detach()
    if not tensor.numel():
        return other.new_zeros(shape)
    if role is not None and role.rises and len(shape) == 1 and shape[0]:
        other = _longer_or_shorter(other, shape[0])
    for d, n in enumerate(shape):
        if other.shape[d] != n:
            other = other.index_select(d, torch.arange(n, device=other.device) % other.shape[d])
    if role is not None and is_integer(tensor):
        other = _at_other_extents(other, role, shapes, before)
    return other.clone()


def _longer_or_shorter(offsets: Tensor, count: int) -> Tensor:
    """Offsets of another number of groups: further ones are empty."""
    if count >= len(offsets):
        return torch.cat([offsets, offsets[-1:].expand(count - len(offsets))])
    return torch.cat([offsets[: count - 1], offsets[-1:]])


def _at_other_extents(values: Tensor, role: IntegerRole, shapes: Shapes, before: Shapes) -> Tensor:
    for i, d in role.sums_to[:1]:
        whole = int(values.sum())
        values = torch.div(values * shapes[i][d], max(whole, 1), rounding_mode="floor")
        if len(values):
            values[-1] += shapes[i][d] - int(values.sum())
    for i, d in role.into[:1]:
        old, new = before[i][d], shapes[i][d]
        if old == new:
            continue
        if role.kind == "lengths":
            values = values.clamp(max=new)
        elif role.kind == "offsets" or role.rises:
            values = torch.div(values * new, max(old, 1), rounding_mode="floor")
        else:
            values = torch.where(values >= 0, (values - role.first) % max(new, 1) + role.first, values)
    return values
