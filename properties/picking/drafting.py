"""Drafts of an op, drawn before any data: the structures from which the samples of its cells are picked.

Hypothesis draws a draft as a sequence of choices. Here each draft is drawn with a seed of its own, so that drafts do
not depend on each other, nor on which cell asks first. The choices are stored with the draft, so that Hypothesis can
shrink a failing one.
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

#: After this many draws in a row in which the strategy gave up, there are no more drafts.
ATTEMPTS = 50
#: Choices of Hypothesis: first those of the draft, and last the seed of its data.
Choices = tuple[Any, ...]


@dataclass(frozen=True)
class DrawnDraft:
    """A draft, and the choices of Hypothesis that it was made of."""

    draft: Draft
    choices: Choices


class Drafts:
    """Drafts of one strategy in an order that a seed fixes. Each is drawn once, when it is first needed."""

    def __init__(self, strategy: st.SearchStrategy[Draft], seed: int) -> None:
        self.strategy = strategy
        self._seeds = Random(seed)
        self._drafts: list[DrawnDraft] = []
        self._ended = False

    def first(self, count: int) -> Sequence[DrawnDraft]:
        """The first `count` drafts, or all if there are fewer."""
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
    """The drafts of an op, the same for all of its cells: properties differ in which of them they pick.

    Args:
        seed: of the run. others: how many drafts of other structures come with each draft.

    Raises:
        Unsupported, DeclarationError: as `drafts_of`.
    """
    strategy = drafts_of(op, dtype, kind, others)
    # The world of the process decides how many places a draft has, so it is part of the key. The sampler is stored
    # beside its drafts, so that no other one can get its `id`.
    key = (id(op.samples), dtype, kind, seed, others, worlds.here())
    if key not in _CACHE:
        while len(_CACHE) >= CACHE_SIZE:
            del _CACHE[next(iter(_CACHE))]
        digest = hashlib.sha256(f"{op.name}:{dtype}:{kind}:{seed}".encode()).digest()
        _CACHE[key] = op.samples, Drafts(strategy, int.from_bytes(digest[:8], "big"))
    return _CACHE[key][1]


#: How many samplers, dtypes and kinds the cache has drafts of: those of a few ops.
CACHE_SIZE = 64
_CACHE: dict[tuple[Any, ...], tuple[Any, Drafts]] = {}
