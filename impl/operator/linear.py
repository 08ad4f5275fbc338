"""Derivatives of an op that is linear in its first argument, the only one that is differentiable.

Its tangent is the op itself, its cotangent the adjoint: an `Operator` whose adjoint is the op.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from .operator import Derivatives, Shortcut
from .records import Grads, Record
from .rules import Rules


class _ShapeAndOthers(NamedTuple):
    shape: torch.Size
    others: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Linear(Derivatives):
    """The derivatives of an op by its adjoint.

    Attributes:
        adjoint: (cotangent of the output, shape of the first argument, the other arguments in order) -> the cotangent
            of the first argument.
    """

    adjoint: Callable[..., Tensor]

    def around(self, op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """An autograd function of these rules."""
        name = op.argument_names[0]

        # The value of the first argument is not saved: the derivative of a linear op does not depend on it.
        def save(args: Record, outputs: Record, needs: Record) -> _ShapeAndOthers:
            first, *others = args
            return _ShapeAndOthers(first.shape, tuple(others))

        def backward(saved: _ShapeAndOthers, needs: Record, cotangents: Record) -> Grads:
            return {name: self.adjoint(cotangents.out, saved.shape, *saved.others)}

        def jvp(args: Record, tangents: Record) -> Tensor:
            _, *others = args
            moved, *_ = tangents
            result: Tensor = op(moved, *others)
            return result

        return Rules(_ShapeAndOthers, save, backward, jvp).around(op, values, level)
