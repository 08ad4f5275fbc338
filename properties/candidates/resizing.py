"""Arguments like the given ones with other sizes: larger and smaller ones, and none."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from .arguments import CallArguments, Tensor
from .sequences import sizes_of_values
from .specification import SpecError, Specification


def resizable(spec: Specification, arguments: CallArguments) -> list[int]:
    """The sizes of the arguments that may be replaced: no parameter or buffer has them, and no integer that the spec
    reads depends on them.
    """
    fixed = {n for value in spec.state.values() for n in value.shape}
    fixed |= sizes_of_values(arguments.tensors) if spec.reads_values else set()
    return list(dict.fromkeys(n for t in arguments.tensors for n in t.shape if n > 1 and n not in fixed))


def resize(tensors: Sequence[Tensor], old: int, new: int, most: int) -> list[tuple[int, ...]] | None:
    """The shapes of tensors with `new` in place of `old`; None if these are equal, or have more than `most` elements
    together.
    """
    shapes = [tuple(new if n == old else n for n in t.shape) for t in tensors]
    return None if old == new or sum(map(math.prod, shapes)) > most else shapes


def resized_tensor(tensor: Tensor, shape: tuple[int, ...], rng: Any) -> Tensor:
    """A tensor of another shape; integers are drawn from the given ones, because only these are known to be in range.
    If an extent that they index becomes smaller, the spec itself refuses them.
    """
    if tensor.dtype.is_floating_point or not tensor.numel():
        return tensor.new_zeros(shape)
    if tensor.shape == shape:
        return tensor
    places = torch.from_numpy(rng.integers(tensor.numel(), size=shape))
    return tensor.detach().reshape(-1)[places.reshape(-1)].reshape(shape)


def empty_arguments(spec: Specification, arguments: CallArguments) -> Iterator[CallArguments]:
    """The arguments with 0 in place of the first size at which the spec takes that and computes finite numbers; none if
    it takes none.
    """
    for old in resizable(spec, arguments):
        changed = (t.detach().new_zeros([0 if n == old else n for n in t.shape]) if old in t.shape else t
                   for t in arguments.tensors)  # fmt: skip
        empty = arguments.with_tensors(list(changed))
        try:
            outputs = spec.run(empty, spec.state).outputs
        except SpecError:
            continue
        # torch does not say of numbers of eight bits whether they are finite.
        wide = [y.float() if y.element_size() == 1 else y for y in outputs]
        if all(bool(y.isfinite().all()) for y in wide):
            yield empty
            return
