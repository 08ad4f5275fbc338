"""The first call that gives a NaN or an infinity from finite operands, or a NaN from infinities, and how it goes on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch

from ...oracles.verdicts.watched import FirstSpecial
from .call import DispatcherCall, Tensor, is_floating, kind_of
from .mapped_memory import note_read
from .operand_facts import describe_operands

_CHAIN = 64


def find_first_special(calls: Sequence[DispatcherCall], sites: Sequence[int]) -> FirstSpecial | None:
    """The first such call, or None.

    Args:
        calls: in order. sites: the site of each, by position.
    """
    for position, call in enumerate(calls):
        place = _place_of(call)
        if place is None:
            continue
        number, index = place
        value = float(_real(call.results[number]).reshape(-1)[index])
        at = [int(i) for i in torch.unravel_index(torch.tensor(index), _real(call.results[number]).shape)]
        name = "out" if len(call.results) == 1 else f"out[{number}]"
        what = f"{name}{at or ''} is {'NaN' if math.isnan(value) else 'infinite'}"
        why, chain = _why(call, number, index), _chain_of(calls[position:], sites[position:])
        return FirstSpecial(sites[position], call.number, what, why, describe_operands(call), chain)
    return None


def _place_of(call: DispatcherCall) -> tuple[int, int] | None:
    """The result and the element that is the first NaN or infinity of a call, or NaN where operands have infinities."""
    # Elements are set to −∞ on purpose: a mask is made so. What moves elements, or has none to begin with, is no cause.
    if kind_of(call) not in ("computes", "casts", "region") or not any(map(is_floating, call.tensors)):
        return None
    note_read(sum(x.numel() * x.itemsize for x in (*call.tensors, *call.results)))
    finite = all(_is_finite(x) for x in call.leaves)
    if not finite and any(_has_nan(x) for x in call.leaves):
        return None
    for number, result in enumerate(call.results):
        # A mask has infinities on purpose; a NaN that comes of them has begun here.
        if is_floating(result) and (not _is_finite(result) if finite else _has_nan(result)):
            values = _real(result)
            return number, int((values.isnan() if not finite else ~values.isfinite()).reshape(-1).int().argmax())
    return None


def _has_nan(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return is_floating(value) and bool(_real(value).isnan().any())


def _is_finite(value: Any) -> bool:
    if isinstance(value, float):
        return math.isfinite(value)
    return not is_floating(value) or bool(_real(value).isfinite().all())


def _real(value: Tensor) -> Tensor:
    if value.is_complex():
        return torch.view_as_real(value.resolve_conj())
    return value.float() if value.element_size() == 1 else value


def _why(call: DispatcherCall, number: int, index: int) -> str:
    """The reason in words: the numbers that meet there, or how large the operands are."""
    result = _real(call.results[number])
    value, largest = float(result.reshape(-1)[index]), torch.finfo(call.results[number].dtype).max
    word = "overflow" if math.isinf(value) else "no number"
    numbers = _meeting(call, result, index)
    if numbers is None:
        sizes = [f"{float(_real(x).abs().max()):.4g}" for x in call.tensors if is_floating(x) and x.numel()]
        text = f"the operands reach {', '.join(sizes)}"
    else:
        verb = call.name.partition("::")[2].rstrip("_")
        text = f"{verb}({', '.join(f'{x:.6g}' for x in numbers)}) is {value}"
    return f"{word}: {text}; {call.dtype} ends at {largest:.4g}"


def _meeting(call: DispatcherCall, result: Tensor, index: int) -> list[float] | None:
    """The operands of one element of a pointwise operation; None for another one."""
    if torch.Tag.pointwise not in getattr(call.op, "tags", ()):
        return None
    numbers = [x for x in call.leaves if isinstance(x, Tensor | float | int)]
    try:
        spread = [torch.as_tensor(_real(x) if isinstance(x, Tensor) else x).expand(result.shape) for x in numbers]
    except RuntimeError:  # An operand has elements that no element of the result has alone.
        return None
    return [float(x.reshape(-1)[index]) for x in spread]


def _chain_of(calls: Sequence[DispatcherCall], sites: Sequence[int]) -> tuple[int, ...]:
    """The sites of the forward pass through which what is not finite goes on, the first of them included."""
    chain: dict[int, None] = {}
    for call, site in zip(calls, sites, strict=True):
        if call.origin.node:
            break
        if not chain or (any(not _is_finite(x) for x in call.leaves) and any(not _is_finite(y) for y in call.results)):
            chain[site] = None
    return tuple(list(chain)[:_CHAIN])
