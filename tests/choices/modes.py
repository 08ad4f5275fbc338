"""Kernels that look for the value that occurs most often: which of several, and at which place, is theirs to choose."""

from __future__ import annotations

import torch
from torch import Tensor

from .chooser import Chooser, normal


def mode(x: Tensor) -> object:
    """torch's, with its indices."""
    return tuple(torch.mode(x))


def _at(x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
    return x.gather(-1, index[..., None])[..., 0], index


def _counts(x: Tensor) -> Tensor:
    return (x[..., :, None] == x[..., None, :]).sum(-1)


def _first_place(x: Tensor) -> tuple[Tensor, Tensor]:
    return _at(x, (x == torch.mode(x).values[..., None]).int().argmax(-1))


def _largest_of_ties(x: Tensor) -> tuple[Tensor, Tensor]:
    counts = _counts(x)
    most = torch.where(counts == counts.amax(-1, keepdim=True), x, -torch.inf).amax(-1, keepdim=True)
    return _at(x, (x == most).int().argmax(-1))


def _scaled(x: Tensor) -> Tensor:
    return torch.mode(x).values * 2


CHOOSERS = (
    Chooser(
        "mode",
        mode,
        lambda dtype: ((normal(6, 9) * 2).round().to(dtype),),
        {"first place": _first_place, "largest of ties": _largest_of_ties},
        {
            "median": lambda x: tuple(x.median(-1)),
            "next place": lambda x: (torch.mode(x).values, (torch.mode(x).indices + 1) % x.shape[-1]),
            "least often": lambda x: _at(x, _counts(x).argmin(-1)),
            "place in the sorted row": lambda x: tuple(torch.mode(x.sort(-1).values)),
        },
    ),
    Chooser(
        "value of the mode",
        _scaled,
        lambda dtype: ((normal(6, 9) * 2).round().to(dtype),),
        {"largest of ties": lambda x: _largest_of_ties(x)[0] * 2},
        {
            "mean": lambda x: x.mean(-1) * 2,
            "largest": lambda x: x.amax(-1) * 2,
            "without the last": lambda x: torch.mode(x[..., :-1]).values * 2,
        },
    ),
)
