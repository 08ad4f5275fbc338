"""Declarations of the backward ops of batch norm: one op by four signatures."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from hypothesis import strategies as st
from torch._decomp import decompositions

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...reference import batch_norm as formulas
from ...reference.formats import FORMATS
from .. import strategies
from .batch_norm import filled, of_another_shape, of_the_input, refusal, structures
from .batch_norm_laws import Args, Named, Signature, statistics_dtype

MASKS = ((True, True, True),) * 3 + ((True, False, True), (False, True, True), (True, False, False))


def _saved(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and invstd of the channels as a forward pass leaves them: correct to the statistics' dtype."""
    dims = (0, *range(2, x.dim()))
    wide = x.double()
    mean = wide.mean(dims)
    var = wide.sub(wide.mean(dims, keepdim=True)).square().mean(dims)
    return mean.to(statistics_dtype(x)), (var + eps).rsqrt().to(statistics_dtype(x))


def _samples(signature: Signature, needs_weight: bool, always_trains: bool, all_outputs: bool) -> Callable[..., Any]:
    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        structure = draw(structures(dtype, kind))
        structure["eps"] = structure["eps"] or 1e-5  # invstd must be finite: it is an argument here
        if needs_weight:
            structure["weight"] = structure["weight"] or dtype
        if always_trains:
            structure["training"] = True
        mask = (True, True, True) if all_outputs else draw(st.sampled_from(MASKS))

        def fill(rng: Any) -> Args:
            named = filled(rng, structure, dtype)
            x, training, eps = named["input"], named["training"], named["eps"]
            fills = strategies.integers(rng, tuple(x.shape), FORMATS[dtype]) if kind == "integers" else None
            grad = strategies.to_dtype(rng.standard_normal(tuple(x.shape)) if fills is None else fills, dtype)
            mean, invstd = _saved(x, eps) if training else (None, None)
            reserve = torch.empty(0, dtype=torch.uint8)
            given: Named = {"grad_out": grad, "save_mean": mean, "save_invstd": invstd, "save_var": invstd}
            given |= {"train": training, "update": training, "output_mask": mask}
            return signature.args(named | given | {"reserve": reserve, "reserveSpace": reserve})

        return Draft(fill, structure["regime"], structure["extents"])

    return samples


def trains(named: Named) -> bool:
    return bool(named.get("train", named.get("update", True)))


def _dtypes(signature: Signature) -> Callable[[Args], tuple[torch.dtype, ...]]:
    def dtypes(args: Args) -> tuple[torch.dtype, ...]:
        named = signature.named(args)
        x, weight = named["input"], named["weight"]
        statistic = named["save_mean"] if trains(named) else named["running_mean"]
        of_parameters = (statistic if weight is None else weight).dtype
        kinds = (x.dtype, of_parameters, of_parameters)
        return tuple(k for k, wanted in zip(kinds, named.get("output_mask", (True,) * 3), strict=True) if wanted)

    return dtypes


def _laws(signature: Signature) -> tuple[Law, ...]:
    def mask(named: Named) -> Any:
        return named.get("output_mask", (True,) * 3)

    def sums(args: Args, rng: Any) -> tuple[Args, ...] | None:
        """In training d_input sums to zero per channel: a constant added to the channel changes nothing."""
        named = signature.named(args)
        return (args,) if trains(named) and mask(named)[0] and named["input"].numel() else None

    def zero(args: Args, call: Args) -> tuple[Args, Args]:
        x = signature.named(args)["input"]
        total = call[0].sum((0, *range(2, x.dim())))
        return (total,), (torch.zeros_like(total),)

    def mirrored(args: Args, rng: Any) -> Args:
        """x and its mean change sign: so does d_weight."""
        named = signature.named(args)
        flipped = {n: -named[n] for n in ("input", "save_mean", "running_mean") if named.get(n) is not None}
        return signature.args(named | flipped)

    def mirror(args: Args, first: Args, second: Args) -> tuple[Args, Args]:
        names = [n for n, wanted in zip("xwb", mask(signature.named(args)), strict=True) if wanted]
        return second, tuple(-t if n == "w" else t for n, t in zip(names, first, strict=True))

    return (
        Law("d_input sums to zero", sums, zero, exact=False),
        Law("mirror x and its mean", lambda args, rng: (args, mirrored(args, rng)), mirror, exact=True),
    )


def _refusals(signature: Signature) -> tuple[Refusal, ...]:
    def taller(named: Named) -> Named:
        grad = named["grad_out"]
        return {"grad_out": torch.ones((grad.shape[0] + 1, *grad.shape[1:]), dtype=grad.dtype)}

    saved = [name for name in ("save_mean", "save_invstd", "save_var") if name in signature.names]
    return (
        *of_another_shape(signature, "weight", *saved),
        *of_the_input(signature),
        refusal(signature, "grad_out of another shape", taller, RuntimeError, "grad_out"),
        refusal(
            signature,
            "no save_mean in training",
            lambda named: None if named["save_mean"] is None else {"save_mean": None},
            RuntimeError,
            "save_mean",
        ),
    )


def _op(formula: Callable[..., Any], subjects: dict[str, Any], needs_weight: bool = True) -> Op:
    signature = Signature(formula)
    name = formula.__name__
    always, every = not {"train", "update"} & set(signature.names), "output_mask" not in signature.names
    grad_out = "grad_out" if "grad_out" in formula.__code__.co_varnames else "grad_output"
    return Op(
        name=name,
        reference=formula,
        subjects={"opassay": getattr(impl, name), **subjects},
        samples=_samples(signature, needs_weight, always, every),
        differentiable=(grad_out, "input", "weight"),  # the saved statistics count as functions of the input
        promises=Promises(dtypes=_dtypes(signature), order=1),
        laws=_laws(signature),
        refusals=_refusals(signature),
    )


_decomposed: Any = decompositions
_aten = torch.ops.aten

#: torch has the ops of cudnn and miopen on no CPU; their decompositions run everywhere.
OPS: tuple[Op, ...] = (
    _op(
        formulas.native_batch_norm_backward,
        {
            "torch": _aten.native_batch_norm_backward.default,
            "decomposition": _decomposed.native_batch_norm_backward,
        },
        needs_weight=False,
    ),
    _op(
        formulas.batch_norm_backward,
        {"torch": _aten.batch_norm_backward.default, "decomposition": _decomposed.batch_norm_backward},
    ),
    _op(formulas.cudnn_batch_norm_backward, {"decomposition": _decomposed.cudnn_batch_norm_backward}),
    _op(formulas.miopen_batch_norm_backward, {"decomposition": _decomposed.miopen_batch_norm_backward}),
)
