"""Complex numbers as pairs of real ones, their products, and factors and solutions, which are judged by residuals.

Under autocast torch casts no complex factors of a product. A kernel that multiplies their parts multiplies real
numbers, which autocast casts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .calls import UntraceableError


class Parts:
    """A complex number, or a tensor of them."""

    def __init__(self, real: Any, imaginary: Any) -> None:
        self.real, self.imaginary = real, imaginary

    def each(self, operation: Callable[[Any], Any]) -> Parts:
        """What an operation that does the same with either part makes of both."""
        return Parts(operation(self.real), operation(self.imaginary))


def parts_of(value: Any) -> Parts:
    if isinstance(value, Parts):
        return value
    if isinstance(value, complex):
        return Parts(value.real, value.imag)
    return Parts(value, torch.zeros_like(value) if isinstance(value, torch.Tensor) else 0.0)


def conjugate(x: Any) -> Parts:
    x = parts_of(x)
    return Parts(x.real, -x.imaginary)


def multiply(a: Any, b: Any) -> Parts:
    if not isinstance(a, (Parts, complex)):
        a, b = b, a
    if not isinstance(b, (Parts, complex)):
        return parts_of(a).each(lambda part: part * b)
    a, b = parts_of(a), parts_of(b)
    return Parts(a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real)


def add_by(operation: Any) -> Callable[..., Parts]:
    """A sum or a difference, in which a real number has an imaginary part of zero."""

    def rule(a: Any, b: Any, alpha: Any = 1) -> Parts:
        a, b = parts_of(a), parts_of(b)
        return Parts(operation(a.real, b.real, alpha=alpha), operation(a.imaginary, b.imaginary, alpha=alpha))

    return rule


def multiply_matrices(a: Any, b: Any) -> Parts:
    """Each part as one sum, of as many products as both have together, in any order."""
    a, b = parts_of(a), parts_of(b)
    if torch.is_autocast_enabled(a.real.device.type):
        return _multiply_under_autocast(a, b)
    real = torch.cat([a.real, -a.imaginary], -1) @ torch.cat([b.real, b.imaginary], -2)
    return Parts(real, torch.cat([a.real, a.imaginary], -1) @ torch.cat([b.imaginary, b.real], -2))


def _multiply_under_autocast(a: Parts, b: Parts, c: Parts | None = None) -> Parts:
    """The product, and a number before it, by real products, which autocast casts, as it does not cast complex ones.

    Whoever multiplies the parts has such products, and no complex dtype is that narrow. So the sums of both are narrow
    as well, and what is complex is not. What torch computes itself rounds less often, and is within that.
    """

    def part(x: Any, y: Any, z: Any, w: Any, before: Any) -> Any:
        product = x @ y
        return ((product if before is None else before.to(product.dtype) + product) + z @ w).to(x.dtype)

    first, second = (None, None) if c is None else (c.real, c.imaginary)
    real = part(a.real, b.real, -a.imaginary, b.imaginary, first)
    return Parts(real, part(a.real, b.imaginary, a.imaginary, b.real, second))


def multiply_matrix(a: Any, b: Any) -> Parts:
    return multiply_matrices(a, parts_of(b).each(lambda x: x[:, None])).each(lambda x: x[:, 0])


def multiply_vectors(a: Any, b: Any) -> Parts:
    return multiply_matrix(parts_of(a).each(lambda x: x[None, :]), b).each(lambda x: x[0])


def add_product(product_of: Callable[[Any, Any], Parts]) -> Callable[..., Parts]:
    """A sum with a product, each of them times a number."""

    def rule(c: Any, a: Any, b: Any, beta: Any = 1, alpha: Any = 1, value: Any = 1) -> Parts:
        factor = complex(alpha * value)
        if factor.real and factor.imag:  # which of three factors come first matters, as it does not for real numbers
            raise UntraceableError(f"multiplies a product of complex numbers with {factor}, which has no rule")
        if product_of is multiply_matrices and torch.is_autocast_enabled(a.real.device.type) and alpha == beta == 1:
            return _multiply_under_autocast(parts_of(a), parts_of(b), parts_of(c))
        product, c = product_of(a, b), c if beta == 1 else multiply(c, beta)
        product = product if alpha * value == 1 else multiply(product, alpha * value)
        return add_by(torch.add)(c, product)

    return rule


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
