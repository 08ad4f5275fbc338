"""Laws and refusals of broadcast, reduce_add_coalesced, gather and scatter, by op."""

from __future__ import annotations

from typing import Any

import torch

from ...oracles.op import Law, Refusal

Args = tuple[Any, ...]


def _negated(args: Args, rng: Any) -> Args:
    return tuple(-a if isinstance(a, torch.Tensor) else a for a in args)


def _opposite(outputs: Args) -> Args:
    return tuple(-y for y in outputs)


def _same(outputs: Args) -> Args:
    return outputs


def _rotated(args: Args, rng: Any) -> Args:
    """The first place last."""
    count, *tensors = args
    return count, *tensors[count:], *tensors[:count]


def _parts_of(whole: Any, dim: int, parts: Any) -> Any:
    sizes = [1] * len(parts) if parts[0].dim() == 0 else [x.shape[dim] for x in parts]
    return [y.reshape(x.shape) for y, x in zip(whole.split(sizes, dim), parts, strict=True)]


def _one(args: Args, rng: Any) -> tuple[Args]:
    return (args,)


_NEGATION = Law.pair("the opposite of the opposite inputs", _negated, _opposite, exact=True)
LAWS = {
    "broadcast": (
        _NEGATION,
        Law("on every place what is given", _one, lambda args, y: (y, args[1:] * args[0]), exact=True),
    ),
    "reduce_add_coalesced": (
        _NEGATION,
        Law.pair("places in another order", _rotated, _same, exact=False),
    ),
    "gather": (
        _NEGATION,
        Law("cut again, the parts", _one, lambda args, y: (_parts_of(y[0], args[0], args[1:]), args[1:]), exact=True),
    ),
    "scatter": (
        _NEGATION,
        Law("together again, the whole", _one, lambda args, y: ((torch.cat(y, args[1]),), args[2:]), exact=True),
    ),
}  # fmt: skip


def _wider(args: Args) -> Args | None:
    """The last tensor with one axis more than the others."""
    if len(args) < 3 or args[1].dim() == 0:
        return None
    return (*args[:-1], args[-1].unsqueeze(0))


def _wider_sum(args: Args) -> Args | None:
    return None if len(args) <= 1 + args[0] else (*args[:-1], args[-1].unsqueeze(0))


def _other_dtype(args: Args) -> Args | None:
    other = torch.float32 if args[-1].dtype == torch.float64 else torch.float64
    return None if len(args) < 3 else (*args[:-1], args[-1].to(other))


REFUSALS = {
    "broadcast": (Refusal("no places", lambda args: (0, *args[1:]), ValueError, ("devices=[]",)),),
    "reduce_add_coalesced": (Refusal("shapes that differ between places", _wider_sum, ValueError, ("shape=", "need")),),
    "gather": (
        Refusal("dims that differ", _wider, ValueError, ("dim=", "need")),
        Refusal("dtypes that differ", _other_dtype, ValueError, ("need one dtype",)),
        Refusal("dim too large", lambda args: (args[1].dim() + 1, *args[1:]), IndexError, ("dim=",)),
    ),
    "scatter": (
        Refusal("a size too many", lambda args: ((*args[0], 1), *args[1:]), ValueError, ("chunk_sizes=", "sum")),
        Refusal("a negative size", lambda args: ((-1, *args[0], 1), *args[1:]), ValueError, ("non-negative",)),
        Refusal("no places", lambda args: ((), *args[1:]), ValueError, ("devices=[]",)),
        Refusal("dim too large", lambda args: (args[0], args[2].dim(), args[2]), IndexError, ("dim=",)),
    ),
}
