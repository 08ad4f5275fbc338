"""Cholesky factors, solutions and inverses of complex matrices, which are judged by their residuals."""

from __future__ import annotations

from typing import Any

import torch

from .complex_products import Parts, parts_of

_ops = torch.ops.opassay_specs


class WholeParts(Parts):
    """Complex numbers whose parts are judged together; `pairs` has them along its last axis."""

    def __init__(self, pairs: Any) -> None:
        super().__init__(pairs[..., 0], pairs[..., 1])
        self.pairs = pairs


def factor_by_cholesky(a: Any, upper: bool = False, check_errors: bool = False) -> tuple[Parts, Any]:
    pairs, info = _ops.cholesky_parts(a.real, a.imaginary, upper)
    return WholeParts(pairs), info


def invert(a: Any, check_errors: bool = False) -> tuple[Parts, Any]:
    pairs, info = _ops.inv_parts(a.real, a.imaginary)
    return WholeParts(pairs), info


def solve(a: Any, b: Any, left: bool = True, check_errors: bool = False) -> tuple[Any, ...]:
    """The solution X of A X = B, or of X A = B, then what torch keeps for derivatives, and the status."""
    a, b = parts_of(a), parts_of(b)
    shape, of_right = a.real.shape, b.real.shape
    is_vector = len(of_right) == 1 or (len(of_right) == len(shape) - 1 and of_right == shape[:-1])
    turns = not left and not is_vector  # X A = B is A^T X^T = B^T.
    operands = [a.real, a.imaginary, b.real, b.imaginary]
    if turns:
        operands = [x.mT for x in operands]
    if is_vector:
        operands[2:] = [x.unsqueeze(-1) for x in operands[2:]]
    pairs, info = _ops.solve_parts(*operands)
    pairs = pairs.squeeze(-2) if is_vector else pairs.transpose(-2, -3) if turns else pairs
    return WholeParts(pairs), None, None, info
