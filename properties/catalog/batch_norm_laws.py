"""Laws of the forward ops of batch norm, by whatever signature."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.op import Law

Args = tuple[Any, ...]
Named = dict[str, Any]
#: cudnn's and miopen's names for arguments.
ALIASES = {"exponential_average_factor": "momentum", "epsilon": "eps", "grad_output": "grad_out"}


class Signature:
    """The arguments of one of the ops by name, under one set of names."""

    def __init__(self, formula: Callable[..., Any]) -> None:
        self.names = [ALIASES.get(name, name) for name in inspect.signature(formula).parameters]

    def named(self, args: Args) -> Named:
        return dict(zip(self.names, args, strict=True))

    def args(self, named: Named) -> Args:
        return tuple(named[name] for name in self.names)

    def at(self, *names: str) -> tuple[int, ...]:
        """Positions of arguments."""
        return tuple(self.names.index(name) for name in names)


def statistics_dtype(x: torch.Tensor) -> torch.dtype:
    return torch.float32 if x.dtype.itemsize == 2 else x.dtype


def _moderate(x: torch.Tensor) -> bool:
    """Whether squares are far from underflow and overflow."""
    size, info = x.double().abs(), torch.finfo(statistics_dtype(x))
    inside = size[size > 0]
    return not inside.numel() or bool((inside.min() > info.tiny**0.25) & (inside.max() < info.max**0.25))


def _times(t: torch.Tensor | None, factor: float) -> torch.Tensor | None:
    return None if t is None else t * factor


def _exactly_scaled(before: Sequence[Any], after: Sequence[Any], factor: float) -> bool:
    pairs = [(b, a) for b, a in zip(before, after, strict=True) if b is not None]
    return all(torch.equal(b.double() * factor, a.double()) for b, a in pairs)


class _Relations:
    """The relations of a forward op whose first `own` outputs are out, or out, save_mean and save_invstd."""

    def __init__(self, signature: Signature, own: int) -> None:
        self.signature, self.own = signature, own

    def split(self, outputs: Args) -> tuple[Args, Args]:
        return outputs[: self.own], outputs[self.own :]

    def with_input(self, named: Named, x: torch.Tensor, **others: Any) -> Args:
        return self.signature.args(named | {"input": x} | others)

    def mirrored(self, args: Args, rng: Any) -> Args:
        named = self.signature.named(args)
        changed = {"bias": _times(named["bias"], -1.0)}
        if "running_mean" in named:
            changed["running_mean"] = _times(named["running_mean"], -1.0)
        return self.with_input(named, -named["input"], **changed)

    def mirror(self, outputs: Args) -> Args:
        (out, *saved), running = self.split(outputs)
        return -out, *(-t if i == 0 else t for pair in (saved, running) for i, t in enumerate(pair))

    def scaled(self, args: Args, rng: Any) -> Args | None:
        """x -> 4x, eps -> 16 eps and the running statistics with them: every rounding scales."""
        named = self.signature.named(args)
        x, mean, var = named["input"], named.get("running_mean"), named.get("running_var")
        new = (x * 4.0, _times(mean, 4.0), _times(var, 16.0))
        if not _moderate(x) or named["eps"] * 16 < 1e-30 or not _exactly_scaled((x, mean), new[:2], 4.0):
            return None
        if mean is not None and mean.dtype is torch.float16:  # whose new values may be subnormal
            return None
        if not _exactly_scaled((var,), new[2:], 16.0) or not all(_moderate(t) for t in (mean, var) if t is not None):
            return None
        others = {"eps": named["eps"] * 16}
        if mean is not None:
            others |= {"running_mean": new[1], "running_var": new[2]}
        return self.with_input(named, new[0], **others)

    def scale(self, outputs: Args) -> Args:
        (out, *saved), running = self.split(outputs)
        factors = (*zip(saved, (4.0, 0.25), strict=False), *zip(running, (4.0, 16.0), strict=False))
        return out, *(t * factor for t, factor in factors)

    def rolled(self, args: Args, rng: Any) -> Args | None:
        named = self.signature.named(args)
        return self.with_input(named, named["input"].roll(1, 0)) if named["input"].numel() else None

    def channels_rolled(self, args: Args, rng: Any) -> Args | None:
        named = self.signature.named(args)
        names = ("weight", "bias", "running_mean", "running_var")
        others = {n: named[n].roll(1, 0) for n in names if named.get(n) is not None}
        return self.with_input(named, named["input"].roll(1, 1), **others) if named["input"].numel() else None

    def shifted(self, args: Args, rng: Any) -> Sequence[Args] | None:
        """x and x + c with one c per channel, both exact: x is first put on a grid that leaves room for c."""
        named = self.signature.named(args)
        x = named["input"].double()
        if not named["training"] or x.numel() == 0 or not x.abs().max() < 2.0**40:
            return None
        dims = (0, *range(2, x.dim()))
        precision = {torch.float64: 53, torch.float32: 24, torch.float16: 11}.get(named["input"].dtype, 8)
        top = x.abs().amax(dims, keepdim=True).clamp(min=2.0**-10).log2().ceil()
        coarse = (x / torch.exp2(top - (precision - 3))).round() * torch.exp2(top - (precision - 3))
        c = torch.from_numpy(rng.integers(-3, 4, top.shape).astype(np.float64)) * torch.exp2(top)
        both = [t.to(named["input"].dtype) for t in (coarse, coarse + c)]
        if not all(torch.equal(t.double(), e) for t, e in zip(both, (coarse, coarse + c), strict=True)):
            return None
        return tuple(self.with_input(named, t) for t in both)

    def unshifted(self, args: Args, *calls: Args) -> tuple[Args, Args]:
        """All but the means."""
        kept = [(c[0], *self.split(c)[0][2:], *self.split(c)[1][1:]) for c in calls]
        return kept[0], kept[1]

    def affine(self, args: Args, rng: Any) -> Sequence[Args] | None:
        named = self.signature.named(args)
        x = named["input"]
        if named["training"] or not torch.equal((x * 2.0).double(), x.double() * 2.0):
            return None
        return tuple(self.with_input(named, t) for t in (torch.zeros_like(x), x, x * 2.0))

    def line(self, args: Args, at_0: Args, at_x: Args, at_2x: Args) -> tuple[Args, Args]:
        return (at_2x[0] - at_x[0],), (at_x[0] - at_0[0],)

    def taking_all(self, args: Args, rng: Any) -> Sequence[Args] | None:
        named = self.signature.named(args)
        x = named["input"]
        if not named["training"] or named.get("running_var") is None or x.numel() <= x.shape[1]:
            return None
        return (self.signature.args(named | {"momentum": 1.0}),)

    def unbiased(self, args: Args, call: Args) -> tuple[Args, Args]:
        x = self.signature.named(args)["input"].double().numpy().astype(np.longdouble)
        dims = (0, *range(2, x.ndim))
        exact = (np.asarray(t, dtype=np.float64) for t in (x.mean(dims), x.var(dims, ddof=1)))
        return call[-2:], tuple(map(torch.from_numpy, exact))


def laws(signature: Signature, own: int) -> tuple[Law, ...]:
    """The laws of a forward op whose first `own` outputs are out, or out, save_mean and save_invstd."""
    law = _Relations(signature, own)
    running = (
        Law("with momentum 1 running_var is the unbiased variance", law.taking_all, law.unbiased, exact=False),
        Law("constant statistics: affine in the input", law.affine, law.line, exact=False),
    )
    return (
        Law.pair("mirror x, bias and running_mean", law.mirrored, law.mirror, exact=True),
        Law.pair("scale by 4 with eps by 16", law.scaled, law.scale, exact=True),
        Law.pair("permutation of the batch", law.rolled, lambda out: (out[0].roll(1, 0), *out[1:]), exact=False),
        Law.pair(
            "permutation of the channels",
            law.channels_rolled,
            lambda out: (out[0].roll(1, 1), *(t.roll(1, 0) for t in out[1:])),
            exact=False,
        ),
        Law("a constant added to every channel", law.shifted, law.unshifted, exact=False),
        *(running if "running_mean" in signature.names else ()),
    )
