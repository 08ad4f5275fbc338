"""The calls that a spec takes: a record that can be sent, printed, and made into calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..arguments import CallArguments
from .integer_roles import IntegerRole
from .options import Option
from .resizing import resize_all
from .symbols import ShapeDomain, Shapes


@dataclass(frozen=True)
class Domain:
    """The calls that a spec takes, as far as it was asked.

    Attributes:
        shapes: the shapes of tensors. integers: roles of tensors of integers, by their positions among the tensors.
        facts: what held of floating tensors in every draw of the inputs, by position.
        proposals: of tensors of integers: (position, name), the values of which the spec takes.
        options: other values of arguments that are no tensors, by their positions among the leaves.
    """

    shapes: ShapeDomain
    integers: Mapping[int, IntegerRole] = field(default_factory=dict)
    facts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    proposals: tuple[tuple[int, str], ...] = ()
    options: Mapping[int, tuple[Option, ...]] = field(default_factory=dict)

    def at(self, arguments: CallArguments, shapes: Shapes) -> CallArguments:
        """The arguments with other shapes; numbers are repeated, and integers keep their roles."""
        return arguments.with_tensors(resize_all(arguments.tensors, shapes, self.integers))

    def empties(self, arguments: CallArguments) -> Iterator[CallArguments]:
        """The arguments with 0 in place of an extent that may be 0, each in turn."""
        for symbol in self.shapes.symbols:
            if symbol.may_be_empty:
                yield self.at(arguments, self.shapes.resized({symbol: 0}))

    def summarize(self, arguments: CallArguments) -> str:
        """One line: what a judgement asks that is unlike the given call."""
        names = self._names(arguments)
        sizes = ", ".join(" = ".join(f"{names[i]}.{d}" for i, d in symbol.axes) for symbol in self.shapes.symbols)
        parts = [f"other sizes of {sizes}"] if sizes else []
        for i in self.integers:
            words = [word for place, word in self.proposals if place == i]
            parts += [f"{names[i]} {', '.join(words)}"] if words else []
        leaves = arguments.names or [f"argument {i}" for i in range(len(arguments.leaves))]
        parts += [f"{leaves[i]}={_option_text(value)}" for i, values in self.options.items() for value in values]
        return "; ".join(parts)

    def _names(self, arguments: CallArguments) -> list[str]:
        return [arguments.label(i).replace("the input", "input") for i in range(len(arguments.tensors))]

    def describe(self, arguments: CallArguments) -> list[str]:
        """What was found, a line each."""
        names = self._names(arguments)
        lines = self.shapes.describe(names)
        for i, role in self.integers.items():
            own = ", ".join(word for place, word in self.proposals if place == i)
            lines.append(f"{names[i]}: {role.describe()}" + (f"; also {own}" if own else ""))
        lines += [f"{names[i]}: {', '.join(facts)} in every draw" for i, facts in self.facts.items()]
        leaves = arguments.names or [f"argument {i}" for i in range(len(arguments.leaves))]
        for i, values in self.options.items():
            lines.append(f"{leaves[i]}: {arguments.leaves[i]!r}; also {', '.join(map(_option_text, values))}")
        return lines


def _option_text(value: Option) -> str:
    return f"a tensor {list(value)}" if isinstance(value, tuple) else repr(value)


def fixed_domain(shapes: Sequence[Sequence[int]], note: str) -> Domain:
    """The domain of a spec of which only the given call is known; `note` says why."""
    start = tuple(map(tuple, shapes))
    axes = tuple((i, d) for i, shape in enumerate(start) for d in range(len(shape)))
    return Domain(ShapeDomain(start, start, (), axes, note))
