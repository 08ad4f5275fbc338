"""The domain that the author of a spec declares, read and printed: extents by symbols, integers, facts, options.

What this is for: no question tells that a label of 0 is none, or that `N` queries see `M >= N` keys only. An author
says so beside the spec, `domain = {"q": ("N", "D"), "k": ("M", "D"), "where": ["N <= M"]}`, and what is derived is said
in the same form.
"""

from __future__ import annotations

import dis
import itertools
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from ....reference.missing import nearest_of
from ...declaring.user_samples import Integers
from ..arguments import CallArguments
from .facts import HALVES, OF_TWO, WORDS, facts_of, has_equal_halves, range_of
from .input_rules import DomainError, InputRule
from .integer_roles import KINDS, is_integer
from .symbols import Axis, Shapes, Symbol, shapes_of, sizes_of

#: (shape,) of a tensor that takes the place of None, of truth values behind "bool"; all else is as it is.
Option = bool | int | float | str | None | tuple[int | str, ...]
TRUTH = "bool"
#: Words that torch's functions take in place of each other.
_WORDS = (
    "none mean sum batchmean", "sum mean max", "sum prod mean amax amin", "none tanh",
    "zeros reflect replicate circular", "constant reflect replicate circular",
    "nearest linear bilinear bicubic trilinear area nearest-exact", "same valid", "floor trunc",
    "zeros border reflection", "relu gelu silu tanh sigmoid none identity",
)  # fmt: skip
#: Names of operations of Python that compare what was loaded last.
_COMPARISONS = ("COMPARE_OP", "CONTAINS_OP")
#: The most options of one argument, and the most extents of which two are the shape of a tensor in place of None.
_MOST, _AMONG = 3, 6
_EXTENT = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?:\+(\d+))?|([A-Za-z_]\w*)\*([A-Za-z_]\w*)|(\d+)")
_RELATION = re.compile(r"([\w*+]+)(<=|<|==|>=|>)([\w*+]+)")
_STATEMENT = re.compile(r"(\w+): *(.+)")
_INTEGERS = re.compile(rf"({'|'.join(KINDS)})(?: (into|below|summing to) ([\w*+]+))?")
#: What the author promises of an argument, of whatever values: it lies contiguous, and a call may leave other values.
CONTIGUOUS, WRITTEN = "contiguous", "may be written"
_COMPARE: Mapping[str, Callable[[int, int], bool]] = {
    "<=": operator.le, "<": operator.lt, "==": operator.eq, ">=": operator.ge, ">": operator.gt,
}  # fmt: skip


@dataclass(frozen=True)
class ExtentTerm:
    """An extent of a declaration: factor times symbol, plus a number; or a symbol times the symbol `unit`."""

    factor: int = 0
    symbol: str = ""
    plus: int = 0
    unit: str = ""

    def at(self, values: Mapping[str, int]) -> int:
        return self.factor * values.get(self.symbol, 0) * values.get(self.unit, 1) + self.plus


