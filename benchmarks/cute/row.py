"""What a judgement of a library's kernels is made of, and the tensors that rows share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch

ROWS_OF_X, COLUMNS, EPS = 6, 256, 1e-6
#: The contract that allows tanh.approx, and why others reject it: `proofs.py` has the numbers.
APPROXIMATE, TANH = "torch+approximate", "tanh.approx, and all of 1 + tanh(x) is its error where x is negative"


class Row(NamedTuple):
    """One judgement.

    Attributes:
        make: gives candidate and spec; it imports the library. inputs: of a dtype, on the device.
        contract: what is allowed.
        why: why it is not accepted, read by hand; `proofs.py` shows it without opassay. "" where it has to be.
        dtypes: that it is judged in. verdict: the wanted one, where there is a reason.
        domain: what the spec does not say: extents that belong together, and operands that may be written.
    """

    make: Callable[[], tuple[Callable[..., Any], Callable[..., Any]]]
    inputs: Callable[[torch.dtype], tuple[Any, ...]]
    contract: str = "torch"
    why: str = ""
    dtypes: tuple[str, ...] = ("float32", "bfloat16")
    verdict: str = "rejected"
    domain: Mapping[str, tuple[str, ...]] = MappingProxyType({})


def normal(*shape: int, dtype: torch.dtype, grad: bool = True) -> torch.Tensor:
    """Normal numbers of a shape and dtype, on the device."""
    return torch.randn(shape).to(dtype).cuda().requires_grad_(grad)


def rows_alone(dtype: torch.dtype) -> tuple[Any, ...]:
    """Six rows of 256 normal numbers."""
    return (normal(ROWS_OF_X, COLUMNS, dtype=dtype),)


def rows_with(dtype: torch.dtype, *, vectors: int = 0, matrices: int = 0) -> tuple[Any, ...]:
    """Six rows, as many matrices of their shape, and as many vectors of a row's length."""
    shapes = [(ROWS_OF_X, COLUMNS)] * (1 + matrices) + [(COLUMNS,)] * vectors
    return tuple(normal(*shape, dtype=dtype) for shape in shapes)
