"""Derivatives of an op by an expression: torch ops that are equal to what the kernel computes.

The value is the kernel's, to the bit; its derivatives, of every order and in both modes, are those that torch finds for
the expression. So whoever writes an op states a derivative once. What is hard here is accuracy: torch differentiates
the expression term by term, and where its terms nearly cancel (1 - sigmoid, say) the derivatives lose digits that a
closed form keeps. Such an op has `rules.Rules` instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import torch_private as private
from .attach import attach
from .operator import Derivatives, Operator
from .records import Record


@dataclass(frozen=True, slots=True)
class Expression(Derivatives):
    """An op's outputs as torch ops.

    Attributes:
        slopes: the op's arguments in, an expression for each output out: of a shape that broadcasts to the output's, in
            the dtype that is accurate; None where the output is None or carries no derivative.
    """

    slopes: Callable[[Record], Tensor | Sequence[Tensor | None]]

    def around(self, op: Operator[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """The kernel's values with the derivatives of the expression attached."""
        slopes, arguments, plain = self.slopes, op.arguments, level == "plain"

        def differentiated(*args: Any) -> Any:
            if plain:
                with private.below_autograd():
                    outputs = values(*args)
            else:
                outputs = values(*args)
            found = slopes(arguments(args))
            if isinstance(outputs, Tensor):
                return _attached(outputs, found)
            return tuple(map(_attached, outputs, found))

        return differentiated


def _attached(value: Tensor | None, slope: Any) -> Tensor | None:
    """The value with the slope's derivatives; as it is, where it is plain that there are none."""
    if value is None or slope is None:
        return value
    if not (private.transforms_active() or forward_ad._current_level >= 0 or slope.requires_grad):
        return value
    return attach(value, slope if slope.shape == value.shape else slope.expand(value.shape))


def values_of(overload: torch._ops.OpOverload, *args: object) -> Any:
    """What an op of torch's returns when no tangent and no graph of this level is there; those of outer levels stay."""
    with torch.enable_grad(), private.forward_ad_enabled(True), private.below_autograd():
        return overload(*args)
