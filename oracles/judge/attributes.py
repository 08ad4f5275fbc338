"""What outputs have beside their values, which is compared first: number, shape, dtype and device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch

from ..op.declaration import Tensor, dtype_name

#: Attribute -> its value, a sentence about a wrong one, and an expression of a program's `outputs`.
_ATTRIBUTES: dict[str, tuple[Callable[[Any], object], str, str]] = {
    "shape": (lambda y: tuple(y.shape), "has shape {}, need {}", "tuple(outputs[{}].shape)"),
    "dtype": (lambda y: dtype_name(y.dtype), "has dtype {}, need {}", "str(outputs[{}].dtype)[6:]"),
    "device": (lambda y: str(y.device), "is on {}, need {}", "str(outputs[{}].device)"),
}


class Mismatch(NamedTuple):
    """A wrong attribute of outputs: a sentence, an expression of a program, and the value that it must have."""

    text: str
    expression: str
    need: object


def find_mismatch(got: Sequence[Any], need: Sequence[Any], *kinds: str, names: Sequence[str] = ()) -> Mismatch | None:
    """The first attribute in which outputs are unlike what they must be like; None where all are alike.

    Args:
        got: the outputs. need: as many tensors, or whatever else has the attributes. kinds: keys of `_ATTRIBUTES`.
        names: of the outputs; "out[0]" and so on by default.
    """
    if len(got) != len(need):
        return Mismatch(f"got {len(got)} outputs, need {len(need)}", "len(outputs)", len(need))
    for kind in kinds:
        of, words, expression = _ATTRIBUTES[kind]
        for i, (y, like) in enumerate(zip(got, need, strict=True)):
            if of(y) != of(like):
                name = names[i] if names else f"out[{i}]"
                return Mismatch(f"{name} {words.format(of(y), of(like))}", expression.format(i), of(like))
    return None


def of_dtypes(dtypes: Iterable[torch.dtype]) -> list[Tensor]:
    """A tensor of each dtype, as `find_mismatch` takes them."""
    return [torch.empty(0, dtype=dtype, device="meta") for dtype in dtypes]
