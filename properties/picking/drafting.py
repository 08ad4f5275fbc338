"""Drafts of an op, drawn ahead of any data: the structures from which the samples of its cells are picked.

Hypothesis draws a draft as a sequence of choices. Here its strategies are asked for one draft after the other, each by
a seed of its own, so that drafts are independent of each other and of which cell asks first; the choices are kept with
the draft, so that Hypothesis can make a failing one simpler.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

import hypothesis
from hypothesis import strategies as st
from hypothesis.control import BuildContext
from hypothesis.errors import StopTest
from hypothesis.internal.conjecture.data import ConjectureData

from ...oracles.op.declaration import Draft, Op
from .. import worlds
from ..declaring.kinds import drafts_of

#: How many drafts in a row may be given up by their strategy before there are no more.
ATTEMPTS = 50
#: The part of the choices of Hypothesis that is the draft's own comes first; the seed of the data is the last.
Choices = tuple[Any, ...]


@dataclass(frozen=True)
class DrawnDraft:
    """A draft, and the choices of Hypothesis that it was made of."""

    draft: Draft
    choices: Choices


class Drafts:
    """Drafts of one strategy in an order that a seed fixes. Each is drawn once, when it is first asked for."""

    def __init__(self, strategy: st.SearchStrategy[Draft], seed: int) -> None:
        self.strategy = strategy
        self._seeds = Random(seed)
        self._drafts: list[DrawnDraft] = []
        self._ended = False

    def first(self, count: int) -> Sequence[DrawnDraft]:
        """The first drafts, so many, or all if there are fewer."""
        while len(self._drafts) < count and not self._ended:
            one = self._next()
            self._ended = one is None
            if one is not None:
                self._drafts.append(one)
        return self._drafts[:count]

    def after(self, start: int) -> Iterator[DrawnDraft]:
        """The drafts from number `start` on."""
        while len(self.first(start + 1)) > start:
            yield self._drafts[start]
            start += 1

    def _next(self) -> DrawnDraft | None:
        for _ in range(ATTEMPTS):
            data = ConjectureData(random=Random(self._seeds.getrandbits(64)))
            try:
                with BuildContext(data, wrapped_test=drafts_of):
                    draft = data.draw(self.strategy)
                return DrawnDraft(draft, tuple(data.choices))
            except (hypothesis.errors.UnsatisfiedAssumption, StopTest):
                continue
        return None


def drafts(op: Op, dtype: str, kind: str, seed: int, others: int = 0) -> Drafts:
    """The drafts of an op, the same ones for all of its cells: properties differ in which of them they pick.

    Args:
        seed: of the run. others: how many drafts of other structures each has with it.

    Raises:
        Unsupported, DeclarationError: as `drafts_of`.
    """
    strategy = drafts_of(op, dtype, kind, others)
    # How many places there are is a fact of the process, and part of a draft. The sampler itself is kept beside its
    # drafts, so that no other one can get its number.
    key = (id(op.samples), dtype, kind, seed, others, worlds.here())
    if key not in _CACHE:
        while len(_CACHE) >= CACHE_SIZE:
            del _CACHE[next(iter(_CACHE))]
        digest = hashlib.sha256(f"{op.name}:{dtype}:{kind}:{seed}".encode()).digest()
        _CACHE[key] = op.samples, Drafts(strategy, int.from_bytes(digest[:8], "big"))
    return _CACHE[key][1]


#: Of how many samplers, dtypes and kinds drafts are kept: those of a few ops.
CACHE_SIZE = 64
_CACHE: dict[tuple[Any, ...], tuple[Any, Drafts]] = {}
