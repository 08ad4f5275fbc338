"""The calls that a spec takes: a record that can be sent, printed, and made into calls."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import torch

from ..arguments import CallArguments
from .declaration import TRUTH, Declaration, Option
from .facts import HALVES
from .integer_roles import IntegerRole, is_integer
from .symbols import Axis, ShapeDomain, Shapes, sizes_of, with_shapes

Tensor = torch.Tensor


def resize_all(
    tensors: Sequence[Tensor], shapes: Shapes, roles: Mapping[int, IntegerRole] | None = None
) -> list[Tensor]:
    """The tensors with other shapes: what holds of every element goes on to hold, and integers keep their roles."""
    before = tuple(tuple(t.shape) for t in tensors)
    return [_resized(t, shapes, i, (roles or {}).get(i), before) for i, t in enumerate(tensors)]


def _resized(tensor: Tensor, shapes: Shapes, place: int, role: IntegerRole | None, before: Shapes) -> Tensor:
    shape = shapes[place]
    other = tensor.detach().long() if is_integer(tensor) else tensor.detach()  # eight bits have no room
    if not tensor.numel():
        return tensor.new_zeros(shape)
    if role is not None and is_integer(tensor):
        other = _within_other_extents(other, role, shapes, before)
        other = _spread(other, shape[0]) if role.rises and len(shape) == 1 and shape[0] else other
    for d, n in enumerate(shape):
        other = other.index_select(d, torch.arange(n, device=other.device) % other.shape[d])
    old = tensor.shape[-2:]
    if other.is_floating_point() and len(old) == 2 and shape[-2] == shape[-1] > old[0] == old[1] > 1:
        beyond = torch.arange(shape[-1], device=other.device) >= old[0]
        other = other.float() + torch.diag(beyond * other.float().abs().max())  # repeated rows are singular
    for i, d in role.sums_to[:1] if role is not None and other.numel() else ():
        other = torch.div(other * shapes[i][d], max(int(other.sum()), 1), rounding_mode="floor")
        other[-1] += shapes[i][d] - int(other.sum())
    return other.to(tensor.dtype, copy=True)


def _spread(values: Tensor, count: int) -> Tensor:
    """As many numbers that never fall, as far apart as the first and the last allow; of one number, the last."""
    steps, last = max(count - 1, 1), len(values) - 1
    places = torch.arange(1 - count, 1, device=values.device) * last
    before = places.div(steps, rounding_mode="floor") + last
    low, high = values[before], values[(before + 1).clamp(max=last)]
    return low + (high - low) * (places % steps) // steps


def _within_other_extents(values: Tensor, role: IntegerRole, shapes: Shapes, before: Shapes) -> Tensor:
    old, new = next(((before[i][d], shapes[i][d]) for i, d in role.into), (0, 0))
    if old == new:
        return values
    if role.kind == "lengths" and new < old:
        return values.clamp(max=new)
    if role.kind in ("lengths", "offsets") or role.rises:
        return torch.div(values * new, max(old, 1), rounding_mode="floor")
    # Up to the last place, however far: a kernel may be wrong beyond the given ones alone.
    rest, last = values - role.first, max(old - 1, 1)
    rest = rest * (new - 1) // last if new > old else rest % max(new, 1)
    return torch.where(values >= 0, rest + role.first, values)


@dataclass(frozen=True)
class Domain:
    """The calls that a spec takes, as far as it was asked.

    Attributes:
        shapes: the shapes of tensors. integers: roles of tensors of integers, by their positions among the tensors.
        facts: what held of floating tensors in every draw of the inputs, by position.
        signs: those of others in every draw, which may be chance, by position; and whether all are less than 1.
        proposals: of tensors of integers: (position, name), the values of which the spec takes.
        options: other values of arguments that are no tensors, by their positions among the leaves.
        defaults: arguments that the call does not give, whose positions are behind those of its leaves.
        declaration: what the author of the spec says.
    """

    shapes: ShapeDomain
    integers: Mapping[int, IntegerRole] = field(default_factory=dict)
    facts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    signs: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    proposals: tuple[tuple[int, str], ...] = ()
    options: Mapping[int, tuple[Option, ...]] = field(default_factory=dict)
    defaults: Mapping[str, Option] = field(default_factory=dict)
    declaration: Declaration = field(default_factory=Declaration)

    def at(self, arguments: CallArguments, shapes: Shapes) -> CallArguments:
        """The arguments with other shapes; numbers are repeated, and integers keep their roles."""
        resized = with_shapes(arguments, resize_all(arguments.tensors, shapes, self.integers), shapes)
        return self.declaration.settle(resized)

    def within_signs(self, *, shares: bool) -> tuple[dict[int, str], Domain]:
        """Signs by position, with `shares` also which numbers are less than 1, and the domain where they are facts."""
        words = {i: own[-1 if shares else 0] for i, own in self.signs.items()}
        return words, replace(self, facts={**self.facts, **{i: (word,) for i, word in words.items()}})

    @property
    def dependent(self) -> frozenset[int]:
        """Positions of the tensors whose elements do not vary alone: of equal halves, or that follow from others."""
        halves = (i for i, facts in self.facts.items() if any(fact.startswith(HALVES) for fact in facts))
        return frozenset(halves).union(*(each.places for each in self.declaration.rules))

    def allows(self, shapes: Shapes) -> bool:
        """Whether all relations of extents hold, those that are declared and those that were found."""
        return self.declaration.allows(shapes) and all(limit.holds(shapes) for limit in self.shapes.limits)

    def empties(self, arguments: CallArguments) -> Iterator[CallArguments]:
        """The arguments with 0 in place of an extent that may be 0, each in turn."""
        for symbol in self.shapes.symbols:
            if symbol.may_be_empty and self.allows(shapes := self.shapes.resized({symbol: 0})):
                yield self.at(arguments, shapes)

    def summarize(self, arguments: CallArguments) -> str:
        """One line: what a judgement asks that is unlike the given call."""
        arguments = arguments.with_defaults(self.defaults)
        names = self._names(arguments)
        sizes = ", ".join(" = ".join(map(self._axis_name(arguments), s.axes)) for s in self.shapes.symbols)
        parts = [f"other sizes of {sizes}"] if sizes else []
        for i in dict.fromkeys(place for place, _ in self.proposals):
            parts.append(f"{names[i]} {', '.join(word for place, word in self.proposals if place == i)}")
        parts += [f"{names[i]}: {word}" for i, words in self.declaration.promises.items() for word in words]
        leaves = _leaf_names(arguments)
        parts += [f"{leaves[i]}={_option_text(value)}" for i, values in self.options.items() for value in values]
        return "; ".join(parts)

    def _names(self, arguments: CallArguments) -> list[str]:
        return [arguments.label(i).replace("the input", "input") for i in range(len(arguments.tensors))]

    def _axis_name(self, arguments: CallArguments) -> Callable[[Axis], str]:
        tensors, leaves = self._names(arguments), _leaf_names(arguments)
        sizes = [leaves[i] for i in sizes_of(arguments)]
        return lambda axis: f"{tensors[axis[0]]}.{axis[1]}" if axis[0] < len(tensors) else sizes[axis[0] - len(tensors)]

    def describe(self, arguments: CallArguments) -> list[str]:
        """What was found, a line each."""
        arguments = arguments.with_defaults(self.defaults)
        names = self._names(arguments)
        lines = self.shapes.describe(self._axis_name(arguments))
        for i, role in self.integers.items():
            own = ", ".join(word for place, word in self.proposals if place == i)
            lines.append(f"{names[i]}: {role.describe()}" + (f"; also {own}" if own else ""))
        masks = dict.fromkeys(place for place, _ in self.proposals if place not in self.integers)
        lines += [f"{names[i]}: also {', '.join(w for place, w in self.proposals if place == i)}" for i in masks]
        lines += [f"{names[i]}: {', '.join(facts)} in every draw" for i, facts in self.facts.items()]
        lines += [f"{names[i]}: {words[0]} in every draw, perhaps by chance" for i, words in self.signs.items()]
        leaves = _leaf_names(arguments)
        for i, values in self.options.items():
            lines.append(f"{leaves[i]}: {arguments.leaves[i]!r}; also {', '.join(map(_option_text, values))}")
        return lines

    def declare(self, arguments: CallArguments) -> list[str]:
        """What was found, in the lines of a dictionary that an author may declare."""
        arguments = arguments.with_defaults(self.defaults)
        names, named = self._names(arguments), self.shapes.name_extents(self.declaration.names)
        base = self.shapes.base
        extents = [[named.get((i, d), str(n)) for d, n in enumerate(shape)] for i, shape in enumerate(base)]
        pairs = [(name, ", ".join(map(_quoted, each))) for name, each in zip(names, extents, strict=False)]
        lines = [f'"{name}": ({each}{"," * (each.count(",") == 0 and each != "")})' for name, each in pairs]
        leaves = arguments.names or [f"input{i}" for i in range(len(arguments.leaves))]
        sizes = enumerate(sizes_of(arguments), len(names))
        lines += [f'"{leaves[leaf]}": {_quoted(named[i, 0])}' for i, leaf in sizes if (i, 0) in named]
        lines += [f'"{leaves[i]}": {(arguments.leaves[i], *values)!r}' for i, values in self.options.items()]
        where = [f"{names[i]}: {fact}" for i, facts in self.facts.items() for fact in facts]
        for i, role in self.integers.items():
            uses = [f" summing to {named[axis]}" for axis in role.sums_to if axis in named]
            for j, d in role.into:
                word = "below" if role.below == self.shapes.start[j][d] else "into"
                uses += [f" {word} {named[j, d]}"] if (j, d) in named else []
            where.append(f"{names[i]}: {role.kind}" + "".join(uses[:1]))
        plain = (e for e in self.shapes.limits if all(named.get(a, "-").isidentifier() for a in (e.axis, e.other)))
        where += [limit.describe(named.__getitem__) for limit in plain]
        where += self.declaration.sentences
        return ["domain = {", *(f"    {line}," for line in lines), f'    "where": {[*dict.fromkeys(where)]!r},', "}"]


def _leaf_names(arguments: CallArguments) -> Sequence[str]:
    return arguments.names or [f"argument {i}" for i in range(len(arguments.leaves))]


def _quoted(extent: str) -> str:
    return extent if extent.isdigit() else f'"{extent}"'


def _option_text(value: Option) -> str:
    if not isinstance(value, tuple):
        return repr(value)
    return f"a mask {list(value[1:])}" if value[:1] == (TRUTH,) else f"a tensor {list(value)}"


def fixed_domain(shapes: Sequence[Sequence[int]], note: str) -> Domain:
    """The domain of a spec of which only the given call is known; `note` says why."""
    start = tuple(map(tuple, shapes))
    axes = tuple((i, d) for i, shape in enumerate(start) for d in range(len(shape)))
    return Domain(ShapeDomain(start, start, (), axes, note))
