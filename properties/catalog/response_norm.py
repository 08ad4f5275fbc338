"""Declaration of cross_map_lrn2d."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op, Slices
from ...reference import response_norm as formulas
from ..checks.ways.module_calls import ModuleCall
from ..declaring import drawing, laws, refusals, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare
from ..declaring.signature import ArgumentsByName
from ..declaring.subjects import Module, ours

Tensor = torch.Tensor
SIZES = (5, 3, 1, 2, 4, 7, 9, 16, 33)
ALPHAS = (1e-4, 1e-4, 1.0, 0.3, 5.0, 0.0, -1e-3)
BETAS = (0.75, 0.75, 0.75, 0.5, 1.0, 0.3, 2.0, 0.0, -1.0, -2.0)
KS = (1, 1.0, 2.0, 0.01, 0.0)


@st.composite
def _numbers(draw: st.DrawFn, kind: str) -> ArgumentsByName:
    """The numbers of the op. For "integers" they make it a polynomial: beta = -1, coefficients powers of two."""
    size = draw(choose("size", SIZES))
    numbers = {"alpha": ALPHAS, "beta": BETAS, "k": KS}
    if kind == "integers":
        # The formula divides alpha by the size, so multiples of the size leave a power of two.
        numbers = {"alpha": (0.0, 0.25 * size, 1.0 * size), "k": (0.0, 1.0, 2)}
    return {"size": size, "beta": -1.0, **{name: draw(choose(name, values)) for name, values in numbers.items()}}


@st.composite
def _images(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
    """Images. The channels at one position of one image are a row of the regime."""
    (images, height, width), (channels,) = draw(strategies.shapes(kind, 1, 3, 48))
    numbers = draw(_numbers(kind))
    regime = draw(drawing.regime(kind))

    def fill(rng: Any) -> ArgumentsByName:
        rows = drawing.values(rng, regime, (images * height * width, channels), dtype)
        x = np.moveaxis(np.reshape(rows, (images, height, width, channels)), 3, 1)
        return {"input": strategies.to_dtype(x, dtype), **numbers}

    return Draft(fill, regime, {"images": images, "channels": channels, "positions": height * width})


def _four_times(input: Tensor, alpha: float, beta: float) -> ArgumentsByName | None:
    """x -> 4 x with alpha -> alpha / 16: four times the output, as every rounding scales."""
    is_half = input.dtype.itemsize == 2
    # Squares and powers within these limits neither overflow nor underflow, so every rounding scales.
    low, high = (2.0**-3, 2.0**3) if is_half else (2.0**-20, 2.0**20)
    magnitudes = input.double().abs()
    inside = magnitudes[magnitudes > 0]
    if inside.numel() and (inside.min() < low or inside.max() > high or (is_half and beta > 1)):
        return None
    return {"input": 4.0 * input, "alpha": alpha / 16.0}


def _takes_no_power(beta: float) -> bool:
    """Whether the op takes no general power, whose last bits may depend on where an element lies in memory."""
    return beta in (0.75, 0.5, 1.0, 0.0)


def _framed(input: Tensor) -> tuple[ArgumentsByName, ArgumentsByName]:
    """The input, and the input with two channels of zeros on both sides, which add nothing to a window."""
    return {}, {"input": torch.nn.functional.pad(input, (0, 0, 0, 0, 2, 2))}


def _flat_at_zero(word: str) -> laws.Relation:
    """With k = 0 and a beta of -1 or less the output is of third order in the input, so it has no slope at zero."""

    def calls(input: Tensor) -> tuple[ArgumentsByName, ...]:
        return tuple({"input": torch.zeros_like(input), "k": 0.0, "beta": beta} for beta in (-1.0, -2.0))

    def relate(*calls: tuple[Tensor, ...]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        outputs_at_zero = tuple(y for outputs in calls for y in outputs)
        return outputs_at_zero, tuple(map(torch.zeros_like, outputs_at_zero))

    return laws.law(f"no slope at zero, {word}", calls, relate, exact=True, word=(word,))


def _identity_at_zero(word: str) -> laws.Relation:
    """With a beta of 0 the output is the input whatever k is, so where a base of 0 has no inverse it is moved alike."""

    def calls(input: Tensor) -> tuple[ArgumentsByName, ...]:
        return tuple({"input": torch.zeros_like(input), "k": k, "beta": 0.0} for k in (0.0, 1.0))

    return laws.law(f"the identity at zero, {word}", calls, lambda one, two: (one, two), exact=True, word=(word,))


def _input_base_and_power(input: Tensor, beta: float) -> int:
    """Bytes of the input, and of the base and its power if beta is positive and they are no larger than the input."""
    return drawing.bytes_of(input) * (3 if beta > 0 and input.element_size() >= 4 else 1)


def _images_apart(beta: float, device: str) -> Slices | None:
    # On the CPU ATen computes a general power of whole vectors in one way, and of what is left in another.
    return Slices({"input": 0}, (0,)) if device != "cpu" or _takes_no_power(beta) else None


def _module(source: Any) -> Callable[..., ModuleCall]:
    # The window of torch.nn.CrossMapLRN2d is one channel off where the size is even; LocalResponseNorm's is not.
    make = torch.nn.LocalResponseNorm if source is torch.nn else source.CrossMapLRN2d
    return lambda x, size, alpha=1e-4, beta=0.75, k=1: ModuleCall(make(size, alpha, beta, k), {}, (x,))


OPS: tuple[Op, ...] = (
    declare(
        formulas.cross_map_lrn2d,
        # torch.nn.CrossMapLRN2d means the same formula, but its window is one channel off.
        ours(formulas.cross_map_lrn2d, Module("CrossMapLRN2d", _module), torch=torch.nn.functional.local_response_norm),
        samples=_images,
        differentiable=("input",),
        dtypes=lambda input: (input.dtype,),
        invariant=_images_apart,
        saved=_input_base_and_power,
        contiguous=True,
        documented=torch_documents.by(torch_documents.WINDOW),
        laws=(
            laws.pair(
                "scale by 4 with alpha by 1/16", _four_times, lambda first: tuple(4.0 * y for y in first), exact=True
            ),
            laws.permute({"input": 0}, exact=True, when=_takes_no_power),
            laws.law("channels of zeros around", _framed, lambda one, two: ((two[0][:, 2:-2],), one)),
            _flat_at_zero("jvp"),
            _flat_at_zero("vjp"),
            _identity_at_zero("jvp"),
            _identity_at_zero("vjp"),
        ),
        refusals=(
            refusals.wrong(
                "input",
                "three dims",
                lambda images: images[0] if len(images) else None,
                ValueError,
                "input",
                "four dims",
            ),
            refusals.value("size", 0, RuntimeError, "size=0"),
            refusals.value("size", 2.0, TypeError, "size=2.0"),
            refusals.value("size", False, TypeError, "size=False"),
            refusals.value("alpha", "1", TypeError, "alpha='1'"),
            *map(refusals.its_type, ("size", "alpha", "beta", "k")),
            refusals.integer("input"),
            refusals.not_a_tensor("input"),
        ),
        kernels=True,
        example=lambda x: impl.cross_map_lrn2d(x.unsqueeze(0), 3),
    ),
)
