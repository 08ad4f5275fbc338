"""Terms: names, sums of names, what they say, and the contracts that they make."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

import opassay
from opassay.oracles.bound.contract import TENSOR_SUMS, Products, contract
from opassay.oracles.bound.terms import ALLOWANCES, FACTORS, LADDER, PRESETS, Terms, terms
from opassay.reference.formats import FORMATS


def test_strict_terms_are_the_contract_that_ops_are_judged_by() -> None:
    for dtype in FORMATS:
        for device in ("cpu", "cuda"):
            ours, usual = PRESETS["strict"].contract(dtype, device, 1), contract(dtype, device, 1)
            for field in dataclasses.fields(usual):
                assert getattr(ours, field.name) == getattr(usual, field.name), field.name


def test_every_name_and_every_allowance_makes_terms_that_say_what_they_allow() -> None:
    texts = {str(terms(name)) for name in PRESETS} | {str(terms(f"strict+{name}")) for name in ALLOWANCES}
    assert len(texts) == len(PRESETS) + len(ALLOWANCES)
    assert all("\n" not in line for line in texts)
    assert terms("strict+tf32+exp2").algorithms == frozenset({"exp2"})
    assert terms(PRESETS["torch"]) is PRESETS["torch"]


@pytest.mark.parametrize("name", ["loose", "strict+loose", ""])
def test_a_name_that_is_none_is_refused_with_the_list(name: str) -> None:
    with pytest.raises(ValueError, match=r"contract: got .*, need one of "):
        terms(name)


@pytest.mark.parametrize("field", ["accumulate", "inputs", "partials", "factors", "library"])
def test_a_format_that_is_none_is_refused(field: str) -> None:
    with pytest.raises(ValueError, match=f"{field}: got 'int8', need one of "):
        Terms(**{field: "int8"})  # type: ignore[arg-type]


def test_an_allowance_that_asks_for_more_than_the_dtype_has_allows_nothing() -> None:
    result = terms("strict+tf32+bfloat16_partials").contract("float32")
    assert result.products.factors == FACTORS["tf32"]
    assert result.products.partials == FORMATS["bfloat16"]
    allowance = terms("strict+tf32+float16_partials+float16").contract("float16")
    assert allowance.products == Products()


def test_two_terms_that_allow_the_same_are_equal_and_make_one_contract() -> None:
    again = terms("strict+flush")
    assert again == terms("strict+flush")
    assert again.contract("float32") is terms("strict+flush").contract("float32")


def test_the_ladder_names_each_precision_once() -> None:
    names = [each.name for each, _ in LADDER]
    assert len(set(names)) == len(names)
    assert set(PRESETS) < set(names)


def _bound_of(spec: Any, *tensors: torch.Tensor, contract: str) -> opassay.Bound:
    bound = opassay.bound(spec, *tensors, contract=contract)
    assert isinstance(bound, opassay.Bound)
    return bound


def _attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def _rounded_once(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float = 0.25) -> torch.Tensor:
    """Attention as kernels for tensor cores have it: weights are rounded to the half type, all else is in float32."""
    scores = (q.float() @ k.float().transpose(-1, -2)) * scale
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    total = weights.sum(-1, keepdim=True)
    return ((weights.to(v.dtype).float() @ v.float()) / total).to(v.dtype)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_flash_takes_weights_rounded_once_and_little_else(dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype) for x in torch.randn(3, 2, 32, 16, generator=torch.Generator().manual_seed(0)))
    widths = {}
    for name in ("strict", "flash", "torch"):
        bound = _bound_of(_attention, q, k, v, contract=name)
        widths[name] = float((bound.half_width / bound.centre.abs()).median())
    assert widths["strict"] < widths["flash"] < widths["torch"] / 2
    if dtype == torch.bfloat16:
        with pytest.raises(AssertionError):
            opassay.assert_conforms(_rounded_once(q, k, v, 17**-0.5), _attention, q, k, v, contract="flash")
    opassay.assert_conforms(_rounded_once(q, k, v), _attention, q, k, v, contract="flash")
    with pytest.raises(AssertionError):
        opassay.assert_conforms(_rounded_once(q, k, v), _attention, q, k, v, contract="strict")


@pytest.mark.parametrize("name", ["strict+bfloat16_factors", "flash"])
def test_factors_that_their_format_holds_are_not_rounded(name: str) -> None:
    a, b = (x.bfloat16() for x in torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(0)))

    def product(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a.float() @ b.float()

    strict = _bound_of(product, a, b, contract="strict")
    assert torch.equal(_bound_of(product, a, b, contract=name).radius, strict.radius)
    wide = _bound_of(product, a.float() * 1.1, b.float(), contract="tensor_core")
    assert bool((wide.radius > strict.radius).any())


def test_sums_of_tensor_cores_are_farther_off_for_what_they_take_alone() -> None:
    for dtype, name, sums in (
        ("bfloat16", "tensor_core", TENSOR_SUMS), ("float32", "tensor_core", TENSOR_SUMS),
        ("float32", "strict+triton", 1.0), ("float16", "strict+triton", TENSOR_SUMS),
        ("float64", "tensor_core", 1.0), ("bfloat16", "torch", 1.0),
    ):  # fmt: skip
        assert terms(name).contract(dtype).products.sums == sums, (dtype, name)
    a, b = (x.half() for x in torch.randn(2, 8, 64, 64, generator=torch.Generator().manual_seed(0)))
    wide, narrow = (_bound_of(torch.matmul, a, b, contract=f"strict{more}").radius for more in ("+triton", ""))
    assert torch.all(wide > narrow)
