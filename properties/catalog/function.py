"""Declaration of generated custom functions: the machinery under every transform, on functions whose truth is known."""

from __future__ import annotations

import functools
from typing import Any

import torch

from ...impl.function import Function
from ...oracles.op import Law, Op, Promises
from ..functions import build, strategy
from ..functions.spec import function, spec_of, terms_of

Args = tuple[Any, ...]


def _dtypes(args: Args) -> tuple[torch.dtype, ...]:
    return (args[1].dtype,) * len(terms_of(args[0]))


def _aliases(args: Args) -> tuple[int | None, ...]:
    spec = spec_of(args[0])
    ways = zip(spec.terms, spec.ways, strict=True)
    return tuple(1 + term.factors[0][0] if way == "identity" else None for term, way in ways)


def _otherwise(args: Args, rng: Any) -> Args:
    return (spec_of(args[0]).written_otherwise().text(), *args[1:])


def _written_otherwise(word: tuple[str, ...]) -> Law:
    name = "∘".join((*reversed(word), "the same formula, written otherwise"))
    return Law(name, lambda args, rng: (args, _otherwise(args, rng)), lambda args, a, b: (a, b), exact=True, word=word)


OPS: tuple[Op, ...] = (
    Op(
        name="function",
        reference=function,
        subjects={
            "opassay": functools.partial(build.call, Function),
            "torch": functools.partial(build.call, torch.autograd.Function),
        },
        samples=strategy.samples,
        differentiable=("tensors",),
        promises=Promises(dtypes=_dtypes, aliases=_aliases, nesting=3, one_graph=False),
        laws=tuple(_written_otherwise(word) for word in ((), ("vjp",), ("jvp",))),
    ),
)
