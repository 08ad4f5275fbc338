"""The tree along which a candidate adds up, probed by calls of it.

What this is for: a contract names a tree, `torch+height12of4096`, which makes bounds of long sums many times narrower;
a probe says which one a candidate may be held to.

What is hard here: a tree is that of one call. It may be another one at other shapes, strides and places in memory, for
other rows, and for gradients. So what is probed are calls with the shapes and strides of the given arguments, and
nothing is said of others. Outputs that show other numbers than others at the same masks have trees of their own, and
the tallest one counts. A sample of all that was measured is measured again of every output: a candidate that adds up in
another order then, or in none, is not probed.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from opassay.oracles.bound.terms import terms
from opassay.oracles.op.declaration import dtype_name
from opassay.properties.candidates.arguments import CallArguments, Inputs, State, Tensor
from opassay.properties.candidates.host.calls import Answer, CandidateCall
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.specification import specification
from opassay.reference.formats import FORMATS

from .isolated_sum import IsolatedSum, ProbeError, isolate_sum
from .tree_search import ProbedTree, TreeError, TreeQuestion, search_tree

#: How a candidate is called: arguments and state -> its answer.
CallCandidate = Callable[[CallArguments, State], Answer]
#: Calls in which one tree is searched, and elements of the operand in all of them; and how many trees.
_CALLS, _ELEMENTS, _TREES = 2**15, 2**30, 64
#: The exponents of M and of units: in binary16 the largest power of two, and the smallest number; else such that
#: float64 absorbs a unit beside M, and binary32 has neither overflow nor underflow.
_OF_HALF, _OF_OTHERS = (15, -24), (120, 0)
#: A unit beside M is lost where M has so many more bits, two of them for units that were added up before.
_ABSORBING = 26
#: How far a count may be from an integer: it is one but for the rounding of a scale.
_OFF = 0.25


@dataclass(frozen=True)
class ProbeResult:
    """What a probe has shown.

    Attributes:
        trees: the trees of the outputs, the tallest one first. outputs: how many were probed. calls: that it took.
        more: roundings that a term may pass besides, where it is scaled before it is added.
    """

    trees: tuple[ProbedTree, ...]
    outputs: int
    calls: int
    more: int

    @property
    def name(self) -> str:
        """The name of the tree that a contract has for it: of sums of this length."""
        tallest = self.trees[0]
        return f"height{min(tallest.height + self.more, tallest.terms - 1)}of{tallest.terms}"

    def __str__(self) -> str:
        pairs, trees = sum(tree.pairs for tree in self.trees), len(self.trees)
        text = f"{trees} tree{'s' * (trees > 1)} in {self.outputs} outputs, {pairs} pairs, {self.calls} calls"
        return text if all(tree.whole for tree in self.trees) else f"{text}, a part of the tree is not known"


def _is_power(number: float) -> bool:
    """Whether a number is a power of two, so that a product with it rounds nothing."""
    return math.frexp(number)[0] == 0.5


class _Outputs:
    """Calls of a candidate at masks: numbers of terms below the nodes at which pairs of terms meet.

    Attributes:
        calls: how many were made.
    """

    def __init__(self, isolated: IsolatedSum, arguments: CallArguments, names: Sequence[str], call: CallCandidate):
        self._sum, self._arguments, self._names, self._call = isolated, arguments, names, call
        self.calls = 0
        half = dtype_name(isolated.operands[isolated.operand].dtype) == "float16"
        most, least = _OF_HALF if half else _OF_OTHERS
        self._large, own = 2.0**most, 1.0 / isolated.scale
        # Where the scale rounds, half an ulp of a subnormal number must not be taken for a part of a unit.
        least += 5 * (half and not _is_power(own))
        # A mean is the number of units where these are the number of terms, whenever it is that they are divided.
        self._unit = 2.0**least * (own if own == np.rint(own) and not half else 2.0 ** round(math.log2(own)))
        self._room = int(min(2.0 ** (most - _ABSORBING) / self._unit, 2.0**40))

    @functools.cached_property
    def room(self) -> int:
        """How many units one output can count."""
        at_ones = self._answer(np.ones(self._sum.places.shape))
        precision = FORMATS[dtype_name(at_ones.dtype)].precision
        exact: int = 2 ** (precision - 4 * (not _is_power(self._sum.scale)))
        return max(min(self._room, exact), 1)

    def count_masks(self, outputs: Any) -> int:
        """How many masks may be asked of some outputs: of each of their sums one in a call."""
        elements = self._sum.operands[self._sum.operand].numel()
        return min(_CALLS, _ELEMENTS // elements) * len(np.unique(self._sum.owners[outputs]))

    def measure(self, outputs: Any, questions: Sequence[TreeQuestion]) -> list[Any]:
        """What `outputs` that have one tree show together: each sum is asked for another pair, of `questions`."""
        sums, places = np.unique(self._sum.owners[outputs], return_index=True)
        masks = [mask for question in questions for mask in self._masks_of(question)]
        counts = np.empty(len(masks))
        for start in range(0, len(masks), len(sums)):
            some = masks[start : start + len(sums)]
            values = self._values(some, sums[: len(some)])
            counts[start : start + len(some)] = self._counts(values)[outputs[places[: len(some)]]]
        sizes, rest = [], iter(counts)
        for question in questions:
            parts = len(self._units_of(question))
            own = np.array([[next(rest) for _ in range(parts)] for _ in question.others]).sum(1)
            sizes.append(self._sizes(question, own))
        return sizes

    def measure_all(self, question: TreeQuestion) -> Any:
        """What every output shows of one pair."""
        rows = len(self._sum.places)
        parts = [np.tile(self._values([mask], [0])[:1], (rows, 1)) for mask in self._masks_of(question)]
        return self._sizes(question, np.sum([self._counts(part) for part in parts], 0))

    def _units_of(self, question: TreeQuestion) -> list[Any]:
        """The terms that are units, in parts that an output can count; all where it can count all."""
        if self.room >= self._sum.terms:
            return [np.arange(self._sum.terms)]
        outside = [question.outside] if question.outside >= 0 else []
        units = np.concatenate([question.group, np.array(outside, dtype=np.int64)])
        return np.array_split(units, -(-len(units) // self.room))

    def _masks_of(self, question: TreeQuestion) -> list[tuple[int, int, Any]]:
        parts = self._units_of(question)
        return [(question.pivot, int(other), units) for other in question.others for units in parts]

    def _sizes(self, question: TreeQuestion, counts: Any) -> Any:
        """How many terms lie below a node, by how many units were added after it, or none where all were asked of."""
        terms = self._sum.terms
        if self.room >= terms:
            return terms - counts.astype(np.int64)
        if question.outside < 0:
            return len(question.group) - counts.astype(np.int64)
        # The one outside is lost at the node where the group joins others, with all of the group.
        return np.where(counts == 0, question.above, len(question.group) - (counts - 1)).astype(np.int64)

    def _values(self, masks: Sequence[tuple[int, int, Any]], sums: Any) -> Any:
        """The terms of all sums: masks in the sums that are named, units or zeros in others."""
        whole = self.room >= self._sum.terms
        values = np.full(self._sum.places.shape, self._unit if whole else 0.0)
        for (pivot, other, units), row in zip(masks, sums, strict=True):
            if not whole:
                values[row, units] = self._unit
            values[row, pivot], values[row, other] = self._large, -self._large
        return values

    def _counts(self, values: Any) -> Any:
        """How many units each output has, where the sums have these terms.

        Raises:
            TreeError: it is no number of units.
        """
        output = self._answer(values).detach().double().reshape(-1).numpy(force=True)
        with np.errstate(all="ignore"):
            counts = output / (self._unit * self._sum.scale)
            if not np.all(np.abs(counts - np.rint(counts)) <= _OFF):
                worst = output[~(np.abs(counts - np.rint(counts)) <= _OFF)][0]
                raise TreeError(f"a sum of {self._large:g}, {-self._large:g} and {self._unit:g}s is {worst:g}")
        return np.rint(counts)

    def _answer(self, values: Any) -> Tensor:
        """The output with these terms.

        Raises:
            TreeError: the candidate raises, or gives something else than before.
        """
        self.calls += 1
        operands = self._sum.with_values(values)
        count = len(self._names)
        arguments = self._arguments.with_tensors(operands[count:])
        answer = self._call(arguments, dict(zip(self._names, operands, strict=False)))
        if answer.raised:
            raise TreeError(f"the candidate raises where terms are {self._large:g}: {answer.raised.splitlines()[0]}")
        if len(answer.outputs) != 1 or answer.outputs[0].numel() != len(self._sum.owners):
            raise TreeError("the candidate gives an output of another shape")
        output: Tensor = answer.outputs[0]
        return output


def probe_tree(
    isolated: IsolatedSum, arguments: CallArguments, names: Sequence[str], call: CallCandidate,
    draws: np.random.Generator,
) -> ProbeResult:  # fmt: skip
    """The trees along which a candidate adds up the sums of a spec.

    Args:
        isolated: these sums. arguments: of the call; names: of the spec's state. call: the candidate.
        draws: for pivots, and for what is measured again.

    Raises:
        ProbeError: it shows none, or not twice the same, or one in every few outputs.
    """
    outputs, terms = _Outputs(isolated, arguments, names, call), isolated.terms
    try:
        classes, trees = _alike(outputs, isolated, draws), list[ProbedTree]()
        while classes:
            if len(trees) == _TREES:
                raise TreeError(f"outputs have more than {_TREES} trees")
            tree, others = _tree_of_class(outputs, classes.pop(), terms, draws)
            trees.append(tree)
            classes += [others] if len(others) else []
    except TreeError as err:
        raise ProbeError(f"the candidate shows no tree of sums: {err}") from err
    trees.sort(key=lambda tree: -tree.height)
    # A term times the reciprocal of a number has two roundings before it is added, which the spec's scale has behind.
    more = 0 if _is_power(isolated.scale) else 2
    return ProbeResult(tuple(trees), len(isolated.owners), outputs.calls, more)


def _alike(outputs: _Outputs, isolated: IsolatedSum, draws: np.random.Generator) -> list[Any]:
    """The outputs, in classes that show the same of pairs of terms that lie near each other, and far."""
    terms = isolated.terms
    every = np.arange(terms)
    rows = []
    for power in range(max(terms - 1, 1).bit_length()):
        pivot = int(draws.integers(terms))
        other = (pivot + 2**power) % terms
        rows.append(outputs.measure_all(TreeQuestion(pivot, np.array([other]), every, terms + 1)))
    _, numbers = np.unique(np.array(rows), axis=1, return_inverse=True)
    return [np.flatnonzero(numbers.reshape(-1) == number) for number in range(int(numbers.max()) + 1)]


def _tree_of_class(outputs: _Outputs, members: Any, terms: int, draws: np.random.Generator) -> tuple[ProbedTree, Any]:
    """The tree of the first of some outputs that were alike so far, and those of them that are unlike it after all."""
    for asked_together in (members, members[:1]):
        measure = functools.partial(outputs.measure, asked_together)
        try:
            tree = search_tree(terms, measure, draws, outputs.count_masks(asked_together), outputs.room)
        except TreeError:
            if len(asked_together) == 1:
                raise
            continue
        same = np.ones(len(members), dtype=bool)
        for question, size in tree.sample:
            same &= outputs.measure_all(question)[members] == size
        if same.all():
            return tree, members[:0]
        if len(asked_together) == 1:
            break
    if not same[0]:
        raise TreeError("another one at the next call with the same terms")
    return tree, members[~same]


def probe(candidate: Callable[..., Any], spec: Any, inputs: Inputs) -> ProbeResult:
    """The trees along which a function adds up, which takes and gives what a spec does.

    Args:
        candidate: a function in this process, or a module. spec: what is one sum, in plain PyTorch.
        inputs: of both; trees are those of calls with these shapes, strides and dtypes.

    Raises:
        ProbeError: the spec is none that can be probed, or the candidate shows no tree.
    """
    arguments, read = CallArguments.of(inputs), specification(spec)
    host, names = CandidateHost("candidate", candidate), list(read.state)

    def call(args: CallArguments, state: State) -> Answer:
        return host.ask(CandidateCall.of(args, {name: state[name] for name in names if name in host.shapes}))

    return probe_tree(isolate_sum(read, arguments, terms("torch")), arguments, names, call, np.random.default_rng(0))
