"""How a spec of the collection is made: always the same, in any dtype."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: (spec, *args): what makes them may draw numbers of torch's generator, which is seeded by the name of the spec.
Making = Callable[[], tuple[Any, ...]]


@dataclass(frozen=True)
class Example:
    """A spec and the arguments of one call, all in one dtype.

    Attributes:
        name: in the collection. spec: a function or module. args: of one call.
    """

    name: str
    spec: Callable[..., Any]
    args: tuple[Any, ...]


def make_example(name: str, making: Making, dtype: torch.dtype = torch.float32) -> Example:
    """The spec of that name with its floating parameters, buffers and arguments in a dtype."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))
        spec, *args = making()
    if isinstance(spec, torch.nn.Module):
        spec = spec.to(dtype)
    return Example(name, spec, tuple(pytree.tree_map(lambda leaf: _cast(leaf, dtype), args)))


def _cast(leaf: Any, dtype: torch.dtype) -> Any:
    return leaf.to(dtype) if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf
