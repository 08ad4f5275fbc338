"""Other values of options: flags turned, numbers other than neutral ones, a tensor for None."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

Tensor = torch.Tensor
#: (shape,) of a tensor that takes the place of None; a number, a flag or None as it is.
Option = bool | int | float | None | tuple[int, ...]


def propose_options(leaf: Any, shapes: Sequence[tuple[int, ...]]) -> Iterator[Option]:
    """Other values of an argument that is no tensor; the spec may refuse them.

    Args:
        leaf: the given value. shapes: of the other arguments and of the outputs, for a tensor in place of None.
    """
    if isinstance(leaf, bool):
        yield not leaf
    elif isinstance(leaf, int):
        yield from (value for value in dict.fromkeys((leaf + 1, 2 * leaf, leaf // 2, 1, 2, 3)) if value != leaf)
    elif isinstance(leaf, float):
        # Not a negative number: what a square root is taken of may be nothing else.
        yield from (value for value in (1.7 * leaf or 1.7, 0.5 * leaf or 0.5, 1.0) if value != leaf)
    elif leaf is None:
        yield from sorted({*shapes, *((n,) for shape in shapes for n in shape)}, key=len)


def take_option(leaves: Sequence[Any], place: int, option: Option, fill: Callable[[Tensor], Tensor]) -> list[Any]:
    """The leaves of a call with another value of one option.

    Args:
        leaves, place, option: see `propose_options`. fill: gives values to a tensor of zeros.
    """
    changed = list(leaves)
    changed[place] = option
    if isinstance(option, tuple):
        like = next((x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()), torch.zeros(()))
        changed[place] = fill(like.new_zeros(option))
    return changed
