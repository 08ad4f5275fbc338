"""Samples from shapes by symbols: `{"x": ("N", "n"), "w": ("n",)}` says which extents are equal, and no more.

What is hard here: a kernel goes wrong at certain extents, one beside a block, say, but a sample must have few elements,
so that it can be read exactly. So the extents of ordinary samples are drawn from bands, the samples have every band of
every symbol, and where one symbol is long the others are short.
"""

from __future__ import annotations

import math
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ...oracles.op.declaration import Draft
from ...oracles.verdicts.violation import Code, Unsupported
from ...reference.missing import nearest_of
from . import drawing, strategies
from .choices import choose, settle
from .user_samples import Extent, Integers

#: Extents of ordinary samples by bands, the simplest first: vectors, warps and blocks, and one less and one more.
BANDS: dict[str, tuple[int, ...]] = {
    "1": (1,),
    "2 to 7": (2, 3, 4, 5, 7),
    "about a vector": (8, 9, 13, 15, 16, 17),
    "about a warp": (31, 32, 33),
    "about a block": (65, 63, 64, 127, 128, 129),
}
#: Elements of an ordinary sample's tensors: up to the first number, or up to the second times the fixed extents.
ORDINARY, SEVERAL = 400, 16
_EXTENT = re.compile(r"(?:(\d+)\s*\*\s*)?([A-Za-z_]\w*)")


#: What is said of one argument: the extents of a floating tensor, or which integers it has.
Argument = Sequence[Extent] | Integers


