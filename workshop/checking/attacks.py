"""The rounding reading attacked: random legal evaluations of every formula of the catalog, held against its balls.

What this is for: the bounds are derived, so nothing but a proof says that they hold, and proofs have gaps. An attack
evaluates each formula, and its first derivatives, as the contract allows (`workshop.random_evaluation`): what lies
outside its ball is a fault of the bound. It also says how near the boundary any evaluation came: where none comes near,
a bound may be wider than it need be.

Samples are the assay's large ones, whose tensors have up to 70,000 elements, and ordinary ones, in which few roundings
come nearer to the boundary than many.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from opassay.oracles.bound.contract import EXP2, Contract
from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.bound.terms import PRESETS
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import OWN, Draft, Op
from opassay.oracles.op.paths import Path
from opassay.oracles.op.transforms import FIRST, Word, derivative_order
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Unsupported, Violation
from opassay.properties.picking import drafting
from opassay.reference.algorithms import names_of

from ..random_evaluation import evaluate_at_random

#: Contracts by the names of terms, and the device whose functions they are about.
CONTRACTS: tuple[tuple[str, str], ...] = (
    ("strict", "cpu"), ("torch", "cpu"), ("strict", "cuda"), ("tensor_core", "cuda"), ("fast_math", "cuda"),
)  # fmt: skip
WORDS: tuple[Word, ...] = ((), *FIRST)
#: Evaluations of each sample, whose balls are read once, at least and at most.
EVALUATIONS = (3, 40)
#: How often each case is visited: every word with large samples and, three times as often, with ordinary ones.
ROUNDS = 12
#: The most elements that the axes of a sample have together.
LARGEST = 70_000
#: The seeds of samples begin at multiples of this, so that campaigns of two seeds have no sample in common.
SEEDS_APART = 10**7
#: A bound of which no evaluation comes nearer to its boundary than this is named as wide.
WIDE = 0.3


@dataclass
class Row:
    """What was seen of one output of an op under one contract.

    Attributes:
        elements: how many were evaluated and have a bound. outside: how many of those lie outside their ball.
        unbounded: how many have no finite bound, so that they are not judged. ratio: the largest error over its bound.
    """

    elements: int = 0
    outside: int = 0
    unbounded: int = 0
    ratio: float = 0.0


@dataclass
class Attack:
    """What all evaluations showed.

    Attributes:
        rows: by (op, path and output, contract). examples: the first elements outside, in words.
        omissions: what could not be evaluated, by the reason.
    """

    rows: dict[tuple[str, str, str], Row] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)
    omissions: dict[str, int] = field(default_factory=dict)

    @property
    def elements(self) -> int:
        return sum(row.elements for row in self.rows.values())

    @property
    def outside(self) -> int:
        return sum(row.outside for row in self.rows.values())


@dataclass(frozen=True, eq=False)
class Case:
    """What is evaluated: an op in a dtype under the terms of a name, with the functions of a device."""

    op: Op
    dtype: str
    terms: str
    device: str

    @functools.cached_property
    def allowed(self) -> Op:
        """The op with the algorithms of the terms besides its own."""
        algorithms = {*names_of(self.op.reference), EXP2}
        names = self.op.promises.arithmetic.algorithms | ((PRESETS[self.terms].algorithms or frozenset()) & algorithms)
        return self.op.changed(algorithms=frozenset(names))

    def contract(self, order: int) -> Contract:
        base = PRESETS[self.terms].contract(self.dtype, self.device, order + self.op.promises.order)
        return replace(base, algorithms=base.algorithms | self.op.promises.arithmetic.algorithms)


#: How many drafts are tried for one that is small enough.
SEARCHED = 24
#: How many elements outside their ball are described.
MOST_EXAMPLES = 8


def attack_bounds(cases: Sequence[Case], elements: int, seed: int, rounds: int = ROUNDS) -> Iterator[Attack]:
    """Evaluate one sample of every case after the other, until `elements` were evaluated; the state after each.

    Args:
        elements: how many, at least. seed: of drafts, data and evaluations.
        rounds: how often each case is visited, at least; each visit has its share of the elements.
    """
    attack, share = Attack(), -(-elements // (len(cases) * rounds))
    for number in itertools.count():
        for position, case in enumerate(cases):
            # What is left after the rounds is made up for by large samples.
            large = number % 4 == 0 or number >= rounds
            visit = Visit(number, seed * SEEDS_APART + number * len(cases) + position, share, large)
            try:
                _attack(attack, case, visit)
            except (Unsupported, Violation) as err:
                reason = f"{case.op.name} {case.dtype}: {type(err).__name__}"
                attack.omissions[reason] = attack.omissions.get(reason, 0) + 1
            yield attack
            if number >= rounds and attack.elements >= elements:
                return
        if number + 1 >= rounds and (attack.elements >= elements or not attack.elements):
            return


@dataclass(frozen=True)
class Visit:
    """One sample of a case.

    Attributes:
        number: of the round. seed: of the data. share: how many elements are to be evaluated.
        is_large: whether the sample is a large one.
    """

    number: int
    seed: int
    share: int
    is_large: bool

    @property
    def largest(self) -> int:
        """Elements that the axes of the sample may have."""
        least, _ = EVALUATIONS
        return min(LARGEST, self.share // least if self.is_large else LARGEST)

    def evaluations(self, size: int) -> int:
        """How many evaluations of so many elements."""
        least, most = EVALUATIONS
        return min(max(self.share // max(size, 1), least), most)


@functools.lru_cache(maxsize=512)
def _drafts(case: Case, kind: str, seed: int) -> drafting.Drafts:
    return drafting.drafts(case.op, case.dtype, kind, seed)


def _attack(attack: Attack, case: Case, visit: Visit) -> None:
    seed, op = visit.seed, case.allowed
    sample = _draft(case, visit).sample(seed)
    primal = Judge(op, OWN, case.contract(0)).primal(sample)
    words = WORDS if op.differentiable_positions(sample.args) else WORDS[:1]
    # The word moves on with the round, but not in step with what is large.
    path = Path.draw(op, sample, words[(visit.number + visit.number // 4 + seed) % len(words)], primal)
    contract = case.contract(derivative_order(path.word))
    formula, arrays = path.formula(), path.arrays()
    read, names = balls(formula, arrays, contract), path.names()
    for evaluation in range(visit.evaluations(sum(ball.centre.size for ball in read))):
        outputs = evaluate_at_random(formula, arrays, contract, np.random.default_rng([seed, evaluation]))
        for name, computed, ball in zip(names, outputs, read, strict=True):
            key = (op.name, name, f"{case.terms}/{case.device}")
            at = hold(attack.rows.setdefault(key, Row()), computed, ball)
            if at is not None and len(attack.examples) < MOST_EXAMPLES:
                attack.examples.append(
                    _describe_escape(f"{' '.join(key)} {case.dtype}", (seed, evaluation), at, (computed, ball))
                )


def _draft(case: Case, visit: Visit) -> Draft:
    kind = "large" if visit.is_large else "ordinary"
    try:
        drafts = _drafts(case, kind, visit.seed // SEEDS_APART)
    except Unsupported:
        drafts = _drafts(case, "ordinary", visit.seed // SEEDS_APART)
    smallest: Draft | None = None
    for pick in itertools.islice(drafts.after(visit.number), SEARCHED):
        size = int(np.prod(list(pick.draft.extents.values()), dtype=np.int64))
        if size <= visit.largest:
            return pick.draft
        if smallest is None or size < np.prod(list(smallest.extents.values()), dtype=np.int64):
            smallest = pick.draft
    if smallest is None:
        raise Unsupported(Code.NOT_APPLICABLE, f"{case.op.name} offers no more samples")
    return smallest


def _describe_escape(where: str, seeds: tuple[int, int], at: tuple[int, ...], outcome: tuple[Any, Ball]) -> str:
    """A sentence about an element outside its ball.

    Args:
        where: the output. seeds: of the sample, and the number of the evaluation. at: the element.
        outcome: the output of the evaluation, and its ball.
    """
    (seed, evaluation), (computed, ball) = seeds, outcome
    centre = ball.centre[at]
    return (
        f"{where}, seed {seed}, evaluation {evaluation}, element {list(at)}: {float(computed[at])!r} is off from "
        f"{float(centre)!r} by {float(abs(computed[at] - centre)):.6g}, the bound is {float(ball.radii()[at]):.6g}"
    )


def hold(row: Row, computed: Any, ball: Ball) -> tuple[int, ...] | None:
    """Count an output of an evaluation; the index of an element outside its ball, if there is one."""
    with np.errstate(all="ignore"):
        centre, radius = ball.centre, np.asarray(ball.radii(), dtype=np.float64)
        judged = np.isfinite(radius) & np.isfinite(centre)
        apart = np.abs(computed - centre).astype(np.float64)
        inside = np.where(judged, apart <= radius, True)
        ratios = np.where(judged & (radius > 0), apart / radius, 0.0)
    row.elements += int(np.count_nonzero(judged))
    row.unbounded += int(judged.size - np.count_nonzero(judged))
    outside = np.argwhere(~inside)
    row.outside += len(outside)
    row.ratio = max(row.ratio, float(np.max(ratios[np.isfinite(ratios)], initial=0.0)))
    return tuple(int(i) for i in outside[0]) if len(outside) else None


def cases_of(ops: Sequence[Op], dtypes: Sequence[str], terms: Callable[[str], bool]) -> list[Case]:
    """Every op in every dtype under every contract whose name is wanted, in an order that mixes them."""
    every = itertools.product(dtypes, [each for each in CONTRACTS if terms(each[0])], ops)
    return [Case(op, dtype, name, device) for dtype, (name, device), op in every]
