"""The values that two programs have in common: what the same calls of the same values gave, or what was found equal.

A value has a class. Calls of one operation with the same numbers and operands of the same classes give one class, in
one program or in two; so a repeated forward pass is nothing new. What was there before has the class of its numbers.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from ...oracles.specs.storage import format_of
from ...reference.formats import ulp_array
from .call import DispatcherCall, Tensor, is_floating, kind_of
from .program_graph import THERE, GraphCall, ProgramGraph, ValueKey, ValueUse, digest_of
from .segments import PartDistance, Segment, UnreadError, coarser, measure_distance

#: Of two programs: the other one, and this one.
OTHER, OWN = 0, 1


class ValuePair(NamedTuple):
    """An operand or a result in both programs, with its dtype in each."""

    there: ValueUse
    here: ValueUse
    dtypes: tuple[torch.dtype, torch.dtype]


class PairFinding(NamedTuple):
    """What was found about values of both programs.

    Attributes:
        distance: of them; its ratio is NaN where it is not known. wide: the same, as if the programs had no half types.
        pairs: of what was asked. segments: the parts of both programs that were read.
    """

    distance: PartDistance
    wide: PartDistance = PartDistance(0.0)
    pairs: tuple[ValuePair, ...] = ()
    segments: tuple[Segment, ...] = ()


class CommonValues:
    """What is known of the values of two programs.

    Attributes:
        unknown: why values were taken to be the same without being compared -> how often.
        excused: values there and here whose difference was told. assumed: classes that were not compared.
    """

    def __init__(self, there: ProgramGraph, here: ProgramGraph, contract: str) -> None:
        self.unknown: Counter[str] = Counter()
        self.excused: set[tuple[ValueKey, ValueKey]] = set()
        self.assumed: set[Any] = set()
        self._graphs, self._contract, self._count = (there, here), contract, itertools.count()
        self._forms: dict[Any, int] = {}
        self._classes: tuple[dict[ValueKey, Any], dict[ValueKey, Any]] = {}, {}
        for position, call in enumerate(there.calls):
            self.add(OTHER, position, call)
        #: class -> a value there.
        self._there = {self.class_of(OTHER, key): key for key in reversed(there.values)}
        #: class of there -> a value here.
        self._here = {(THERE, key[1]): key for key in here.values if key[0] == THERE and key in there.values}

    def save(self) -> Any:
        """What is known, for `restore`."""
        return dict(self._classes[OWN]), dict(self._here)

    def restore(self, saved: Any) -> None:
        """Know what was known then."""
        self._classes, self._here = (self._classes[OTHER], dict(saved[0])), dict(saved[1])

    def class_of(self, side: int, key: ValueKey) -> Any:
        """The class of a value."""
        return self._classes[side].get(key, key)

    def is_common(self, side: int, key: ValueKey) -> bool:
        """Whether a value is one of both programs."""
        kind = self.class_of(side, key)
        return kind in self._here and kind in self._there

    def add(self, side: int, position: int, call: GraphCall) -> bool:
        """Give the results of a call their classes; whether the other program has them."""
        operands = tuple((self.class_of(side, operand.key), operand.view) for operand in call.operands)
        form: Any = (*form_of(call.call), operands)
        if kind_of(call.call) == "random":  # The same numbers may be drawn in two ways.
            form = tuple(digest_of(y) for y in call.call.results)
        number = self._forms.setdefault(form, next(self._count))
        keys = [(position, i) for i in range(len(call.call.results))]
        self._classes[side].update((key, ("call", number, key[1])) for key in keys)
        if side == OTHER:
            return False
        known = [self.class_of(side, key) in self._there for key in keys]
        self._here |= {self.class_of(side, key): key for key, is_known in zip(keys, known, strict=True) if is_known}
        return bool(known) and all(known)

    def unite(self, there: ValueKey, here: ValueKey, *, is_assumed: bool = False) -> None:
        """Take a value here for one of there; `is_assumed`: though nothing was found out about it."""
        kind = self.class_of(OTHER, there)
        self.assumed |= {kind} if is_assumed else set()
        self._classes[OWN][here] = kind
        self._here.setdefault(kind, here)

    def is_same(self, pair: ValuePair) -> bool:
        """Whether both programs have the same, as far as is known."""
        there, here, _ = pair
        classes = self.class_of(OTHER, there.key), self.class_of(OWN, here.key)
        return (classes[0] == classes[1] and there.view == here.view) or (there.key, here.key) in self.excused

    def compare(self, pairs: Sequence[ValuePair]) -> PairFinding:
        """Compare values of both programs, and unite those that are found to be the same."""
        pairs = [pair for pair in pairs if not self.is_same(pair)]
        rest = []
        for pair in pairs:
            is_there = pair.there.key[0] == pair.here.key[0] == THERE
            if is_there and not self._compare_numbers(pair):
                return PairFinding(PartDistance(math.inf, math.inf), pairs=(pair,))
            rest += [] if is_there else [pair]
        return self._read(rest) if rest else PairFinding(PartDistance(0.0))

    def _compare_numbers(self, pair: ValuePair) -> bool:
        """Whether numbers that both programs had before are the same, up to the rounding of their formats."""
        there, here = (graph.values[use.key] for graph, use in zip(self._graphs, pair[:2], strict=True))
        is_whole = pair.there.view == pair.here.view and there.shape == here.shape
        if not is_whole:
            there, here = pair.there.view.take(there), pair.here.view.take(here)
        if pair.there.key in self._graphs[OTHER].unseen or pair.here.key in self._graphs[OWN].unseen:
            self.unknown["nobody was seen to write its memory"] += 1
        elif not are_near(there, here):
            return False
        if is_whole:
            self.unite(pair.there.key, pair.here.key)
        return True

    def _read(self, pairs: Sequence[ValuePair]) -> PairFinding:
        """Read what gives values in both programs, as functions of what they have in common."""
        try:
            segments = tuple(
                Segment.before(
                    self._graphs[side],
                    [((pair.there, pair.here)[side], pair.dtypes[side]) for pair in pairs],
                    functools.partial(self.is_common, side),
                )
                for side in (OTHER, OWN)
            )
            inputs = [[self._value_of(side, key) for key in segments[side].inputs] for side in (OTHER, OWN)]
            distance = wide = measure_distance(segments, inputs, self._contract, wide=False)
            if distance.ratio <= 1 and any(is_floating(t) and t.element_size() < 4 for t in itertools.chain(*inputs)):
                wide = measure_distance(segments, inputs, self._contract, wide=True)
        except UnreadError as err:
            self.unknown[str(err)] += 1
            return PairFinding(PartDistance(math.nan), pairs=tuple(pairs))
        except Exception as err:  # What we cannot read must not cost what is known of the rest.
            self.unknown[f"not read: {str(err).partition(chr(10))[0][:200] or type(err).__name__}"] += 1
            return PairFinding(PartDistance(math.nan), pairs=tuple(pairs))
        begins = {self.class_of(side, key) for side in (OTHER, OWN) for key in segments[side].inputs}
        if math.isnan(distance.ratio):
            self.unknown["what is computed has no bound"] += 1
        elif distance.ratio > 1 and begins & self.assumed:
            self.unknown["it follows from values that were not compared"] += 1
            return PairFinding(PartDistance(math.nan), pairs=tuple(pairs))
        elif distance.ratio <= 1:
            for pair in pairs:
                self._unite_whole(pair)
        return PairFinding(distance, wide, tuple(pairs), segments)

    def _unite_whole(self, pair: ValuePair) -> None:
        whole = [graph.values[operand.key].numel() for graph, operand in zip(self._graphs, pair[:2], strict=True)]
        is_whole = pair.here.view == pair.there.view and pair.here.view.is_in_order
        if is_whole and {math.prod(pair.here.view.shape)} == set(whole) and not self.is_common(OWN, pair.here.key):
            self.unite(pair.there.key, pair.here.key)

    def _value_of(self, side: int, key: ValueKey) -> Tensor:
        """The numbers of a value at which both programs are read."""
        own = self._graphs[side].values[key].cpu()
        if not self.is_common(side, key):
            return own
        kind = self.class_of(side, key)
        keys = (key, self._here[kind]) if side == OTHER else (self._there[kind], key)
        values = [graph.values[each].cpu() for graph, each in zip(self._graphs, keys, strict=True)]
        return coarser(*values).reshape(own.shape).to(own.dtype)


def form_of(call: DispatcherCall) -> tuple[Any, ...]:
    """The operation and its numbers, without what says where and in which format it computes."""
    return call.name.removesuffix("_"), str(call.structure), tuple(map(_number_of, call.leaves))


def _number_of(leaf: Any) -> Any:
    if isinstance(leaf, Tensor):
        return "tensor"
    if isinstance(leaf, (bool, type(None), str)):
        return leaf
    return float(leaf) if isinstance(leaf, (int, float)) else type(leaf).__name__


@np.errstate(all="ignore")
def are_near(one: Tensor, other: Tensor) -> bool:
    """Whether numbers of two formats may be roundings of the same; of one format, whether they are the same."""
    if one.shape != other.shape:
        return False
    if not (is_floating(one) and is_floating(other)) or one.dtype == other.dtype or one.is_complex():
        return bool(np.array_equal(_plain(one), _plain(other), equal_nan=True))
    a, b = _plain(one), _plain(other)
    room = sum(0.5 * ulp_array(format_of(each.dtype), np.abs(x)) for each, x in ((one, a), (other, b)))
    return bool(np.all((a == b) | (np.abs(a - b) <= room) | (np.isnan(a) & np.isnan(b))))


def _plain(tensor: Tensor) -> Any:
    plain = tensor.detach().cpu()
    if plain.is_complex():
        plain = torch.view_as_real(plain.resolve_conj())
    return plain.double().numpy()