@dataclass(frozen=True)
class Shapes:
    """Shapes of tensors by symbols.

    Attributes:
        arguments: by name, the extents of each axis as (factor, symbol); the symbol "" stands for 1.
        sizes: the extents to which some symbols are restricted.
        integers: what is no floating tensor, by name: the record, and its `below` as (factor, symbol).
    """

    arguments: Mapping[str, tuple[tuple[int, str], ...]]
    sizes: Mapping[str, tuple[int, ...]]
    integers: Mapping[str, tuple[Integers, tuple[int, str]]]

    @classmethod
    def of(cls, shapes: Mapping[str, Argument], sizes: Mapping[str, Sequence[int]]) -> Shapes:
        """
        Args:
            shapes: the extents of every floating tensor, by the name of the argument, and `Integers` of others.
            sizes: the extents to which a kernel restricts a symbol; other symbols may have any.

        Raises:
            TypeError: the shapes have no names, or extents are no tuple.
            ValueError: there is no tensor, an extent is of another kind, or `sizes` has another symbol or no numbers.
        """
        if not isinstance(shapes, Mapping):
            need = 'need a dict from the name of every tensor to its extents, as {"x": ("N", "n")}'
            raise TypeError(f"shapes: got {type(shapes).__name__}, {need}")
        whole = {name: each for name, each in shapes.items() if isinstance(each, Integers)}
        axes = {name: (each.shape or ()) if isinstance(each, Integers) else each for name, each in shapes.items()}
        if len(whole) == len(axes):
            raise ValueError("shapes: got none, need those of one floating tensor at least")
        for name, extents in axes.items():
            _require_tuple("shapes", name, extents, '("N", "n")')
        for symbol, extents in sizes.items():
            _require_tuple("sizes", symbol, extents, "(1, 64)")
        instance = cls(
            {name: tuple(_parse_extent(name, extents, e) for e in extents) for name, extents in axes.items()},
            {symbol: tuple(allowed) for symbol, allowed in sizes.items()},
            {name: (each, _parse_extent(name, each, each.below)) for name, each in whole.items()},
        )
        for symbol, allowed in instance.sizes.items():
            if symbol not in instance.symbols:
                text = f"{symbol}={allowed!r}{nearest_of(symbol, instance.symbols)}"
                raise ValueError(f"sizes: got {text}, need symbols of {', '.join(instance.symbols)}")
            if not allowed or not all(isinstance(n, int) and n > 0 for n in allowed):
                raise ValueError(f"sizes: got {symbol}={allowed!r}, need whole numbers above zero")
        return instance

    @property
    def symbols(self) -> tuple[str, ...]:
        """All symbols; the first is that of the last axis of the first tensor, because rows extend along this axis."""
        axes = [axis for extents in self.arguments.values() for axis in reversed(extents)]
        axes += [below for _, below in self.integers.values()]
        return tuple(dict.fromkeys(symbol for _, symbol in axes if symbol))

    @property
    def free(self) -> tuple[str, ...]:
        """The symbols that may have any extent."""
        return tuple(symbol for symbol in self.symbols if symbol not in self.sizes)

    def at(self, extents: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor."""
        return {
            name: tuple(factor * (extents[symbol] if symbol else 1) for factor, symbol in axes)
            for name, axes in self.arguments.items()
        }

    def range_of(self, name: str, extents: Mapping[str, int]) -> tuple[int, int]:
        """The smallest value of an argument of integers, and the exclusive upper limit of its values."""
        whole, (factor, symbol) = self.integers[name]
        return whole.least, max(factor * (extents[symbol] if symbol else 1), whole.least + 1)

    def example(self, extents: Mapping[str, int]) -> tuple[Any, ...]:
        """Arguments with these extents, as arrays; integers have their smallest value, and matrices an inverse."""
        shapes = self.at(extents)
        least = {name: np.full(shapes[name], whole.least) for name, (whole, _) in self.integers.items()}
        return tuple(
            _regular(shape) if name not in least else least[name] if self.is_tensor(name) else int(least[name])
            for name, shape in shapes.items()
        )

    def is_tensor(self, name: str) -> bool:
        """Whether an argument is a tensor rather than a Python int."""
        return name not in self.integers or self.integers[name][0].shape is not None

    def smallest(self) -> dict[str, int]:
        """Small extents, a different one for each free symbol, and the smallest that is allowed for each other one."""
        free = {symbol: 2 + i for i, symbol in enumerate(self.free)}
        return {symbol: min(self.sizes[symbol]) if symbol in self.sizes else free[symbol] for symbol in self.symbols}

    @property
    def ordinary(self) -> int:
        """The largest number of elements of an ordinary sample's tensors."""
        return max(ORDINARY, min(SEVERAL * self.elements_of_largest(), strategies.MOSTLY))

    def bands(self, symbol: str) -> tuple[str, ...]:
        """The bands of a symbol in an ordinary sample; only the first if fixed extents leave no room for the others."""
        names = [
            name for name, extents in BANDS.items() if self.elements_of_largest({symbol: min(extents)}) <= self.ordinary
        ]
        return tuple(names) or tuple(BANDS)[:1]

    def elements_of_largest(self, extents: Mapping[str, int] = types.MappingProxyType({})) -> int:
        """Elements of the largest tensor with these extents, 1 for other free symbols, and the largest fixed ones."""
        largest = {symbol: max(self.sizes.get(symbol, (1,))) for symbol in self.symbols}
        return max(math.prod(shape) for shape in self.at(largest | dict(extents)).values())

    def within(self, extents: Mapping[str, int], limit: int) -> dict[str, int]:
        """The extents, halved until each tensor has at most `limit` elements.

        The second longest is halved first, so that the longest keeps its band as long as another one can be halved.
        """
        smaller = dict(extents)
        while max(math.prod(shape) for shape in self.at(smaller).values()) > limit:
            long = sorted((s for s in self.free if smaller[s] > 1), key=lambda s: smaller[s])
            if not long:
                break
            symbol = long[-2] if len(long) > 1 else long[-1]
            smaller[symbol] = max(1, smaller[symbol] // 2)
        return smaller


def _regular(shape: tuple[int, ...]) -> Any:
    return 0.5 + 0.5 * np.eye(shape[-2], shape[-1]) * np.ones(shape) if len(shape) > 1 else np.ones(shape)


def _require_tuple(what: str, name: str, extents: Any, example: str) -> None:
    """TypeError for a tensor, a text or a number in place of the tuple of a name's extents."""
    if isinstance(extents, torch.Tensor | str) or not isinstance(extents, Iterable):
        shape = f" of shape {tuple(extents.shape)}" if isinstance(extents, torch.Tensor) else ""
        raise TypeError(f"{what}: got a {type(extents).__name__}{shape} for {name!r}, need a tuple, as {example}")


def _parse_extent(name: str, extents: Argument, extent: Extent) -> tuple[int, str]:
    if isinstance(extent, int) and not isinstance(extent, bool) and extent >= 0:
        return extent, ""
    match = _EXTENT.fullmatch(extent) if isinstance(extent, str) else None
    if match is None:
        raise ValueError(f"shapes: got {extent!r} in {name}={extents!r}, need a symbol ('n'), '2*n' or a whole number")
    return int(match[1] or 1), match[2]


def samples_by(shapes: Shapes, regimes: Sequence[str]) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of arguments of these shapes, by name, for an op's declaration: (dtype name, kind) -> strategy.

    Args:
        regimes: names of `strategies.REGIMES`; every tensor has one of its own.

    Raises:
        ValueError: a regime is not one of them.
    """
    regime_names = strategies.require_regimes(regimes)

    @st.composite
    def drafts(draw: st.DrawFn, dtype: str, kind: str) -> Draft:
        extents = draw(_extents(shapes, kind))
        floating = [name for name in shapes.arguments if name not in shapes.integers]
        names = {name: draw(_regime(kind, regime_names)) for name in floating}
        ranges = {name: shapes.range_of(name, extents) for name in shapes.integers}
        # One for all slices of a batch: a number has none.
        numbers = {n: draw(st.integers(a, b - 1)) for n, (a, b) in ranges.items() if not shapes.is_tensor(n)}

        def value(rng: Any, name: str, shape: tuple[int, ...]) -> Any:
            if name in names:
                return drawing.rows(rng, names[name], shape, dtype)
            return numbers[name] if name in numbers else torch.tensor(rng.integers(*ranges[name], shape))

        def fill(rng: Any) -> dict[str, Any]:
            return {name: value(rng, name, shape) for name, shape in shapes.at(extents).items()}

        return Draft(fill, ", ".join(dict.fromkeys(names.values())), extents)

    def samples(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
        if kind == "large" and not shapes.free and shapes.elements_of_largest() <= strategies.ORDINARY:
            text = f"the shapes allow no tensor of more than {strategies.ORDINARY} elements"
            raise Unsupported(Code.NOT_APPLICABLE, text)
        return drafts(dtype, kind)

    return samples


def _regime(kind: str, regimes: Sequence[str]) -> st.SearchStrategy[str]:
    return st.just("integers") if kind == "integers" else strategies.regimes(kind, regimes)


@st.composite
def _extents(draw: st.DrawFn, shapes: Shapes, kind: str) -> dict[str, int]:
    extents = {symbol: draw(choose(f"extent {symbol}", allowed)) for symbol, allowed in shapes.sizes.items()}
    if kind == "empty":
        # Of no classes there is no label.
        empty = tuple(s for s in shapes.free if s not in {symbol for _, (_, symbol) in shapes.integers.values()})
        if not empty:
            raise Unsupported(Code.NOT_APPLICABLE, "the shapes allow no extent of zero")
        extents |= {symbol: draw(st.sampled_from((1, 3))) for symbol in shapes.free}
        extents[draw(choose("without elements", empty))] = 0
        return extents
    if kind == "large":
        lengths = draw(strategies.extents(kind, len(shapes.free), strategies.LARGEST))
        return shapes.within(extents | dict(zip(shapes.free, lengths, strict=True)), strategies.LARGEST)
    bands = {symbol: draw(choose(f"extent {symbol}", shapes.bands(symbol))) for symbol in shapes.free}
    extents |= {symbol: draw(st.sampled_from(BANDS[band])) for symbol, band in bands.items()}
    extents = shapes.within(extents, shapes.ordinary)
    for symbol, band in bands.items():
        if extents[symbol] not in BANDS[band]:
            settle(f"extent {symbol}", _band_of(extents[symbol]))
    return extents


def _band_of(extent: int) -> str:
    return next(name for name, extents in BANDS.items() if extent <= max(extents))
