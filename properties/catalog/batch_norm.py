"""Declarations of batch_norm and of its forward counterparts by aten's names."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch._decomp import decompositions

from ... import impl
from ...oracles.op import Draft, Op, Promises, Refusal
from ...reference import batch_norm as formulas
from ...reference.formats import FORMATS
from .. import strategies
from .batch_norm_laws import Args, Named, Signature, laws, statistics_dtype

HALF = ("bfloat16", "float16")
EPS = (1e-5, 1e-5, 1e-5, 1e-3, 1e-8, 1e-12, 0.0)
MOMENTA = (0.1, 0.1, 0.1, 0.3, 0.0, 1.0)
# ---------------------------------------------------------------------------------------------- samples


@st.composite
def structures(draw: st.DrawFn, dtype: str, kind: str) -> Named:
    """What batch norm samples have in common: shapes, dtypes of parameters and running statistics, regime, numbers."""
    rank = draw(st.sampled_from((1, 1, 0, 2, 3)))
    (channels,), (n, *positions) = draw(strategies.shapes(kind, 1 + rank, 1, 64 if kind == "empty" else 72))
    affine = (dtype, "float32") if dtype in HALF else (dtype,)
    kept = draw(st.sampled_from(affine))
    training = draw(st.sampled_from((True, True, False)))
    return {
        "n": n,
        "channels": channels,
        "positions": tuple(positions),
        "weight": draw(st.sampled_from((kept, kept, None))),
        "bias": draw(st.sampled_from((kept, kept, None))),
        "running": None if training and draw(st.integers(0, 3)) == 3 else draw(st.sampled_from(affine)),
        "regime": "integers" if kind == "integers" else draw(strategies.regimes(kind)),
        "eps": draw(st.sampled_from(EPS)),
        "momentum": draw(st.sampled_from(MOMENTA)),
        "training": training,
        "extents": {"n": n, "channels": channels, "positions": math.prod(positions)},
    }


def filled(rng: Any, structure: Named, dtype: str) -> Named:
    """The arguments of a forward call by name. Every channel is one row of the regime."""
    channels, n, positions = structure["channels"], structure["n"], structure["positions"]
    fill = strategies.integers if structure["regime"] == "integers" else strategies.REGIMES[structure["regime"]]
    rows = fill(rng, (channels, n * math.prod(positions)), FORMATS[dtype])
    x = strategies.to_dtype(np.moveaxis(np.reshape(rows, (channels, n, *positions)), 0, 1), dtype)
    named: Named = {name: structure[name] for name in ("training", "momentum", "eps")}
    for name, centre in (("weight", 1.0), ("bias", 0.0)):
        kept = structure[name]
        named[name] = None if kept is None else strategies.to_dtype(rng.standard_normal(channels) + centre, kept)
    mean, var = rng.standard_normal(channels), np.square(rng.standard_normal(channels)) + 0.1
    if rng.random() < 0.5 and rows.size:  # statistics that fit the data, in part
        with np.errstate(over="ignore"):
            mean, var = mean * 0.1 + rows.mean(1), var * 0.1 + np.nan_to_num(np.clip(rows.var(1), 0, 1e30))
    kept = structure["running"]
    named["running_mean"] = None if kept is None else strategies.to_dtype(mean, kept)
    named["running_var"] = None if kept is None else strategies.to_dtype(var, kept)
    return {"input": x, **named}


def _samples(signature: Signature, least: int = 0, needs: tuple[str, ...] = (), **fixed: Any) -> Callable[..., Any]:
    """Strategy of samples for a signature.

    Args:
        least: elements per channel in training; above 1, eps is positive there. needs: parameters that are never None.
        fixed: parts of the structure.
    """

    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        structure = draw(structures(dtype, kind)) | fixed
        if structure["training"] and structure["n"] * math.prod(structure["positions"]) == 1:
            structure["n"] = max(least, 1)
        if structure["training"] and least > 1:
            structure["eps"] = structure["eps"] or 1e-5
        for name in needs:
            structure[name] = structure[name] or dtype
        return Draft(
            lambda rng: signature.args(filled(rng, structure, dtype)), structure["regime"], structure["extents"]
        )

    return samples


# ---------------------------------------------------------------------------------------------- promises


def bytes_of(t: torch.Tensor | None) -> int:
    return 0 if t is None else t.numel() * t.element_size()


def _promises(signature: Signature, saved_statistics: bool) -> Promises:
    def dtypes(args: Args) -> tuple[torch.dtype, ...]:
        named = signature.named(args)
        own = (named["input"].dtype, *(statistics_dtype(named["input"]),) * (2 if saved_statistics else 0))
        running = (named.get("running_mean"), named.get("running_var"))
        return (*own, *(t.dtype for t in running if t is not None))

    def saved(args: Args, wanted: frozenset[int]) -> int:
        """Input and statistics where input or weight need a gradient, and the weight where the input does."""
        named = signature.named(args)
        x, weight = named["input"], named["weight"]
        of_input, of_weight = (at in wanted for at in signature.at("input", "weight"))
        if not (of_input or of_weight):
            return 0
        statistics: int = 2 * x.shape[1] * statistics_dtype(x).itemsize
        if not named["training"]:
            statistics = bytes_of(named["running_mean"]) + bytes_of(named["running_var"])
        return bytes_of(x) + statistics + (bytes_of(weight) if of_input else 0)

    return Promises(dtypes, saved)


# ---------------------------------------------------------------------------------------------- refusals


def longer(t: torch.Tensor) -> torch.Tensor:
    return torch.ones(t.shape[0] + 1, dtype=t.dtype)


def refusal(
    signature: Signature,
    name: str,
    change: Callable[[Named], Named | None],
    error: type[Exception],
    *mentions: str,
) -> Refusal:
    def mutate(args: Args) -> Args | None:
        named = signature.named(args)
        changed = change(named)
        return None if changed is None else signature.args(named | changed)

    return Refusal(name, mutate, error, mentions)


def of_another_shape(signature: Signature, *names: str) -> tuple[Refusal, ...]:
    def change(label: str) -> Callable[[Named], Named | None]:
        return lambda named: None if named[label] is None else {label: longer(named[label])}

    return tuple(
        refusal(signature, f"{name} of another shape", change(name), RuntimeError, name)
        for name in names
        if name in signature.names
    )


def of_the_input(signature: Signature) -> tuple[Refusal, ...]:
    return (
        refusal(signature, "integer input", lambda n: {"input": n["input"].long()}, RuntimeError, "input"),
        refusal(signature, "input is not a tensor", lambda n: {"input": n["input"].tolist()}, TypeError, "input"),
    )


def _refusals(signature: Signature) -> tuple[Refusal, ...]:
    def one_missing(training: bool) -> Callable[[Named], Named | None]:
        def change(named: Named) -> Named | None:
            applies = named["training"] is training and named["running_mean"] is not None
            return {"running_mean": None} if applies else None

        return change

    def flat(named: Named) -> Named | None:
        return {"input": named["input"].reshape(-1)[: named["input"].shape[1]]} if named["training"] else None

    running: tuple[Refusal, ...] = ()
    if "running_mean" in signature.names:
        running = (
            refusal(signature, "running_var alone", one_missing(True), ValueError, "running_mean"),
            refusal(signature, "no running_mean without training", one_missing(False), RuntimeError, "running_mean"),
        )
    shapes = of_another_shape(signature, "weight", "bias", "running_mean", "running_var")
    one_dim = refusal(signature, "input of one dim", flat, IndexError, "input")
    return (*shapes, *of_the_input(signature), one_dim, *running)


def _op(
    formula: Callable[..., Any],
    subjects: dict[str, Callable[..., Any]],
    own: int,
    samples: dict[str, Any],
    refusals: Callable[[Signature], tuple[Refusal, ...]] = _refusals,
) -> Op:
    signature = Signature(formula)
    name = formula.__name__
    return Op(
        name=name,
        reference=formula,
        subjects={"opassay": getattr(impl, name), **subjects},
        samples=_samples(signature, **samples),
        differentiable=("input", "weight", "bias"),
        promises=_promises(signature, own > 1),
        laws=laws(signature, own),
        refusals=refusals(signature),
        mutates=tuple(n for n in ("running_mean", "running_var") if n in signature.names),
    )


def _strict(signature: Signature) -> tuple[Refusal, ...]:
    def change(named: Named) -> Named | None:
        x = named["input"]
        return {"input": x[(slice(1), slice(None), *(slice(1),) * (x.dim() - 2))]} if named["training"] else None

    def no_eps(named: Named) -> Named | None:
        return {"eps": 0.0} if named["training"] else None

    return (
        *_refusals(signature),
        refusal(signature, "one element per channel", change, ValueError, "input", "shape"),
        refusal(signature, "eps of zero in training", no_eps, ValueError, "eps"),
    )


def _without_none(signature: Signature) -> tuple[Refusal, ...]:
    return tuple(r for r in _refusals(signature) if r.error is not ValueError)


_aten = torch.ops.aten
_decomposed: Any = decompositions

#: torch has cudnn_batch_norm and miopen_batch_norm on no CPU: they have no subject but the production op here.
OPS: tuple[Op, ...] = (
    _op(formulas.batch_norm, {"torch": torch.nn.functional.batch_norm}, 1, {"least": 2}, _strict),
    _op(
        formulas.native_batch_norm,
        {"torch": _aten.native_batch_norm.default, "decomposition": _decomposed.native_batch_norm},
        3,
        {},
    ),
    _op(
        formulas.native_batch_norm_legit,
        {"torch": _aten._native_batch_norm_legit.default, "decomposition": _decomposed._native_batch_norm_legit},
        3,
        {"needs": ("running",)},
        _without_none,
    ),
    _op(
        formulas.native_batch_norm_legit_no_stats,
        {
            "torch": _aten._native_batch_norm_legit.no_stats,
            "decomposition": _decomposed._native_batch_norm_legit_no_stats,
        },
        3,
        {"training": True, "running": None},
    ),
    _op(formulas.cudnn_batch_norm, {}, 3, {"needs": ("weight",)}),
    _op(formulas.miopen_batch_norm, {}, 3, {"needs": ("weight",)}),
)
