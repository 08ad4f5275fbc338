"""Every formula of the catalog, and its derivatives, read twice: by `reference.exact` and by `workshop.second`.

What this is for: the exact reading is what everything else is held against, so that a mistake in it would show as no
failure. The second reading has other numbers, other derivatives and NumPy's own functions; where both agree, a mistake
would have to be in both.

Samples are those of the assay: its drafts, picked for their declared values, in every dtype; and the same with a
special value planted in every operand in turn.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from mpmath import libmp

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.op.declaration import OWN, Op, Sample
from opassay.oracles.op.paths import Path
from opassay.oracles.op.transforms import FIRST, SECOND, Word, derivative_order, word_name
from opassay.oracles.verdicts.violation import Unsupported, Violation
from opassay.properties.checks.special import special_values
from opassay.properties.picking import drafting
from opassay.properties.picking.cover import Cover
from opassay.reference.exact import PrecisionError, evaluate
from opassay.reference.formats import FORMATS
from workshop.second import Undecided, along, enclosures

from .comparing import compare_element

WORDS: tuple[Word, ...] = ((), *FIRST, *SECOND)
#: One of this many samples has special values, besides those that its regime brings.
SPECIAL_SHARE = 4


@dataclass
class Account:
    """What the readings said of an op in a dtype.

    Attributes:
        samples, elements: that were read twice. kinds: how many elements of each kind of `comparing.Finding`.
        unread: samples that a reading gave up, by the reason. apart: the largest distance that was seen, as an exponent
            of two of the value; None where every exact value lay in its interval.
        examples: the first disagreements, in words. seconds: that all of it took.
    """

    op: str
    dtype: str
    samples: int = 0
    elements: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    unread: Counter[str] = field(default_factory=Counter)
    apart: int | None = None
    examples: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def disagreements(self) -> int:
        return self.kinds["disagree"]


#: How many disagreements of an op in a dtype are described.
MOST_EXAMPLES = 3


#: For this many samples or more, drafts are picked for the values that they have; fewer are taken as they come.
PICKED = 16


def compare_readings(op: Op, dtype: str, samples: int, seed: int) -> Iterator[Account]:
    """The account of an op in a dtype, after every sample; each word of transforms has its share of the samples.

    Args:
        samples: how many, at most. seed: of the drafts and of the data.
    """
    account = Account(op.name, dtype)
    drafts = drafting.drafts(op, dtype, "ordinary", seed)
    judge = Judge(op, OWN, contract(dtype))
    words = [word for word in WORDS if not word or op.differentiable]
    # Dtypes begin with different words, so that a few samples of each have all of them.
    first = samples * list(FORMATS).index(dtype)
    picked = Cover(drafts, samples, seed).picks(samples) if samples >= PICKED else drafts.first(samples)
    for number, pick in zip(range(samples), picked, strict=False):
        sample = pick.draft.sample(seed + number)
        if number % SPECIAL_SHARE == SPECIAL_SHARE - 1 and op.promises.specials:
            sample = plant_special_value(op, sample, number // SPECIAL_SHARE)
        started = time.perf_counter()
        _consult(account, judge, sample, words[(first + number) % len(words)])
        account.seconds += time.perf_counter() - started
        yield account


def plant_special_value(op: Op, sample: Sample, turn: int) -> Sample:
    """The sample with a special value at one site of each operand in turn."""
    args, rng = list(sample.args), np.random.default_rng([sample.seed, turn])
    wrt = [i for i in op.differentiable_positions(sample.args) if args[i].numel()]
    if not wrt:
        return sample
    position = wrt[turn % len(wrt)]
    tensor = args[position].clone()
    values = special_values(tensor)
    tensor.view(-1)[int(rng.integers(tensor.numel()))] = values[turn % len(values)]
    args[position] = tensor
    return sample.with_args(args)


def _consult(account: Account, judge: Judge, sample: Sample, word: Word) -> None:
    try:
        primal = judge.primal(sample)
        if word and not judge.op.differentiable_positions(sample.args):
            word = ()
        path = Path.draw(judge.op, sample, word, primal)
        first, _ = evaluate(path.formula(), *path.arrays())
        problem = path.problem
        plain = problem.formula((), len(primal))
        transformed = along(word, plain, len(problem.wrt), len(primal), len(problem.fixed))
        second = enclosures(transformed, *path.arrays())
    except (Violation, Unsupported, PrecisionError, Undecided) as err:
        account.unread[type(err).__name__] += 1
        return
    account.samples += 1
    order = derivative_order(word)
    for name, mine, other in zip(path.names(), first, second, strict=True):
        for index in np.ndindex(*mine.shape):
            raw, interval = mine.values[index], other.intervals[index]
            finding = compare_element(raw, interval, other.scale, order)
            account.elements += 1
            account.kinds[finding.kind] += 1
            if finding.apart is not None:
                account.apart = finding.apart if account.apart is None else max(account.apart, finding.apart)
            if finding.kind == "disagree" and len(account.examples) < MOST_EXAMPLES:
                account.examples.append(
                    f"{account.op} {account.dtype} {word_name(word)} {name}{list(index)}, seed {sample.seed}: "
                    f"exact {libmp.to_str(raw, 25)}, second {interval.str(25)}"
                )
