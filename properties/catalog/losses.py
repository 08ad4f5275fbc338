"""Declarations of the negative log likelihood and its aten forms; cross entropy is in `cross_entropy`."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._refs.nn.functional as refs
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Op, Promises, Refusal
from ...reference import losses as formulas
from ...reference.formats import FORMATS
from .. import strategies
from .losses_laws import LAWS, NATIVE_LAWS, changed, refusals, total_weight

Args = tuple[Any, ...]
HALF = ("bfloat16", "float16")
NUMBERS = {"none": formulas.NONE, "mean": formulas.MEAN, "sum": formulas.SUM}
#: Kinds of class weights; None twice: the usual call.
WEIGHTS = (None, None, "positive", "positive", "some zero", "any sign", "all zero")
aten = torch.ops.aten


@st.composite
def structures(draw: st.DrawFn, dtype: str, kind: str, ranks: tuple[int, ...]) -> dict[str, Any]:
    """What samples have in common: the input's shape (C,) or (N, C, ...), targets, weight, reduction."""
    rank = draw(st.sampled_from(ranks))
    limit = {"empty": 64, "large": strategies.LARGEST}.get(kind, 72)
    classes, *others = draw(strategies.extents(kind, rank, limit))
    shape = (others[0], classes, *others[1:]) if others else (classes,)
    weight = draw(st.sampled_from(WEIGHTS if kind != "integers" else (None, "integers")))
    # A mean over no target, or over weights of zero, is judged at ordinary sizes: a large sample is to say something.
    telling = kind == "large"
    weight = "positive" if telling and weight == "all zero" else weight
    some = telling and classes == 1
    ignores = ("outside", "below", "far") if some else ("outside", "outside", "inside", "below", "far", "above")
    return {
        "shape": shape,
        "classes": classes,
        "extents": {"classes": classes, "batch": math.prod(others[:1])}
        | ({"positions": math.prod(others[1:])} if max(ranks) > 2 else {}),
        "weight": weight,
        "weight dtype": draw(st.sampled_from((dtype, "float32") if dtype in HALF else (dtype,))),
        "regime": "integers" if kind == "integers" else draw(strategies.regimes(kind)),
        "last class": telling,  # is a target: else the gradient is zero for nearly all of many classes
        "target": draw(st.sampled_from(("int64", "int64", "uint8"))) if 0 < classes < 256 else "int64",
        "ignore": draw(st.sampled_from(ignores)),
        "ignored": draw(st.sampled_from((0.0, 0.3, 0.0, 0.9, *(() if telling else (1.0,))))),
        "reduction": draw(st.sampled_from(("mean", "mean", "sum", "none"))),
    }


