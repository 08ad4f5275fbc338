"""Samplers of a vocabulary that are given their uniform numbers, and sorting."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .chooser import Chooser, normal

ROWS, WORDS = 16, 40


def _inputs(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    uniform = torch.rand(ROWS, WORDS, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return 2 * normal(ROWS, WORDS, dtype=dtype), -torch.log(-torch.log(uniform)).to(dtype)


def largest_with_noise(logits: Tensor, noise: Tensor) -> Tensor:
    """Gumbel's way to draw by logits."""
    return (logits + noise).argmax(-1)


def _by_halves(logits: Tensor, noise: Tensor) -> Tensor:
    """The larger of the largest of two halves, of ties the later one."""
    sums = (noise + logits).float()
    first, second = sums.tensor_split(2, -1)
    ones, others = first.max(-1), second.max(-1)
    later = (others.values >= ones.values) | others.values.isnan()
    return torch.where(later & ~ones.values.isnan(), others.indices + first.shape[-1], ones.indices)


def nucleus(logits: Tensor) -> tuple[Tensor, Tensor]:
    """The likeliest words whose likelier ones have at most 0.8 together, as logits in their order, and the words."""
    ordered, words = torch.softmax(logits, -1).sort(-1, descending=True)
    before = ordered.cumsum(-1) - ordered
    return torch.where(before <= 0.8, ordered, 0.0), words


def _nucleus(exclusive: bool = True, share: float = 0.8) -> Callable[..., object]:
    def kernel(logits: Tensor) -> tuple[Tensor, Tensor]:
        words = torch.argsort(logits, dim=-1, descending=True, stable=True)
        ordered = torch.softmax(logits.gather(-1, words), -1)
        sums = ordered.cumsum(-1)
        before = sums - ordered if exclusive else sums
        return torch.where(before <= share, ordered, 0.0), words

    return kernel


def order(x: Tensor) -> Tensor:
    """The order of numbers of which many are equal."""
    return torch.sort(x, dim=-1, stable=True).indices


def _last_first(x: Tensor) -> Tensor:
    return x.shape[-1] - 1 - torch.sort(x.flip(-1), dim=-1, stable=True).indices


CHOOSERS = (
    Chooser(
        "largest with noise",
        largest_with_noise,
        _inputs,
        {"by halves": _by_halves},
        {
            "without noise": lambda x, noise: x.argmax(-1),
            "noise of the row before": lambda x, noise: (x + noise.roll(1, 0)).argmax(-1),
        },
    ),
    Chooser(
        "nucleus",
        nucleus,
        lambda dtype: _inputs(dtype)[:1],
        {"by an order of logits": _nucleus()},
        {"one word short": _nucleus(exclusive=False), "another share": _nucleus(share=0.9)},
    ),
    Chooser(
        "stable order",
        order,
        lambda dtype: ((_inputs(dtype)[0] * 2).round() / 2,),
        {"in columns": lambda x: torch.sort(x.T, dim=0, stable=True).indices.T},
        {"last of ties first": _last_first},
    ),
)
