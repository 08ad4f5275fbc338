"""Terms: names, sums of names, what they say, and the contracts that they make."""

from __future__ import annotations

import dataclasses

import pytest

from opassay.oracles.contract import contract
from opassay.oracles.terms import ALLOWANCES, FACTORS, LADDER, PRESETS, Terms, terms
from opassay.reference.formats import FORMATS


def test_strict_terms_are_the_contract_that_ops_are_judged_by() -> None:
    for dtype in FORMATS:
        for device in ("cpu", "cuda"):
            ours, usual = PRESETS["strict"].contract(dtype, device, 1), contract(dtype, device, 1)
            for field in dataclasses.fields(usual):
                assert getattr(ours, field.name) == getattr(usual, field.name), field.name


def test_every_name_and_every_allowance_makes_terms_that_say_what_they_allow() -> None:
    said = {str(terms(name)) for name in PRESETS} | {str(terms(f"strict+{name}")) for name in ALLOWANCES}
    assert len(said) == len(PRESETS) + len(ALLOWANCES)
    assert all("\n" not in line for line in said)
    assert terms("strict+tf32+exp2").algorithms == {"exp2"}
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
    found = terms("strict+tf32+bfloat16_partials").contract("float32")
    assert found.factors == FACTORS["tf32"]
    assert found.partials == FORMATS["bfloat16"]
    held = terms("strict+tf32+float16_partials+float16").contract("float16")
    assert (held.factors, held.partials) == (0.0, None)


def test_two_terms_that_allow_the_same_are_equal_and_make_one_contract() -> None:
    again = terms("strict+flush")
    assert again == terms("strict+flush")
    assert again.contract("float32") is terms("strict+flush").contract("float32")


def test_the_ladder_names_each_precision_once() -> None:
    names = [each.name for each, _ in LADDER]
    assert len(set(names)) == len(names)
    assert set(PRESETS) < set(names)
