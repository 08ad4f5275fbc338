"""Declaration of sync_batch_norm: batch_norm, and the same over ranks in lockstep."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Ranks, Refusal
from ...reference import batch_norm as formulas
from .. import worlds
from .batch_norm import OPS as FAMILY

Args = tuple[Any, ...]
(_LOCAL,) = (op for op in FAMILY if op.name == "batch_norm")


def _call(comm: Any, *args: Any) -> Any:
    op: Any = impl.sync_batch_norm
    return op(*args[:-1], comm=comm)


def _samples(dtype: str, kind: str = "ordinary") -> st.SearchStrategy[Draft]:
    """Those of batch_norm, and no comm."""

    def alone(draft: Draft) -> Draft:
        return dataclasses.replace(draft, fill=lambda rng: (*draft.fill(rng), None))

    drafts: st.SearchStrategy[Draft] = _LOCAL.samples(dtype, kind)
    return drafts.map(alone)


def _law(law: Law) -> Law:
    def calls(args: Args, rng: Any) -> Any:
        found = law.calls(args[:-1], rng)
        return None if found is None else [(*row, None) for row in found]

    return dataclasses.replace(law, calls=calls, relate=lambda args, *outputs: law.relate(args[:-1], *outputs))


def _refusal(refusal: Refusal) -> Refusal:
    def mutate(args: Args) -> Args | None:
        found = refusal.mutate(args[:-1])
        return None if found is None else (*found, None)

    return dataclasses.replace(refusal, mutate=mutate)


def _without_comm(promise: Callable[..., Any] | None) -> Any:
    """A promise about batch_norm's arguments."""
    return None if promise is None else lambda args, *rest: promise(args[:-1], *rest)


_PROMISES = dataclasses.replace(
    _LOCAL.promises,
    dtypes=_without_comm(_LOCAL.promises.dtypes),
    saved=_without_comm(_LOCAL.promises.saved),
    aliases=_without_comm(_LOCAL.promises.aliases),
)

OPS: tuple[Op, ...] = (
    dataclasses.replace(
        _LOCAL,
        name="sync_batch_norm",
        reference=formulas.sync_batch_norm,
        subjects={"opassay": impl.sync_batch_norm},
        samples=_samples,
        promises=_PROMISES,
        laws=tuple(map(_law, _LOCAL.laws)),
        refusals=tuple(map(_refusal, _LOCAL.refusals)),
        ranks=Ranks(worlds.run, _call, worlds.size),
    ),
)
