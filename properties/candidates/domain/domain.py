"""The calls that a spec takes: a record that can be sent, printed, and made into calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ..arguments import CallArguments
from .declaration import Declaration
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
        declaration: what the author of the spec says.
    """

    shapes: ShapeDomain
    integers: Mapping[int, IntegerRole] = field(default_factory=dict)
    facts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    proposals: tuple[tuple[int, str], ...] = ()
    options: Mapping[int, tuple[Option, ...]] = field(default_factory=dict)
    declaration: Declaration = field(default_factory=Declaration)

    def at(self, arguments: CallArguments, shapes: Shapes) -> CallArguments:
        """The arguments with other shapes; numbers are repeated, and integers keep their roles."""
        return arguments.with_tensors(resize_all(arguments.tensors, shapes, self.integers))

    def empties(self, arguments: CallArguments) -> Iterator[CallArguments]:
        """The arguments with 0 in place of an extent that may be 0, each in turn."""
        for symbol in self.shapes.symbols:
            if symbol.may_be_empty and self.declaration.allows(shapes := self.shapes.resized({symbol: 0})):
                yield self.at(arguments, shapes)

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

    def declare(self, arguments: CallArguments) -> list[str]:
        """What was found, in the lines of a dictionary that an author may declare."""
        names, named = self._names(arguments), self.shapes.name_extents(self.declaration.names)
        base = self.shapes.base
        extents = [[named.get((i, d), str(n)) for d, n in enumerate(shape)] for i, shape in enumerate(base)]
        pairs = [(name, ", ".join(map(_quoted, each))) for name, each in zip(names, extents, strict=True)]
        lines = [f'"{name}": ({each}{"," * (each.count(",") == 0 and each != "")})' for name, each in pairs]
        leaves = arguments.names or [f"input{i}" for i in range(len(arguments.leaves))]
        lines += [f'"{leaves[i]}": {(arguments.leaves[i], *values)!r}' for i, values in self.options.items()]
        where = [f"{names[i]}: {fact}" for i, facts in self.facts.items() for fact in facts]
        for i, role in self.integers.items():
            uses = [f" summing to {named[axis]}" for axis in role.sums_to if axis in named]
            for j, d in role.into:
                word = "below" if role.below == self.shapes.start[j][d] else "into"
                uses += [f" {word} {named[j, d]}"] if (j, d) in named else []
            where.append(f"{names[i]}: {role.kind}" + "".join(uses[:1]))
        where += self.declaration.sentences
        return ["domain = {", *(f"    {line}," for line in lines), f'    "where": {where!r},', "}"]


def _quoted(extent: str) -> str:
    return extent if extent.isdigit() else f'"{extent}"'


def _option_text(value: Option) -> str:
    return f"a tensor {list(value)}" if isinstance(value, tuple) else repr(value)


def fixed_domain(shapes: Sequence[Sequence[int]], note: str) -> Domain:
    """The domain of a spec of which only the given call is known; `note` says why."""
    start = tuple(map(tuple, shapes))
    axes = tuple((i, d) for i, shape in enumerate(start) for d in range(len(shape)))
    return Domain(ShapeDomain(start, start, (), axes, note))
