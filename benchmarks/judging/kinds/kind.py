"""What a kernel of a kind is asked to do, in plain PyTorch, and others that say to do it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

Way = Callable[..., Any]
Draw = Callable[[torch.dtype], tuple[Any, ...]]
HALVES = (torch.bfloat16, torch.float16)
NAN_AND_INF = ("SPECIAL:nan", "SPECIAL:inf")


@dataclass(frozen=True)
class Kind:
    """A kind of kernel, at a size that is cut down.

    Attributes:
        name: of the kind. spec: what it means. inputs: (dtype) -> arguments.
        right: other evaluations, which compute half types in float32. wrong: mistakes.
        dtypes: of the floating arguments.
        skips: questions that right kernels are not asked, because they multiply by zero what the spec leaves out, or
            add up what becomes infinite, and so have a NaN where the spec has none.
        unseen: mistakes that the given call need not show, as it has no empty group: they are asked everything.
    """

    name: str
    spec: Way
    inputs: Draw
    right: Mapping[str, Way]
    wrong: Mapping[str, Way]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, *HALVES)
    skips: tuple[str, ...] = ()
    unseen: Mapping[str, Way] = field(default_factory=dict)


def mistakes(spec: Way, **knobs: Any) -> dict[str, Way]:
    """The spec with one of its keywords at another value, for each."""
    return {f"{word}={value}": functools.partial(spec, **{word: value}) for word, value in knobs.items()}


def normal(*shape: int, seed: int = 0, scale: float = 1.0, dtype: torch.dtype = torch.float32) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)


def normals(*shapes: tuple[int, ...]) -> Draw:
    """A draw of normal numbers of some shapes."""
    return lambda dtype: tuple(normal(*shape, seed=seed, dtype=dtype) for seed, shape in enumerate(shapes))


def beside(draw: Draw, *others: Tensor) -> Draw:
    """A draw with tensors after it, whose dtypes stay."""
    return lambda dtype: (*draw(dtype), *others)


def in_float32(way: Way) -> Way:
    """A kernel that computes half types in float32, and rounds its outputs once."""

    @functools.wraps(way)
    def rounded_once(*args: Any) -> Any:
        dtype = next(t.dtype for t in args if isinstance(t, Tensor) and t.is_floating_point())
        if dtype not in HALVES:
            return way(*args)

        def widened(t: Any) -> Any:
            return t.float() if isinstance(t, Tensor) and t.dtype == dtype else t

        def stored(t: Any) -> Any:
            return t.to(dtype) if t.is_floating_point() else t

        outputs = way(*map(widened, args))
        return tuple(map(stored, outputs)) if isinstance(outputs, tuple) else stored(outputs)

    return rounded_once
