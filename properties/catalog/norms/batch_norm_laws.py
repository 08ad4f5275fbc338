"""Laws of the forward ops of batch norm, by whatever signature."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from ...declaring import laws
from ...declaring.laws import Relation
from ...declaring.signature import ArgumentsByName, Signature

Tensor = torch.Tensor


def dims_of(input: Tensor) -> tuple[int, ...]:
    """The axes along which a channel extends."""
    return (0, *range(2, input.dim()))


def _has_no_half_mean(running_mean: Tensor | None = None) -> bool:
    """Running means of float16 may become subnormal when they are scaled."""
    return running_mean is None or running_mean.dtype is not torch.float16


def _channels_shifted(input: Tensor, training: bool, rng: Any) -> Sequence[ArgumentsByName] | None:
    """x and x + c with one c per channel, both exact."""
    both = laws.shifted(input, dims_of(input), rng) if training else None
    return None if both is None else [{"input": x} for x in both]


def _on_a_line(input: Tensor, training: bool) -> Sequence[ArgumentsByName] | None:
    # Twice the input has to be exact, or the three points do not lie on a line.
    if training or not torch.equal((input * 2.0).double(), input.double() * 2.0):
        return None
    return [{"input": x} for x in (torch.zeros_like(input), input, input * 2.0)]


def _line(at_0: Any, at_x: Any, at_2x: Any) -> tuple[Any, Any]:
    return (at_2x[0] - at_x[0],), (at_x[0] - at_0[0],)


def _taking_all(input: Tensor, running_var: Tensor | None, training: bool) -> Sequence[ArgumentsByName] | None:
    if not training or running_var is None or input.numel() <= input.shape[1]:
        return None
    # With momentum 1 nothing is left of the old statistics, so the new ones are those of the batch.
    return ({"momentum": 1.0},)


def _unbiased(outputs: Any, *, input: Tensor) -> tuple[Any, Any]:
    # The expected statistics are computed in a wider format than any dtype of a sample, so that hardly more than the
    # last rounding of them is an error of their own.
    x = input.double().numpy().astype(np.longdouble)
    exact = (x.mean(dims_of(input)), x.var(dims_of(input), ddof=1))
    return outputs[-2:], tuple(torch.from_numpy(np.asarray(values, dtype=np.float64)) for values in exact)


def laws_of(signature: Signature, own: int) -> tuple[Relation, ...]:
    """The laws of a forward op whose first `own` outputs are out, or out, save_mean and save_invstd."""

    def each(out: Any, means: Any, others: Any) -> tuple[Any, ...]:
        """One value for every output: `out` for out, `means` for both means, `others` for the other statistics."""
        return (out, *((means, others[0]) if own > 1 else ()), means, others[1])

    def unshifted(one: Any, other: Any) -> tuple[Any, Any]:
        """All outputs but the means."""
        places = [at for at in range(len(one)) if at not in (1, own)]
        return tuple(one[at] for at in places), tuple(other[at] for at in places)

    running = "running_mean" in signature.names
    means = ("running_mean",) if running else ()
    both = ("running_mean", "running_var") if running else ()
    powers = signature.of_these({"input": 1, "eps": 2, "running_mean": 1, "running_var": 2})
    axes = dict.fromkeys(("weight", "bias", *both), 0)
    of_running = (
        laws.law("with momentum 1 running_var is the unbiased variance", _taking_all, _unbiased),
        laws.law("constant statistics: affine in the input", _on_a_line, _line),
    )
    when = _has_no_half_mean if running else None
    return (
        laws.mirror("input", "bias", *means, outputs=each(-1, -1, (1, 1))),
        laws.scale(powers, each(0, 1, (-1, 2)), by=4.0, when=when),
        laws.permute({"input": 0}, (0, None)),
        laws.permute({"input": 1} | axes, (1, 0)),
        laws.law("a constant added to every channel", _channels_shifted, unshifted),
        *(of_running if running else ()),
    )