@dataclass(frozen=True)
class Declaration:
    """What an author says of the calls that a spec takes; positions are those among the tensors.

    Attributes:
        terms: of every declared axis. facts: of floating tensors.
        integers: (kind, how the axis is used, its extent) of tensors of integers.
        options: other values of arguments that are no tensors, by their positions among the leaves.
        relations: (extent, comparison, extent), which hold at every call. sentences: their texts.
        promises: `CONTIGUOUS` and `WRITTEN`, of tensors of any dtype.
        rules: of tensors on others.
    """

    terms: Mapping[Axis, ExtentTerm] = field(default_factory=dict)
    facts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    integers: Mapping[int, tuple[str, str, ExtentTerm]] = field(default_factory=dict)
    options: Mapping[int, tuple[Option, ...]] = field(default_factory=dict)
    relations: tuple[tuple[ExtentTerm, str, ExtentTerm], ...] = ()
    sentences: tuple[str, ...] = ()
    promises: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    rules: tuple[InputRule, ...] = ()

    @property
    def contiguous(self) -> tuple[int, ...]:
        """Positions of the tensors that lie in no other way."""
        return tuple(i for i, words in self.promises.items() if CONTIGUOUS in words)

    @property
    def writes(self) -> tuple[int, ...]:
        """Positions of the tensors in which a call may leave other values."""
        return tuple(i for i, words in self.promises.items() if WRITTEN in words)

    def settle(self, arguments: CallArguments) -> CallArguments:
        """The arguments, in which those follow from others that do so by the author's functions."""
        for rule in self.rules:
            arguments = rule.settle(arguments)
        return arguments

    @property
    def names(self) -> dict[Axis, str]:
        """The symbol of each axis that has one."""
        return {axis: term.symbol for axis, term in self.terms.items() if term.symbol}

    def values(self, shapes: Shapes) -> dict[str, int]:
        """What the symbols are where tensors have shapes."""
        values = {
            term.symbol: (shapes[i][d] - term.plus) // term.factor
            for (i, d), term in self.terms.items() if term.symbol and not term.unit and i < len(shapes)
        }  # fmt: skip
        units = [(axis, term) for axis, term in self.terms.items() if term.unit]
        return {term.symbol: shapes[i][d] // max(values.get(term.unit, 1), 1) for (i, d), term in units} | values

    def allows(self, shapes: Shapes) -> bool:
        """Whether all relations hold."""
        values = self.values(shapes) if self.relations else {}
        return all(_COMPARE[sign](one.at(values), other.at(values)) for one, sign, other in self.relations)

    def axes_of(self, term: ExtentTerm) -> tuple[Axis, ...]:
        """The axes that have an extent."""
        return tuple(axis for axis, each in self.terms.items() if each == term)

    def symbols(self, shapes: Shapes) -> Iterator[tuple[str, Symbol]]:
        """The declared symbols; those that are multiples of another come last."""
        values, single = self.values(shapes), dict[str, dict[Axis, int]]()
        for axis, term in self.terms.items():
            if term.symbol and not term.unit:
                single.setdefault(term.symbol, {})[axis] = term.factor
        for name, moves in single.items():
            yield name, Symbol(tuple(moves.items()), min(moves.values()))
        for unit in {term.unit for term in self.terms.values() if term.unit}:
            for name in {term.symbol for term in self.terms.values() if term.unit == unit}:
                step, lead = values[unit], next(iter(single[unit]))
                axes = self.axes_of(ExtentTerm(1, name, 0, unit))
                yield f"{name}*{unit}", Symbol(tuple((axis, step) for axis in axes), step, unit=lead)


def read_declaration(declared: Mapping[str, Any], arguments: CallArguments) -> Declaration:
    """What a dictionary says.

    Args:
        declared: by the names of arguments: the extents of a tensor, `opassay.Integers`, or the values of an argument
            that is no tensor, where a tuple of extents stands for a tensor; and under "where" a list of sentences.

    Raises:
        DomainError: it names no argument, is of another form, or the given call is not of it.
    """
    names = list(arguments.names) or [f"input{i}" for i in range(len(arguments.leaves))]
    tensors = [name for name, leaf in zip(names, arguments.leaves, strict=True) if isinstance(leaf, Tensor)]
    terms, rest = dict[Axis, ExtentTerm](), dict[int, Sequence[Any]]()
    integers: dict[int, tuple[str, str, ExtentTerm]] = {}
    for name, value in declared.items():
        if name == "where":
            continue
        if name not in names:
            raise DomainError(f"domain: got {name!r}{nearest_of(name, names)}, need arguments: {', '.join(names)}")
        if name not in tensors:
            sizes = list(sizes_of(arguments))
            if isinstance(value, str) and names.index(name) in sizes:
                terms[len(tensors) + sizes.index(names.index(name)), 0] = _term_of(value)
                continue
            if not isinstance(value, Sequence) or isinstance(value, str):
                raise DomainError(f"domain: got {name}={value!r}, need a tuple of values")
            rest[names.index(name)] = value
            continue
        place = tensors.index(name)
        shape, extents = arguments.shapes[place], value
        if isinstance(value, Integers):
            extents = value.shape or ()
            integers[place] = "index", "below", _term_of(value.below)
        if not isinstance(extents, Sequence) or isinstance(extents, str) or len(extents) != len(shape):
            raise DomainError(f"domain: got {name}={value!r}, need an extent for each axis of {list(shape)}")
        terms |= {(place, d): _term_of(extent) for d, extent in enumerate(extents)}
    words = _read_sentences(declared.get("where", ()), tensors, arguments)
    declaration = replace(words, terms=terms, integers={**integers, **words.integers})
    _require_given(declaration, tensors, arguments)
    values = declaration.values(tuple(arguments.shapes))
    options = {
        i: tuple(tuple(n if n == TRUTH else _term_of(n).at(values) for n in v) if isinstance(v, tuple) else v
                 for v in every if type(v) is not type(leaf) or v != leaf)
        for i, every in rest.items() for leaf in [arguments.leaves[i]]
    }  # fmt: skip
    return replace(declaration, options=options)


def _read_sentences(sentences: Iterable[Any], names: Sequence[str], arguments: CallArguments) -> Declaration:
    """What sentences and functions of "where" say; `names`: of the tensors."""
    facts, integers = dict[int, tuple[str, ...]](), dict[int, tuple[str, str, ExtentTerm]]()
    promises, relations, texts, rules = dict[int, tuple[str, ...]](), [], [], []
    for sentence in sentences:
        if callable(sentence):
            rules.append(InputRule.of(sentence, arguments))
            continue
        relation, statement = _RELATION.fullmatch(sentence.replace(" ", "")), _STATEMENT.fullmatch(sentence)
        if relation is not None:
            relations.append((_term_of(relation[1]), relation[2], _term_of(relation[3])))
            texts.append(sentence)
            continue
        if statement is None or statement[1] not in names:
            nearest = nearest_of(statement[1], names) if statement is not None else ""
            need = "need a relation of extents, as 'N <= M', 'NAME: WORDS', or a function"
            raise DomainError(f"domain: got {sentence!r}{nearest}, {need}")
        place, words = names.index(statement[1]), statement[2]
        tensor = arguments.tensors[place]
        if words in (CONTIGUOUS, WRITTEN):
            promises[place] = (*promises.get(place, ()), words)
            texts.append(sentence)
        elif is_integer(tensor) and (match := _INTEGERS.fullmatch(words)):
            integers[place] = match[1], match[2] or "", _term_of(match[3] or 0)
        elif tensor.is_floating_point() and (WORDS.fullmatch(words) or range_of(words)):
            facts[place] = (*facts.get(place, ()), words)
        else:
            raise DomainError(f"domain: got {sentence!r}, need {_known(tensor)}")
    return Declaration({}, facts, integers, {}, tuple(relations), tuple(texts), promises, tuple(rules))


def _known(tensor: Tensor) -> str:
    if is_integer(tensor):
        return f"one of {', '.join(KINDS)}, and 'into N', 'below N' or 'summing to N', '{CONTIGUOUS}' or '{WRITTEN}'"
    words = *OF_TWO, "sums to 1 along 0", "of norm 1 along 0", f"{HALVES} along 0", "symmetric", "positive definite"
    return f"{', '.join(map(repr, (*words, 'in [0, 1]', CONTIGUOUS)))} or '{WRITTEN}'"


def _term_of(extent: Any) -> ExtentTerm:
    match = _EXTENT.fullmatch(str(extent).replace(" ", ""))
    if match is None or isinstance(extent, bool):
        raise DomainError(f"domain: got the extent {extent!r}, need a symbol, '2*N', 'N+1', 'R*H' or a number")
    if match[6]:
        return ExtentTerm(plus=int(match[6]))
    if match[4]:
        return ExtentTerm(1, match[4], 0, match[5])
    return ExtentTerm(int(match[1] or 1), match[2], int(match[3] or 0))


def _require_given(declaration: Declaration, names: Sequence[str], arguments: CallArguments) -> None:
    """DomainError unless the given call is of a declaration."""
    shapes = shapes_of(arguments)
    values = declaration.values(shapes)
    others = [term for used in (*declaration.relations, *declaration.integers.values()) for term in used]
    terms = (term for term in [*declaration.terms.values(), *others] if isinstance(term, ExtentTerm))
    for symbol in (symbol for term in terms for symbol in (term.symbol, term.unit)):
        if symbol and symbol not in values:
            raise DomainError(f"domain: got {symbol!r}, need symbols of axes: {', '.join(values) or 'none'}")
    for (i, d), term in declaration.terms.items():
        if shapes[i][d] != term.at(values):
            name = f"{names[i]}.{d}" if i < len(names) else "a number"
            raise DomainError(f"domain: got {name}={term.at(values)}, need {shapes[i][d]} of the given call")
    for one, sign, other in declaration.relations:
        if not _COMPARE[sign](one.at(values), other.at(values)):
            got = f"{one.at(values)} {sign} {other.at(values)}"
            raise DomainError(f"domain: got {got}, need relations that hold at the given call")
    require_values(declaration, names, arguments)


def require_values(declaration: Declaration, names: Sequence[str], arguments: CallArguments) -> None:
    """DomainError unless facts and limits of integers hold of the values of a call."""
    values = declaration.values(tuple(arguments.shapes))
    for i, words in declaration.facts.items():
        tensor, facts = arguments.tensors[i], set(facts_of([arguments.tensors[i]]))
        for fact in words:
            low_high, (word, _, axis) = range_of(fact), fact.partition(" along ")
            holds = fact in facts or (word == HALVES and has_equal_halves(tensor, int(axis)))
            if not holds and not (low_high and bool(((tensor >= low_high[0]) & (tensor <= low_high[1])).all())):
                raise DomainError(f"domain: got {names[i]}: {fact}, need what holds of the given inputs")
    for i, (kind, use, term) in declaration.integers.items():
        tensor, limit = arguments.tensors[i], term.at(values)
        if kind == "offsets" and bool((tensor.diff() < 0).any()):
            raise DomainError(f"domain: got {names[i]}: offsets, need what never falls, as the given ones do")
        most = int(tensor.sum()) if use == "summing to" else int(tensor.max()) if tensor.numel() else 0
        if (use == "summing to" and most != limit) or (use and most > limit - (use == "below")):
            raise DomainError(f"domain: got {names[i]}: {kind} {use} {limit}, need {most} of the given inputs")


def find_options(
    place: int, call: CallArguments, function: Any, shapes: Sequence[tuple[int, ...]],
    takes: Callable[[CallArguments], bool], differs: Callable[[CallArguments, CallArguments], bool],
) -> list[Option]:  # fmt: skip
    """Other values of one argument; in place of None those of the first kind that change something.

    Args:
        place: its position among the leaves of a call. function: the spec. shapes: for a tensor in place of None.
        takes: whether the spec gives numbers at another call. differs: whether it gives others at one than at another.
    """
    leaf, rng = call.leaves[place], torch.Generator().manual_seed(0)

    def at(option: Option) -> CallArguments:
        return call.with_leaf(place, value_of(option, call.leaves, lambda t: torch.randn(t.shape, generator=rng).to(t)))

    takes_unknown = isinstance(leaf, str) and takes(at("unknown"))
    for kind in _propose_options(leaf, shapes, function, takes_unknown):
        # A number that the spec does not read may be a size, in a candidate that does.
        read = (option for option in kind if type(leaf) is not int or differs(call, at(option)))
        usable = list(itertools.islice((option for option in read if takes(at(option))), _MOST))
        usable = [each for each in usable if not isinstance(each, tuple) or differs(at(each), at(each))]  # no flag
        if leaf is not None or any(differs(call, at(option)) for option in usable):
            return usable
    return []


def _propose_options(
    leaf: Any, shapes: Sequence[tuple[int, ...]], function: Any, takes_unknown: bool
) -> Iterator[Iterable[Option]]:
    """Other values in place of one, kind by kind; one word shows the branch of a spec that `takes_unknown` ones."""
    if isinstance(leaf, bool):
        yield [not leaf]
    elif isinstance(leaf, int):
        yield (value for value in dict.fromkeys((leaf + 1, 2 * leaf, leaf // 2, 1, 2, 3)) if value != leaf)
    elif isinstance(leaf, float):
        # Not a negative number: what a square root is taken of may be nothing else.
        yield (value for value in dict.fromkeys((1.7 * leaf or 1.7, 0.5 * leaf or 0.5, 1.0)) if value != leaf)
    elif isinstance(leaf, str):
        words, rows = _words_beside(leaf, function), (row.split() for row in _WORDS)
        others = dict.fromkeys(word for row in rows if leaf in row for word in row if word not in (leaf, *words))
        yield itertools.chain(words, itertools.islice(others, 1 if takes_unknown else None))
    elif leaf is None:
        extents = sorted({n for shape in shapes for n in shape})
        pairs = itertools.product(extents if len(extents) <= _AMONG else (), repeat=2)
        every = sorted({*shapes, *((n,) for n in extents), *pairs}, key=len)
        # A mask is no tensor of numbers, or is compared with zero, which none of these is.
        kinds: tuple[Iterable[Option], ...] = every, ((TRUTH, *shape) for shape in every if shape), [2, 3], [0.5, 0.7]
        yield from kinds


def _words_beside(word: str, function: Any) -> list[str]:
    """The words that a function's text compares or lists beside a word which it is given."""
    code = getattr(getattr(function, "forward", function), "__code__", None)
    rows, before = list[tuple[str, ...]](), None
    for step in dis.get_instructions(code) if code is not None else ():
        value = before.argval if before is not None and before.opname.startswith("LOAD_CONST") else None
        rows += [(value,)] if step.opname in _COMPARISONS and isinstance(value, str) else []
        listed = step.argval if step.opname.startswith("LOAD_CONST") else None
        rows += [tuple(listed)] if isinstance(listed, tuple | frozenset) and word in listed else []
        before = step
    return [each for each in dict.fromkeys(itertools.chain(*rows)) if isinstance(each, str) and each != word]


def value_of(option: Option, leaves: Sequence[Any], fill: Callable[[Tensor], Tensor]) -> Any:
    """What a call is given for an option: itself; for a shape what `fill` makes of zeros like the floating leaves."""
    if not isinstance(option, tuple):
        return option
    like = next((x for x in leaves if isinstance(x, Tensor) and x.is_floating_point()), torch.zeros(()))
    shape = [n for n in option if isinstance(n, int)]
    if len(shape) == len(option):
        return fill(like.new_zeros(shape))
    mask = fill(like.new_zeros(shape)) > 0
    mask[..., :1] |= ~mask.any(-1, keepdim=True)  # a softmax over no key gives no number
    return mask
