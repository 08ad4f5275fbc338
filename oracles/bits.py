"""Equality bit for bit: of two tensors, and of two lists of outputs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from .op import Tensor, dtype_name
from .verdict import Code

if TYPE_CHECKING:  # A process that compares bits alone has no use for what a judge imports.
    from .judge import Judge


def bits(tensor: Tensor) -> Tensor:
    """The bit pattern of every element, as integers."""
    # Integers are compared because of floats NaN does not equal itself, and +0 equals −0.
    kinds = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return tensor.detach().contiguous().view(kinds[tensor.element_size()])


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal dtype, shape and bits; NaNs with equal payloads are equal."""
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(bits(a), bits(b))


def require_same(judge: Judge, got: Sequence[Any], need: Sequence[Any], path: str, code: Code = Code.BITS) -> None:
    """Violation unless two lists of outputs are equal bit for bit.

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
        if not same_bits(a, b):
            differ = (bits(a) != bits(b)) if a.shape == b.shape else None
            lines = [f"got shape={tuple(a.shape)}, need {tuple(b.shape)}"]
            if differ is not None:
                at = tuple(int(k) for k in differ.nonzero()[0])
                lines = [f"{int(differ.sum())} of {differ.numel()} elements differ, first at {list(at)}:"]
                lines.append(f"got {float(a[at]).hex()}, need {float(b[at]).hex()}")
            raise judge.broken(code, f"out[{i}] differs in its bits", lines, where=path)
        judge.tally.count(int(a.numel()))
