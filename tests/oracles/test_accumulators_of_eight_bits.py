"""Products of eight-bit numbers, added up as tensor cores do: inside the bound that allows it, and outside without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import opassay
from opassay.oracles.bound.contract import Accumulators
from opassay.oracles.bound.terms import ACCUMULATORS, terms

E4M3 = torch.float8_e4m3fn


def cut_off(values: Any, exponent: Any, bits: int) -> Any:
    """Numbers without what lies below so many bits behind an exponent."""
    unit = np.ldexp(1.0, exponent - bits)
    return np.trunc(values / unit) * unit


def added_up(products: Any, how: Accumulators) -> Any:
    """Sums of products along axis 0 by instructions, with what each of them cuts off."""
    total = np.zeros(products.shape[1:], dtype=np.float32)
    chunk = how.chunk or len(products)
    for start in range(0, len(products), chunk):
        accumulator = np.zeros(products.shape[1:])
        part = products[start : start + chunk]
        for k in range(0, len(part), how.group):
            addends = np.concatenate([accumulator[None], part[k : k + how.group]])
            exponent = np.frexp(np.max(np.abs(addends), axis=0))[1] - 1
            accumulator = cut_off(addends, exponent, how.bits).sum(0)
            accumulator = cut_off(accumulator, np.frexp(accumulator)[1] - 1, how.bits)
        total = total + accumulator.astype(np.float32)
    return total


def tensors(terms: int, shift: float, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    a, b = ((torch.randn(8, terms, generator=generator) + shift).to(E4M3) for _ in range(2))
    return a, b


def spec(a: Tensor, b: Tensor) -> Tensor:
    return a.float() @ b.float().t()


def radius_of(formula: Any, a: Tensor, b: Tensor, contract: str) -> Tensor:
    bound: Any = opassay.bound(formula, a, b, contract=contract)
    radius: Tensor = bound.radius
    return radius


def kernel(a: Tensor, b: Tensor, how: Accumulators) -> Tensor:
    products = a.double().numpy()[:, None, :] * b.double().numpy()[None]
    return torch.from_numpy(added_up(np.moveaxis(products, -1, 0), how))


@pytest.mark.parametrize("name", ACCUMULATORS)
@pytest.mark.parametrize(("count", "shift"), [(64, 0.0), (512, 0.0), (500, 3.0)])
def test_sums_of_a_tensor_core_are_inside_where_they_are_allowed(name: str, count: int, shift: float) -> None:
    for seed in range(4):
        a, b = tensors(count, shift, seed)
        computed = kernel(a, b, ACCUMULATORS[name])
        opassay.assert_conforms(computed, spec, a, b, contract=f"torch+{name}")
        if count != 512:  # Of 512 products of either sign the worst case has room for what is cut off.
            with pytest.raises(AssertionError):
                opassay.assert_conforms(computed, spec, a, b)


@pytest.mark.parametrize(("record", "allowance"), [("fast", "hopper_fp8"), ("promoted", "hopper_fp8_128")])
def test_sums_that_an_h100_gave_are_inside(record: str, allowance: str) -> None:
    """torch._scaled_mm of 256 products, with and without fast accumulation; see `benchmarks/gpu/tensor_sums.py`."""
    sums = np.load(Path(__file__).parent / "machine" / "ptx" / "h100_sums.npz")
    a, b = (torch.from_numpy(sums[f"e4m3_{name}"]).view(E4M3) for name in "ab")
    computed = torch.from_numpy(sums[f"e4m3_{record}"])
    opassay.assert_conforms(computed, spec, a, b, contract=f"torch+{allowance}")
    with pytest.raises(AssertionError):
        opassay.assert_conforms(computed, spec, a, b)


def test_an_accumulator_that_is_never_promoted_has_a_wider_bound() -> None:
    a, b = tensors(4096, 0.0, 0)
    whole, chunks, plain = (
        radius_of(spec, a, b, name) for name in ("torch+hopper_fp8", "torch+hopper_fp8_128", "torch")
    )
    assert (whole > 16 * chunks).all()
    assert (chunks > 16 * plain).all()
    sizes = a.double().abs() @ b.double().abs().t()
    assert (chunks <= 0.0172 * sizes).all()


def test_other_products_gain_nothing() -> None:
    a, b = tensors(128, 0.0, 0)

    def scaled(a: Tensor, b: Tensor) -> Tensor:
        return (a.float() * (1.0 + 2.0**-10)) @ b.float().t()

    for formula, equal in ((scaled, True), (spec, False)):
        radii = [radius_of(formula, a, b, name) for name in ("torch+hopper_fp8_128", "torch")]
        assert bool((radii[0] == radii[1]).all()) == equal


def test_a_share_counts_instructions() -> None:
    how = Accumulators(bits=13, group=32, chunk=128)
    assert 34 * 2.0**-13 <= how.share(32) <= 34.0001 * 2.0**-13
    assert how.share(33) == how.share(64) > how.share(32)
    assert how.share(128) == how.share(4096)
    assert terms("torch+hopper_fp8").contract("float32").products.accumulators == ACCUMULATORS["hopper_fp8"]
