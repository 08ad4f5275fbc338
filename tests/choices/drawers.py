"""Kernels that draw random numbers: right ones, and ones that are biased."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from .chooser import Chooser, Kernel, normal

ROWS, WORDS, SHARE = 8, 16, 0.3


def dropout(x: Tensor) -> Tensor:
    """Dropout in training."""
    return functional.dropout(x, SHARE)


def _masked(mask: Callable[[Tensor], Tensor], scale: float = 1 / (1 - SHARE)) -> Kernel:
    return lambda x: torch.where(mask(x), x * scale, 0.0)


def _uniform(x: Tensor) -> Tensor:
    return torch.rand(x.shape)


def _with_fixed_seed(x: Tensor) -> Tensor:
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(3)) >= SHARE


_COUNTER = itertools.count()


def _of_four_seeds(x: Tensor) -> Tensor:
    return torch.rand(x.shape, generator=torch.Generator().manual_seed(next(_COUNTER) % 4)) >= SHARE


def _first_stays(x: Tensor) -> Tensor:
    mask = _uniform(x) >= SHARE
    mask[..., 0] = True
    return mask


def _of_pairs(x: Tensor) -> Tensor:
    return (torch.rand(*x.shape[:-1], (x.shape[-1] + 1) // 2).repeat_interleave(2, -1)[..., : x.shape[-1]]) >= SHARE


def layer(x: Tensor, w: Tensor) -> Tensor:
    """A layer with dropout."""
    return functional.dropout(torch.relu(x @ w), 0.5)


def sample(logits: Tensor) -> Tensor:
    """A word for every row, by its probability."""
    return torch.multinomial(torch.softmax(logits, -1), 1)


def _largest(noise: Callable[[Tensor], Tensor], temperature: float = 1.0) -> Kernel:
    return lambda logits: (logits / temperature + noise(logits)).argmax(-1, keepdim=True)


def _gumbel(logits: Tensor) -> Tensor:
    return -torch.log(torch.empty(logits.shape).exponential_())


def _by_sums(logits: Tensor) -> Tensor:
    sums = torch.softmax(logits, -1).cumsum(-1)
    return (sums < torch.rand(*logits.shape[:-1], 1) * sums[..., -1:]).sum(-1, keepdim=True)


def round_by_chance(x: Tensor) -> Tensor:
    """Rounded to eighths, up as often as the rest says."""
    return torch.floor(x * 8 + torch.rand_like(x)) / 8


def _rounded(up: Callable[[Tensor], Tensor]) -> Kernel:
    def kernel(x: Tensor) -> Tensor:
        low = torch.floor(x * 8)
        return (low + up(x * 8 - low)) / 8

    return kernel


def add_noise(x: Tensor) -> Tensor:
    """Normal noise, of a standard deviation of 0.5."""
    return x + torch.normal(0.0, 0.5, x.shape)


def _normal_by_uniform(x: Tensor) -> Tensor:
    """Box and Muller's, of two uniform numbers."""
    length, angle = torch.rand(x.shape), torch.rand(x.shape)
    return x + 0.5 * torch.sqrt(-2 * torch.log(1 - length)) * torch.cos(2 * torch.pi * angle)


def _wait(x: Tensor) -> Tensor:
    """Exponential numbers of a mean of 2, scaled."""
    return x.abs() * torch.empty_like(x).exponential_(0.5)


def _exponential(sign: float, end: float) -> Kernel:
    # Uniform numbers of a half type have no more than 11 bits, so that the largest of their logarithms are missing.
    return lambda x: x.abs() * (sign * 2 * torch.log(end - torch.rand_like(x, dtype=torch.float32))).to(x.dtype)


def _infinite(x: Tensor) -> Tensor:
    """The logarithm of a uniform number that is 0 as often as 1 of 64 is."""
    return x.abs() * -2 * torch.log(torch.floor(torch.rand_like(x) * 64) / 64)


def _numbers(dtype: torch.dtype) -> tuple[Tensor]:
    return (normal(ROWS, WORDS, dtype=dtype),)


DRAWERS = (
    Chooser(
        "dropout",
        dropout,
        _numbers,
        {
            "by comparison": _masked(lambda x: _uniform(x) >= SHARE),
            "bernoulli": _masked(lambda x: torch.bernoulli(torch.full(x.shape, 1 - SHARE)).bool()),
        },
        {
            "share of 0.35": _masked(lambda x: _uniform(x) >= 0.35),
            "not scaled": _masked(lambda x: _uniform(x) >= SHARE, 1.0),
            "drops what it should keep": _masked(lambda x: _uniform(x) < SHARE),
            "one mask for all rows": _masked(lambda x: torch.rand(x.shape[-1:]).expand(x.shape) >= SHARE),
            "seed fixed": _masked(_with_fixed_seed),
            "four seeds in turn": _masked(_of_four_seeds),
            "first of rows stays": _masked(_first_stays),
            "neighbours alike": _masked(_of_pairs),
        },
    ),
    Chooser(
        "layer with dropout",
        layer,
        lambda dtype: (*_numbers(dtype), normal(WORDS, 8, seed=1, dtype=dtype)),
        {"mask first": lambda x, w: (torch.rand(len(x), w.shape[1]) < 0.5) * 2 * torch.relu(x @ w)},
        {"drops before": lambda x, w: torch.relu(functional.dropout(x, 0.5) @ w)},
    ),
    Chooser(
        "sample",
        sample,
        _numbers,
        {"largest with noise": _largest(_gumbel), "by sums": _by_sums},
        {
            "another temperature": _largest(_gumbel, 0.5),
            "normal noise": _largest(torch.randn_like),
            "noise shared by rows": _largest(lambda x: _gumbel(x[:1])),
            "likeliest": lambda logits: logits.argmax(-1, keepdim=True),
        },
    ),
    Chooser(
        "rounding by chance",
        round_by_chance,
        _numbers,
        {"by comparison": _rounded(lambda rest: torch.rand_like(rest) < rest)},
        {
            "to nearest": _rounded(lambda rest: rest >= 0.5),
            "up as often as down": _rounded(lambda rest: (torch.rand_like(rest) < 0.5) & (rest > 0)),
            "always down": _rounded(torch.zeros_like),
            "one number for all": _rounded(lambda rest: torch.rand(()) < rest),
        },
    ),
    Chooser(
        "normal noise",
        add_noise,
        _numbers,
        {"of uniform numbers": _normal_by_uniform},
        {
            "another deviation": lambda x: x + torch.randn(x.shape),
            "one number for each row": lambda x: x + torch.normal(0.0, 0.5, (*x.shape[:-1], 1)),
            "variance for deviation": lambda x: x + torch.normal(0.0, 0.25, x.shape),
            "far from all that is drawn": lambda x: (
                x + torch.where(torch.rand(x.shape) < 0.01, 6, torch.randn(x.shape) / 2)
            ),
        },
    ),
    Chooser(
        "exponential numbers",
        _wait,
        _numbers,
        {"by logarithm": _exponential(-1, 1.0)},
        {
            "sign left out": _exponential(1, 1.0),
            "rate for mean": lambda x: x.abs() * torch.empty_like(x).exponential_(2.0),
            "infinite": _infinite,
        },
    ),
)
