"""Declaration of cross_map_lrn2d."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op import Draft, Law, Op, Promises, Refusal
from ...reference import response_norm as formulas
from ...reference.formats import FORMATS
from .. import strategies

Args = tuple[Any, ...]
SIZES = (5, 3, 1, 2, 4, 7, 9, 16, 33)
ALPHAS = (1e-4, 1e-4, 1.0, 0.3, 5.0, 0.0, -1e-3)
BETAS = (0.75, 0.75, 0.75, 0.5, 1.0, 0.3, 2.0, 0.0, -1.0)
KS = (1, 1.0, 2.0, 0.01, 0.0)


@st.composite
def _numbers(draw: st.DrawFn, kind: str) -> tuple[int, float, float, float]:
    """(size, alpha, beta, k); for "integers" a polynomial: beta = -1 and coefficients that are powers of two."""
    size = draw(st.sampled_from(SIZES))
    if kind == "integers":
        return size, draw(st.sampled_from((0.0, 0.25 * size, 1.0 * size))), -1.0, draw(st.sampled_from((0.0, 1.0, 2)))
    return size, draw(st.sampled_from(ALPHAS)), draw(st.sampled_from(BETAS)), draw(st.sampled_from(KS))


@st.composite
def _samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Rows of the regime are the channels at one position of one image."""
    (images, height, width), (channels,) = draw(strategies.shapes(kind, 1, 3, 48))
    numbers = draw(_numbers(kind))
    regime = "integers" if kind == "integers" else draw(strategies.regimes(kind))
    values = strategies.integers if kind == "integers" else strategies.REGIMES[regime]

    def fill(rng: Any) -> Args:
        rows = values(rng, (images * height * width, channels), FORMATS[dtype])
        x = np.moveaxis(np.reshape(rows, (images, height, width, channels)), 3, 1)
        return strategies.to_dtype(x, dtype), *numbers

    return Draft(fill, regime, {"images": images, "channels": channels, "positions": height * width})


# ---------------------------------------------------------------------------------------------- laws


def _scaled(args: Args, rng: Any) -> Args | None:
    """x -> 4 x with alpha -> alpha / 16: four times the output, as every rounding scales."""
    x, size, alpha, beta, k = args
    low, high = (2.0**-3, 2.0**3) if x.dtype.itemsize == 2 else (2.0**-20, 2.0**20)
    magnitudes = x.double().abs()
    inside = magnitudes[magnitudes > 0]
    if inside.numel() and (inside.min() < low or inside.max() > high or (x.dtype.itemsize == 2 and beta > 1)):
        return None
    return 4.0 * x, size, alpha / 16.0, beta, k


def _rolled(args: Args, rng: Any) -> Args | None:
    """Where no power is taken: its last bits may depend on where an element lies."""
    x, *rest = args
    return (x.roll(1, 0), *rest) if x.numel() and rest[2] in (0.75, 0.5, 1.0, 0.0) else None


def _framed(args: Args, rng: Any) -> tuple[Args, Args]:
    """Two channels of zeros on both sides: nothing that the window sees."""
    x, *rest = args
    return args, (torch.nn.functional.pad(x, (0, 0, 0, 0, 2, 2)), *rest)


LAWS = (
    Law.pair("scale by 4 with alpha by 1/16", _scaled, lambda out: tuple(4.0 * y for y in out), exact=True),
    Law.pair("permutation of the batch", _rolled, lambda out: tuple(y.roll(1, 0) for y in out), exact=True),
    Law("channels of zeros around", _framed, lambda args, one, two: ((two[0][:, 2:-2],), one), exact=False),
)

# ---------------------------------------------------------------------------------------------- promises, refusals


def _bytes(args: Args, wanted: frozenset[int]) -> int:
    """The input; beside it the base and its power, where they are no larger than the input and there is a power."""
    x, beta = args[0], args[3]
    size: int = math.prod(x.shape) * x.element_size()
    return size * (3 if beta > 0 and x.element_size() >= 4 else 1)


REFUSALS = (
    Refusal("three dims", lambda a: (a[0][0], *a[1:]) if a[0].shape[0] else None, ValueError, ("input", "four dims")),
    Refusal("size 0", lambda a: (a[0], 0, *a[2:]), RuntimeError, ("size=0",)),
    Refusal("size a float", lambda a: (a[0], 2.0, *a[2:]), TypeError, ("size=2.0",)),
    Refusal("alpha a string", lambda a: (a[0], a[1], "1", *a[3:]), TypeError, ("alpha='1'",)),
    Refusal("integer input", lambda a: (a[0].to(torch.int64), *a[1:]), RuntimeError, ("input",)),
    Refusal("input is not a tensor", lambda a: (a[0].tolist(), *a[1:]), TypeError, ("input",)),
)

OPS: tuple[Op, ...] = (
    Op(
        name="cross_map_lrn2d",
        reference=formulas.cross_map_lrn2d,
        # torch.nn.CrossMapLRN2d means the same formula; its window is one channel off.
        subjects={"opassay": impl.cross_map_lrn2d, "torch": torch.nn.functional.local_response_norm},
        samples=_samples,
        differentiable=("input",),
        promises=Promises(dtypes=lambda args: (args[0].dtype,), saved=_bytes),
        laws=LAWS,
        refusals=REFUSALS,
    ),
)
