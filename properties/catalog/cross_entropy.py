"""Declaration of cross_entropy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...reference import losses as formulas
from .losses import class_weights, ignore_index, kept_dtype, scores, size, structures, target, weight_size
from .losses_laws import FUNCTIONAL, Args, changed, refusals


@st.composite
def _samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(structures(dtype, kind, (2, 2, 1, 3, 4, 5)))
    smoothing = draw(st.sampled_from((0.0, 0.0, 0.1, 0.5, 1.0)))

    def fill(rng: Any) -> Args:
        x, t, w = scores(rng, structure, dtype), target(rng, structure), class_weights(rng, structure)
        return x, t, w, ignore_index(structure), structure["reduction"], smoothing

    return Draft(fill, structure["regime"], structure["extents"])


def _saved(args: Args, wanted: frozenset[int]) -> int:
    """Input, target, weight and total weight: probabilities are computed again."""
    x, t, w = args[:3]
    return size(x) + size(t) + weight_size(w) + kept_dtype(x).itemsize


def _shifted(args: Args, rng: Any) -> Args | None:
    """x -> x + k, where that is exact."""
    x, *rest = args
    k = float(rng.integers(-4, 5)) / 4
    return (x + k, *rest) if torch.equal((x + k).double(), x.double() + k) else None


def _smoothed(args: Args, rng: Any) -> Sequence[Args]:
    *rest, s = args
    return (*rest, s), (*rest, 0.0), (*rest, 1.0)


def _mixed(args: Args, some: Any, none: Any, full: Any) -> tuple[Any, Any]:
    s = args[-1]
    return some, (none[0] * (1.0 - s) + full[0] * s,)


LAWS = (
    *FUNCTIONAL.laws(False),
    Law.pair("shift of all logits", _shifted, lambda out: out, exact=False),
    Law("linear in label_smoothing", _smoothed, _mixed, False),
)


def _torch(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float = 0.0
) -> Any:
    return torch.nn.functional.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


OPS: tuple[Op, ...] = (
    Op(
        name="cross_entropy",
        reference=formulas.cross_entropy,
        subjects={"opassay": impl.cross_entropy, "torch": _torch},
        samples=_samples,
        differentiable=("input", "weight"),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=_saved),
        laws=LAWS,
        refusals=(
            *refusals(0, 3, ValueError),
            Refusal("unknown reduction", changed(4, lambda r, a: "average"), ValueError, ("reduction", "average")),
            Refusal("label_smoothing above 1", changed(5, lambda s, a: 1.5), RuntimeError, ("label_smoothing",)),
        ),
    ),
)
