"""Operands of norms on which every operation of the formula is exact, so that the order of the sums shows in no bit.

The deviations of a row are +1 and -1, as often, about a whole number: the mean is that number and the variance 1. With
an eps of 3 the reciprocal of the standard deviation is 1/2. All other operands are small whole numbers, and the number
of elements of a row is a power of two, so that no quotient rounds. What two evaluations of one formula give on such
operands must be equal in every bit, whether they go slice by slice or do a whole batch in one kernel.
"""

from __future__ import annotations

import torch
from torch import Tensor

EPS = 3.0


def whole_numbers(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Whole numbers from -3 to 3."""
    return torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def rows(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Rows along the last dim, of an even length, whose elements lie 1 above and 1 below a mean of -2, 0 or 2.

    The mean is the same in all rows, so that groups of several rows have it, too; the signs differ from row to row.
    """
    generator = torch.Generator().manual_seed(seed)
    mean = 2 * int(torch.randint(-1, 2, (), generator=generator))
    sign = 2 * torch.randint(0, 2, (*shape[:-1], 1), generator=generator) - 1
    alternating = 1 - 2 * (torch.arange(shape[-1]) % 2)
    return (mean + sign * alternating).to(dtype)


def halves(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """1/2 or 1/4: reciprocals of standard deviations."""
    return (2.0 ** torch.randint(-2, 0, shape, generator=torch.Generator().manual_seed(seed))).to(dtype)


def batched(slices: list[Tensor], dim: int | None) -> Tensor:
    """The slices stacked at a dim; the first alone where there is no batch."""
    return slices[0] if dim is None else torch.stack(slices, dim)