def ignore_index(structure: dict[str, Any]) -> int:
    """One of the integers: a class, or not; within the target's dtype if targets are to hold it."""
    classes: int = structure["classes"]
    if structure["target"] == "uint8":
        return {"inside": max(classes - 1, 0), "above": 255}.get(structure["ignore"], -100)
    choices = {"outside": -100, "inside": classes // 2, "below": -1, "far": -(2**40), "above": classes + 7}
    chosen: int = choices[structure["ignore"]]
    return chosen


def target(rng: Any, structure: dict[str, Any]) -> torch.Tensor:
    """Class indices, some of them ignored; all of them where there is no class."""
    shape, classes, ignored = structure["shape"], structure["classes"], structure["ignored"]
    of = shape[:1] + shape[2:] if len(shape) > 1 else ()
    index = rng.integers(0, max(classes, 1), of)
    held = structure["target"] == "int64" or ignore_index(structure) >= 0
    if held:
        index = np.where(rng.random(of) < (ignored if classes else 1.0), ignore_index(structure), index)
    if structure["last class"] and index.size:
        index.flat[-1] = classes - 1
    return torch.from_numpy(np.asarray(index)).to(getattr(torch, structure["target"]))


def scores(rng: Any, structure: dict[str, Any], dtype: str) -> torch.Tensor:
    """The input; classes are the row that a regime fills."""
    shape, classes = structure["shape"], structure["classes"]
    rows = (math.prod(shape) // max(classes, 1), classes)
    fill = strategies.integers if structure["regime"] == "integers" else strategies.REGIMES[structure["regime"]]
    values = fill(rng, rows, FORMATS[dtype])
    if len(shape) > 1:
        values = np.moveaxis(np.reshape(values, (shape[0], *shape[2:], classes)), -1, 1)
    return strategies.to_dtype(np.reshape(values, shape), dtype)


def class_weights(rng: Any, structure: dict[str, Any]) -> torch.Tensor | None:
    """One weight per class, or None."""
    kind, classes = structure["weight"], structure["classes"]
    if kind is None:
        return None
    draws: dict[str, Callable[[], Any]] = {
        "positive": lambda: rng.uniform(0.1, 2.0, classes),
        "some zero": lambda: rng.uniform(0.1, 2.0, classes) * rng.integers(0, 2, classes),
        "any sign": lambda: rng.standard_normal(classes),
        "all zero": lambda: np.zeros(classes),
        "integers": lambda: rng.integers(-2, 4, classes).astype(np.float64),
    }
    return strategies.to_dtype(draws[kind](), structure["weight dtype"])


@st.composite
def _plain(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    structure = draw(structures(dtype, kind, (2, 2, 1, 3, 4, 5)))

    def fill(rng: Any) -> Args:
        x, t, w = scores(rng, structure, dtype), target(rng, structure), class_weights(rng, structure)
        return x, t, w, ignore_index(structure), structure["reduction"]

    return Draft(fill, structure["regime"], structure["extents"])


def _native(ranks: tuple[int, ...]) -> Callable[..., st.SearchStrategy[Draft]]:
    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        structure = draw(structures(dtype, kind, ranks))

        def fill(rng: Any) -> Args:
            x, t, w = scores(rng, structure, dtype), target(rng, structure), class_weights(rng, structure)
            return x, t, w, NUMBERS[structure["reduction"]], ignore_index(structure)

        return Draft(fill, structure["regime"], structure["extents"])

    return samples


# The total weight is an argument of a backward op, and may be any. Where it is 0, rows and columns of the jacobian
# differ (0 / 0 against 0): that edge is judged in the losses themselves.
def _backward(ranks: tuple[int, ...]) -> Callable[..., st.SearchStrategy[Draft]]:
    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        structure = draw(structures(dtype, kind, ranks))
        kept = draw(st.sampled_from((dtype, "float32") if dtype in HALF else (dtype,)))

        def fill(rng: Any) -> Args:
            x, t, w = scores(rng, structure, dtype), target(rng, structure), class_weights(rng, structure)
            reduction, ignore = NUMBERS[structure["reduction"]], ignore_index(structure)
            total = np.asarray(total_weight(t, w, ignore) or rng.uniform(0.5, 2.0))
            shape = tuple(t.shape) if reduction == formulas.NONE else ()
            grad = rng.standard_normal(shape)
            if kind == "integers":
                grad = strategies.integers(rng, shape, FORMATS[dtype])
            g = strategies.to_dtype(np.asarray(grad), dtype).reshape(shape)
            return g, x, t, w, reduction, ignore, strategies.to_dtype(total, kept).reshape(())

        return Draft(fill, structure["regime"], structure["extents"])

    return samples


# ---------------------------------------------------------------------------------------------- promises


def size(t: torch.Tensor | None) -> int:
    """Bytes of a tensor."""
    return 0 if t is None else t.numel() * t.element_size()


def weight_size(w: torch.Tensor | None) -> int:
    """Bytes of a weight as it is kept: in float32 for the half types."""
    return 0 if w is None else w.numel() * kept_dtype(w).itemsize


def kept_dtype(x: torch.Tensor) -> torch.dtype:
    """The dtype of a total weight."""
    return x.dtype if x.dtype in (torch.float32, torch.float64) else torch.float32


def _saved(args: Args, wanted: frozenset[int]) -> int:
    """Target, weight and total weight; the input only where the weight needs a gradient."""
    x, t, w = args[:3]
    return size(t) + weight_size(w) + kept_dtype(x).itemsize + (size(x) if 2 in wanted else 0)


def _saved_backward(args: Args, wanted: frozenset[int]) -> int:
    """Target and weight, the cotangent for the weight's gradient, and what division by the total weight keeps."""
    g, x, t, w = args[:4]
    wide = kept_dtype(x).itemsize
    kept: int = size(t) + weight_size(w) + (g.numel() * wide) + 2 * wide
    return kept


# ---------------------------------------------------------------------------------------------- subjects


def _torch_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    return torch.nn.functional.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


def _refs_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    return refs.nll_loss(input, target, weight, None, ignore_index, None, reduction)


def _forward_op(name: str, ranks: tuple[int, ...], theirs: Any, decomposition: Any) -> Op:
    return Op(
        name=name,
        reference=getattr(formulas, name),
        subjects={"opassay": getattr(impl, name), "torch": theirs, "decomposition": decomposition},
        samples=_native(ranks),
        differentiable=("self", "weight"),
        promises=Promises(dtypes=lambda args: (args[0].dtype, kept_dtype(args[0])), saved=_saved),
        laws=NATIVE_LAWS,
        refusals=refusals(0, 4, RuntimeError),
    )


def _backward_op(name: str, ranks: tuple[int, ...], theirs: Any, decomposition: Any) -> Op:
    return Op(
        name=name,
        reference=getattr(formulas, name),
        subjects={"opassay": getattr(impl, name), "torch": theirs, "decomposition": decomposition},
        samples=_backward(ranks),
        differentiable=("grad_output", "self", "weight", "total_weight"),
        promises=Promises(dtypes=lambda args: (args[1].dtype,), saved=_saved_backward, order=1),
        refusals=refusals(1, 5, RuntimeError),
    )


_ROWS, _GRID = (2, 2, 1), (4,)
_decompositions = torch._decomp.decomposition_table

OPS: tuple[Op, ...] = (
    Op(
        name="nll_loss",
        reference=formulas.nll_loss,
        subjects={"opassay": impl.nll_loss, "torch": _torch_nll_loss, "decomposition": _refs_nll_loss},
        samples=_plain,
        differentiable=("input", "weight"),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=_saved),
        laws=LAWS,
        refusals=(
            *refusals(0, 3, ValueError),
            Refusal("unknown reduction", changed(4, lambda r, a: "average"), ValueError, ("reduction", "average")),
        ),
    ),
    *(
        build(f"{stem}_{direction}", ranks, getattr(aten, f"{stem}_{direction}").default,
              _decompositions[getattr(aten, f"{stem}_{direction}").default])
        for stem, ranks in (("nll_loss", _ROWS), ("nll_loss2d", _GRID))
        for direction, build in (("forward", _forward_op), ("backward", _backward_op))
    ),
)  # fmt: skip
