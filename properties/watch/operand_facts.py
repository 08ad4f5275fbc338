"""Facts of tensors in a line each, for cards: shape, range, and how many NaNs, infinities, zeros and subnormals."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

from .call import DispatcherCall, Tensor

#: Operands of a call that are described.
_MOST = 16


def describe(name: str, value: Any) -> str:
    """One line about an operand or a result."""
    if not isinstance(value, Tensor):
        text = repr(value)
        return f"{name}: {text if len(text) <= 80 else text[:77] + '...'}"
    head = f"{name}: {str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if not value.numel() or value.is_complex() or value.is_quantized or value.is_nested:
        return head
    if value.dtype == torch.bool:
        return f"{head}, {int(value.count_nonzero())} of {value.numel()} true"
    numbers = value.double() if value.dtype.is_floating_point else value
    if not value.dtype.is_floating_point:
        return f"{head}, {int(numbers.min())} to {int(numbers.max())}"
    finite = numbers[numbers.isfinite()]
    parts = [f"{float(finite.min()):.4g} to {float(finite.max()):.4g}"] if finite.numel() else []
    smallest = torch.finfo(value.dtype).smallest_normal
    counts = {
        "NaN": numbers.isnan(),
        "infinite": numbers.isinf(),
        "zero": numbers == 0,
        "subnormal": (numbers != 0) & (numbers.abs() < smallest),
    }
    parts += [f"{int(some.count_nonzero())} {word}" for word, some in counts.items() if bool(some.any())]
    return ", ".join([head, *parts])


def list_operands(call: DispatcherCall) -> list[tuple[str, Any]]:
    """The operands of a call by their names in the operation's schema; tensors of a list one by one."""
    args, kwargs = pytree.tree_unflatten(list(call.leaves), call.structure)
    arguments = getattr(getattr(call.op, "_schema", None), "arguments", ())
    names = [a.name for a in arguments] or [f"args[{i}]" for i in range(len(args))]
    pairs = [*zip(names, args, strict=False), *kwargs.items()]
    return [each for name, value in pairs for each in _parts_of(name, value)]


def describe_operands(call: DispatcherCall) -> tuple[str, ...]:
    """One line about each operand of a call."""
    return tuple([describe(*each) for each in list_operands(call) if each[1] is not None][:_MOST])


def _parts_of(name: str, value: Any) -> list[tuple[str, Any]]:
    if isinstance(value, (tuple, list)) and any(isinstance(each, Tensor) for each in value):
        return [(f"{name}[{i}]", each) for i, each in enumerate(value)]
    return [(name, value)]
