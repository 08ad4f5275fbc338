"""Declaration of generated custom functions: the machinery under every transform, on functions whose truth is known."""

from __future__ import annotations

import functools

import torch

from opassay.impl.function import Function
from opassay.oracles.op.declaration import Op
from opassay.oracles.op.documented import Documented, Limit
from opassay.properties.declaring import laws
from opassay.properties.declaring.declare import declare
from opassay.properties.declaring.signature import ArgumentsByName

from . import build, strategy
from .mistakes import MISTAKES
from .spec import function, spec_of, terms_of


def _returned_arguments(spec: str) -> list[str | None]:
    formula = spec_of(spec)
    ways = zip(formula.terms, formula.ways, strict=True)
    return [f"tensors[{term.factors[0][0]}]" if way == "identity" else None for term, way in ways]


def _written_otherwise(spec: str) -> tuple[ArgumentsByName, ArgumentsByName]:
    return {}, {"spec": spec_of(spec).restyle().text()}


def _law(word: tuple[str, ...]) -> laws.Relation:
    name = "∘".join((*reversed(word), "the same formula, written otherwise"))
    return laws.law(name, _written_otherwise, lambda one, other: (one, other), exact=True, word=word)


#: What torch.autograd.Function takes. A gradient that is silently zero in another container fails all the same.
TORCH = Documented(
    source="torch's documentation",
    limits=(
        Limit(
            "outputs in another container than a tuple",
            "notes/extending: forward returns either a single Tensor output, or a tuple of tensors",
            where=lambda spec, **others: spec_of(spec).container not in ("one", "tuple"),
        ),
    ),
    refuses=(),  # no page says what error a mistake gives
    bits=False,  # notes/numerical_accuracy: computations that are mathematically identical need not have the same bits
)
FUNCTION: Op = declare(
    function,
    {
        "opassay": functools.partial(build.call, Function),
        "torch": functools.partial(build.call, torch.autograd.Function),
    },
    samples=strategy.samples,
    differentiable=("tensors",),
    dtypes=lambda spec, tensors: [tensors[0].dtype] * len(terms_of(spec)),
    aliases=_returned_arguments,
    nesting=3,
    one_graph=False,
    documented={"torch": TORCH},
    refusals=MISTAKES,
    laws=tuple(_law(word) for word in ((), ("vjp",), ("jvp",))),
).changed(error_names=("function",))
