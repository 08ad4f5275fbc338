"""Equality bit for bit: of memory that nobody may write, and of results, in which one NaN is as good as another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .op import Tensor, dtype_name, is_float
from .verdict import Code

if TYPE_CHECKING:  # A process that compares bits alone has no use for what a judge imports.
    from .judge import Judge


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern of every element, as integers."""
    # Integers are compared because of floats NaN does not equal itself, and +0 equals −0.
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.detach().resolve_conj())
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits: whether memory is as it was. NaNs are equal where their payloads are."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def same_results(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits, but for the bits of a NaN: whether two computations have the same result.

    IEEE 754 leaves a NaN's sign and payload to the instruction, and a library takes other instructions for the last
    elements of a row, or for memory that is aligned otherwise.
    """
    return same_bits(a, b) or (is_float(a) and a.dtype == b.dtype and a.shape == b.shape and not _different(a, b).any())


def _different(a: Tensor, b: Tensor) -> Tensor:
    """Which elements of two tensors of one shape and dtype are not the same result."""
    different = bits(a) != bits(b)
    return different & ~(a.isnan() & b.isnan()) if is_float(a) else different


def require_same(judge: Judge, got: Sequence[Any], need: Sequence[Any], path: str, code: Code = Code.BITS) -> None:
    """Violation unless two lists of outputs are equal bit for bit; see `same_results` about NaN.

    Args:
        judge: its tally counts the elements. got, need: the outputs, and what they must be.
        path: what messages call the outputs. code: of the violation.
    """
    if len(got) != len(need):
        raise judge.broken(code, f"got {len(got)} outputs, need {len(need)}", where=path)
    for i, (a, b) in enumerate(zip(got, need, strict=True)):
        if a.dtype != b.dtype:
            wrong = f"out[{i}] got dtype={dtype_name(a.dtype)}, need {dtype_name(b.dtype)}"
            raise judge.broken(code, wrong, where=path)
        if not same_results(a, b):
            differ = _different(a.detach(), b.detach()) if a.shape == b.shape else None
            lines = [f"got shape={tuple(a.shape)}, need {tuple(b.shape)}"]
            if differ is not None:
                at = tuple(int(k) for k in differ.nonzero()[0])
                lines = [f"{int(differ.sum())} of {differ.numel()} elements differ, first at {list(at)}:"]
                lines.append(f"got {float(a[at]).hex()}, need {float(b[at]).hex()}")
            raise judge.broken(code, f"out[{i}] differs in its bits", lines, where=path)
        judge.tally.count(int(a.numel()))
