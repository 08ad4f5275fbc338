"""Operations on lists of tensors, one tensor after another.

`_foreach_NAME` does to every tensor of its first list what `NAME` does to it, with the element of every other list that
stands at the same place; what is no list is the same for all. With a last `_` it writes the tensors of the first list.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

_PREFIX = "aten::_foreach_"
Each = Callable[..., Tensor]


def _add_scaled(of_number: Each, combine: Each) -> Each:
    """x + value · (a × b), or a / b; the value may be an element of a tensor."""

    def function(x: Tensor, a: Tensor, b: Tensor, value: Any = 1) -> Tensor:
        return x + value * combine(a, b) if isinstance(value, Tensor) else of_number(x, a, b, value=value)

    return function


def _bounded(operation: Each, clamp: Each) -> Each:
    return lambda x, other: operation(x, other) if isinstance(other, Tensor) else clamp(x, other)


#: What is done to one tensor, where torch has no function of the name that takes these arguments.
_EACH: dict[str, Each] = {
    "addcmul": _add_scaled(torch.addcmul, torch.mul),
    "addcdiv": _add_scaled(torch.addcdiv, torch.div),
    "clone": lambda x, memory_format=None: x.clone(),
    "copy": lambda x, source, non_blocking=False: source.to(x.dtype).expand_as(x).clone(),
    "max": lambda x: x.amax(),
    "maximum": _bounded(torch.maximum, torch.clamp_min),
    "minimum": _bounded(torch.minimum, torch.clamp_max),
    "norm": lambda x, ord=2, dtype=None: torch.linalg.vector_norm(x, ord, dtype=dtype),
    "powsum": lambda x, ord=2, dtype=None: (x.to(dtype or x.dtype).abs() ** ord).sum(),
    "zero": torch.zeros_like,
}


def each_of(op: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """The function that stands for an operation on lists; None for any other operation."""
    name: str = op._schema.name
    if not name.startswith(_PREFIX):
        return None
    base = name.removeprefix(_PREFIX).removesuffix("_")
    function: Each = _EACH.get(base) or getattr(torch, base)
    names = [a.name for a in op._schema.arguments]
    # Numbers for the places of lists may be the elements of one tensor.
    lists = {a.name for a in op._schema.arguments if isinstance(a.type, torch.ListType) or a.name == "scalars"}
    first = next(a.name for a in op._schema.arguments if isinstance(a.type, torch.ListType))

    def for_each(*args: Any, **kwargs: Any) -> list[Tensor] | None:
        arguments = dict(zip(names, args, strict=False)) | kwargs
        results = []
        for i in range(len(arguments[first])):
            own = {name: value[i] if name in lists else value for name, value in arguments.items()}
            # torch has no derivative of what is written after it was read, so a copy is read.
            own |= {first: own[first].clone()} if op._schema.is_mutable else {}
            named = {name: own.pop(name) for name in kwargs}
            results.append(function(*own.values(), **named))
        if not op._schema.is_mutable:
            return results
        for x, y in zip(arguments[first], results, strict=True):
            x.copy_(y)
        return None

    return for_each
