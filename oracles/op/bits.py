"""Equality bit for bit: of memory that nobody may write, and of results, in which one NaN is as good as another."""

from __future__ import annotations

import torch

from .declaration import Tensor, is_float


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern of every element, as integers."""
    # Integers are compared because of floats NaN does not equal itself, and +0 equals −0.
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach().resolve_conj())
    return tensor.detach().resolve_neg().contiguous().view(getattr(torch, f"int{8 * tensor.element_size()}"))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits, on whatever devices: whether memory is as it was. NaNs by their payloads."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*map(bits, _in_one_place(a, b)))


def same_results(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits, but for the bits of a NaN: whether two computations have the same result.

    IEEE 754 leaves a NaN's sign and payload to the instruction, and a library takes other instructions for the last
    elements of a row, or for memory that is aligned otherwise.
    """
    return same_bits(a, b) or (is_float(a) and a.dtype == b.dtype and a.shape == b.shape and not different(a, b).any())


def different(a: Tensor, b: Tensor) -> Tensor:
    """Which elements of two tensors of one shape and dtype are not the same result."""
    a, b = _in_one_place(a, b)
    different = bits(a) != bits(b)
    return different & ~(a.isnan() & b.isnan()) if is_float(a) else different


def _in_one_place(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """The tensors themselves, or on the host where their devices differ."""
    return (a, b) if a.device == b.device else (a.detach().cpu(), b.detach().cpu())
