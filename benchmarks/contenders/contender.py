"""One kernel of a library, and the table in which a library's kernels are written."""

from __future__ import annotations

import ast
import math
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from . import recurrences

Function = Callable[..., Any]
#: (function of a library's own arrays) -> the same of tensors.
Bridge = Callable[[Function], Function]


def _normal(*shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randn(shape)


def _whole(below: int, *shape: int) -> Callable[[], Tensor]:
    return lambda: torch.randint(below, shape)


#: What a letter in a table stands for, in the order of arguments.
LETTERS: Mapping[str, Callable[[], Tensor]] = {
    "x": _normal(6, 17), "y": _normal(6, 17), "z": _normal(6, 17),  # numbers of both signs
    "p": lambda: torch.rand(6, 17) + 0.1, "q": lambda: torch.rand(6, 17) + 0.1,  # positive numbers
    "u": lambda: torch.rand(6, 17),  # probabilities
    "a": _normal(6, 17), "b": _normal(17, 5), "m": _normal(5, 5),  # matrices
    "v": _normal(17), "w": _normal(17),  # rows
    "i": _normal(2, 3, 8, 8), "k": _normal(4, 3, 3, 3), "c": _normal(3), "d": _normal(3),  # images, channels
    "r": lambda: torch.rand(3) + 0.1,  # variances of channels
    "l": _normal(2, 3, 9), "g": _normal(4, 3, 3),  # sequences
    "Q": _normal(2, 3, 7, 8), "K": _normal(2, 3, 7, 8), "V": _normal(2, 3, 7, 8),  # heads
    "e": _normal(11, 5), "h": _whole(11, 2, 4),  # a table, and places in it
    "n": _whole(17, 6),  # classes
    "o": lambda: torch.randn(6, 17) > 0,  # a mask
    "X": _normal(6, 128), "Y": _normal(6, 128), "W": _normal(128),  # rows of kernels that want powers of two
    "A": _normal(32, 64), "B": _normal(64, 48),  # matrices of those
    "f": lambda: torch.rand(1) + 0.1,  # a positive number
}  # fmt: skip
_SPECS = {"torch": torch, "F": F, "math": math, "inf": math.inf, "pi": math.pi, "rec": recurrences}


@dataclass(frozen=True)
class Contender:
    """A kernel, what it means, and what it is judged on.

    Attributes:
        library: the distribution. call: of the library, as text. meaning: the spec, as text.
        function, spec: the two, as functions of `arguments`.
        contract: what is allowed. compiled: the architecture whose PTX is executed; empty for none.
        leaves: questions that are not asked, because the library's device would take minutes.
        dtype: of floating arguments, by torch's name. where: what the library says of its calls, as a domain does.
    """

    library: str
    call: str
    meaning: str
    function: Function
    spec: Function
    arguments: tuple[Any, ...]
    contract: str = "torch"
    compiled: str = ""
    leaves: tuple[str, ...] = ()
    dtype: str = "float32"
    where: tuple[str, ...] = ()

    def cast(self, dtype: str, compiled: str) -> Contender:
        """The same in another dtype, compiled for an architecture."""
        cast = (
            t.to(getattr(torch, dtype)) if isinstance(t, Tensor) and t.is_floating_point() else t
            for t in self.arguments
        )
        return replace(self, arguments=tuple(cast), dtype=dtype, compiled=compiled)


def read_table(
    library: str, text: str, names: Mapping[str, Any], bridge: Bridge = lambda function: function, **more: Any
) -> Iterator[Contender]:
    """The contenders of a table; letters are arguments.

    A line of it is `CALL | SPEC`, perhaps with `| CONTRACT`, and with `| SENTENCES` of a domain, parted by semicolons.

    Args:
        names: of the library, as its calls use them. bridge: from its arrays to tensors. more: fields of all.
    """
    for line in text.strip().splitlines():
        call, meaning, contract, where = (*(part.strip() for part in line.split("|")), "", "")[:4]
        used = {node.id for node in ast.walk(ast.parse(f"({call}, {meaning})")) if isinstance(node, ast.Name)}
        letters = [letter for letter in LETTERS if letter in used]
        function = eval(f"lambda {', '.join(letters)}: {call}", dict(names))
        spec = eval(f"lambda {', '.join(letters)}: {meaning}", dict(_SPECS))
        fields = {**more, **({"contract": contract} if contract else {})}
        fields |= {"where": tuple(filter(None, map(str.strip, where.split(";"))))}
        yield Contender(library, call, meaning, bridge(function), spec, _draw(call, letters), **fields)


def _draw(name: str, letters: list[str]) -> tuple[Any, ...]:
    """The arguments, always the same for a name; the judge draws others like them."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(zlib.crc32(name.encode()))
        return tuple(LETTERS[letter]() for letter in letters)
