"""Laws and refusals of broadcast, reduce_add_coalesced, gather and scatter, by op."""

from __future__ import annotations

from typing import Any

import torch

from ...declaring import laws, refusals
from ...declaring.signature import ArgumentsByName

Tensor = torch.Tensor
Tensors = tuple[Tensor, ...]


def _itself() -> tuple[ArgumentsByName]:
    return ({},)


def _opposite(first: Tensors) -> Tensors:
    return tuple(-y for y in first)


def _rotated(num_inputs: int, args: Tensors) -> ArgumentsByName:
    """The first place last."""
    return {"args": [*args[num_inputs:], *args[:num_inputs]]}


def _everywhere(outputs: Tensors, *, places: int, args: Tensors) -> tuple[Any, Any]:
    return outputs, args * places


def _cut_again(outputs: Tensors, *, dim: int, args: Tensors) -> tuple[Any, Any]:
    (whole,) = outputs
    sizes = [x.shape[dim] if x.dim() else 1 for x in args]
    return [y.reshape(x.shape) for y, x in zip(whole.split(sizes, dim), args, strict=True)], args


def _together_again(outputs: Tensors, *, dim: int, input: Tensor) -> tuple[Any, Any]:
    return (torch.cat(outputs, dim),), (input,)


_OPPOSITE = "the opposite of the opposite inputs"
_NEGATION = laws.pair(_OPPOSITE, lambda args: {"args": [-x for x in args]}, _opposite, exact=True)
LAWS = {
    "broadcast": (_NEGATION, laws.law("on every place what is given", _itself, _everywhere, exact=True)),
    "reduce_add_coalesced": (_NEGATION, laws.pair("places in another order", _rotated)),
    "gather": (_NEGATION, laws.law("cut again, the parts", _itself, _cut_again, exact=True)),
    "scatter": (
        laws.pair(_OPPOSITE, lambda input: {"input": -input}, _opposite, exact=True),
        laws.law("together again, the whole", _itself, _together_again, exact=True),
    ),
}


def _wider(args: Tensors) -> ArgumentsByName | None:
    """The last tensor with one axis more than the others."""
    *others, last = args
    return None if not others or others[0].dim() == 0 else {"args": [*others, last.unsqueeze(0)]}


def _wider_sum(num_inputs: int, args: Tensors) -> ArgumentsByName | None:
    *others, last = args
    return None if len(args) <= num_inputs else {"args": [*others, last.unsqueeze(0)]}


def _other_dtype(args: Tensors) -> ArgumentsByName | None:
    *others, last = args
    other = torch.float32 if last.dtype == torch.float64 else torch.float64
    return {"args": [*others, last.to(other)]} if others else None


REFUSALS = {
    "broadcast": (refusals.value("places", 0, ValueError, "devices=[]"),),
    "reduce_add_coalesced": (
        refusals.refusal("shapes that differ between places", _wider_sum, ValueError, "shape=", "need"),
    ),
    "gather": (
        refusals.refusal("dims that differ", _wider, ValueError, "dim=", "need"),
        refusals.refusal("dtypes that differ", _other_dtype, ValueError, "need one dtype"),
        refusals.refusal("dim too large", lambda args: {"dim": max(x.dim() for x in args) + 1}, IndexError, "dim="),
    ),
    "scatter": (
        refusals.wrong("chunk_sizes", "a size too many", lambda sizes: (*sizes, 1), ValueError, "chunk_sizes=", "sum"),
        refusals.wrong("chunk_sizes", "a negative size", lambda sizes: (-1, *sizes, 1), ValueError, "non-negative"),
        refusals.value("chunk_sizes", (), ValueError, "devices=[]"),
        refusals.refusal("dim too large", lambda input: {"dim": input.dim()}, IndexError, "dim="),
    ),
}
