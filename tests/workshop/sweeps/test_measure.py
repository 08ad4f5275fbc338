"""The sweep of elementary functions: faults planted at one argument are found there, and MPFR is checked by mpmath."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import mpmath
import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import CPU_FUNCTIONS
from opassay.reference.formats import FORMATS
from workshop.sweeps import inputs, measure, sampling
from workshop.sweeps.functions import FUNCTIONS, Wide
from workshop.sweeps.measure import error_of
from workshop.sweeps.reading import promised

Change = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]

_AT = 0x3FA3  # 1.2734375 in bfloat16


def _plant(monkeypatch: pytest.MonkeyPatch, change: Change, name: str = "exp") -> None:
    right = FUNCTIONS[name]

    def computed(arguments: torch.Tensor) -> torch.Tensor:
        return change(arguments, right.computed(arguments))

    monkeypatch.setitem(FUNCTIONS, name, dataclasses.replace(right, computed=computed))


def _here(arguments: torch.Tensor) -> torch.Tensor:
    return arguments.contiguous().view(torch.int16) == _AT


def test_one_ulp_at_one_argument_is_found_there(monkeypatch: pytest.MonkeyPatch) -> None:
    _plant(monkeypatch, lambda x, out: torch.where(_here(x), torch.nextafter(out, out * 2), out))
    worst = measure.measure("exp", "bfloat16", 0)["normal"]
    assert worst["bits"] == f"{_AT:04x}"
    assert 0.5 < worst["ulps"] < 1.5


def test_a_fault_of_strided_tensors_alone_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def change(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return out if x.is_contiguous() else torch.where(_here(x), out * 2, out)

    _plant(monkeypatch, change)
    worst = measure.measure("exp", "bfloat16", 0)["normal"]
    assert (worst["bits"], worst["layout"]) == (f"{_AT:04x}", "strided")


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf, 0.0], ids=str)
def test_wrong_special_values_are_found(monkeypatch: pytest.MonkeyPatch, wrong: float) -> None:
    _plant(monkeypatch, lambda x, out: out.masked_fill(_here(x), wrong))
    worst = measure.measure("exp", "bfloat16", 0)["normal"]
    assert worst["bits"] == f"{_AT:04x}"
    assert worst["ulps"] > 100


def test_an_early_overflow_has_a_finite_error(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = torch.finfo(torch.bfloat16).max
    _plant(monkeypatch, lambda x, out: torch.where(out == largest, math.inf, out), "reciprocal")
    assert measure.measure("reciprocal", "bfloat16", 0)["normal"]["ulps"] < 2


def test_flushed_results_are_counted_below_the_normal_range(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = torch.finfo(torch.bfloat16).tiny
    _plant(monkeypatch, lambda x, out: torch.where(out < tiny, torch.zeros_like(out), out))
    result = measure.measure("exp", "bfloat16", 0)
    assert result["normal"]["ulps"] < 0.51
    assert 64 < result["subnormal"]["ulps"] <= 128


def test_what_is_not_correctly_rounded_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = measure.measure("sqrt", "bfloat16", 0)["misrounded"]
    _plant(monkeypatch, lambda x, out: torch.where(_here(x), torch.nextafter(out, out * 2), out), "sqrt")
    assert measure.measure("sqrt", "bfloat16", 0)["misrounded"] == right + 2, "one argument, in two layouts"


def test_a_wider_format_that_is_wrong_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = dataclasses.replace(FUNCTIONS["exp"], centre=lambda numbers: np.exp(numbers.astype(np.float16)))
    monkeypatch.setitem(FUNCTIONS, "exp", wrong)
    with pytest.raises(ArithmeticError, match="MPFR one of"):
        measure.measure("exp", "bfloat16", 0)


def test_the_error_is_that_of_mpmath() -> None:
    random = np.random.default_rng(5)
    print("seed 5")
    formulas = {"exp": mpmath.exp, "log1p": mpmath.log1p, "tanh": mpmath.tanh, "sqrt": mpmath.sqrt}
    with mpmath.workprec(300):
        for name, formula in formulas.items():
            for argument in np.abs(random.normal(size=20).astype(np.float32)):
                result = float(getattr(np, name)(argument))
                value = formula(mpmath.mpf(float(argument)))
                ulp = mpmath.mpf(2) ** (mpmath.frexp(value)[1] - 24)
                exact = float(abs(mpmath.mpf(result) - value) / ulp)
                assert error_of(FUNCTIONS[name], FORMATS["float32"], float(argument), result) == exact


def test_every_function_of_one_argument_can_be_swept() -> None:
    of_two = {"arctan2", "hypot"}
    assert {each.contract for each in FUNCTIONS.values()} >= set(CPU_FUNCTIONS) - of_two


@pytest.mark.parametrize("name", sorted(set(FUNCTIONS) & set(sampling.SAMPLED)))
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_wider_format_is_that_function(name: str, dtype: str) -> None:
    """What NumPy has by a name, what torch computes and what MPFR says are one function, at arguments of every kind."""
    function, fmt = FUNCTIONS[name], FORMATS[dtype]
    special = [0.0, -0.0, 0.5, -0.75, 1.0, 3.0, 60.0, -200.0, 1e-30, math.inf, -math.inf, math.nan]
    x = np.array(special, dtype=np.float64).astype(dtype)
    computed = function.computed(torch.from_numpy(x)).double().numpy()
    wide: Wide = x.astype(np.longdouble) if dtype == "float64" else x.astype(np.float64)
    with np.errstate(all="ignore"):
        value = function.centre(wide)
    allowed = promised(name, dtype, CPU_FUNCTIONS)
    assert allowed is not None
    for argument, result, true in zip(x, computed, value, strict=True):
        assert error_of(function, fmt, float(argument), float(result)) <= allowed, argument
        assert error_of(function, fmt, float(argument), float(true)) <= 0.5 + measure._UNSURE[fmt.bits], argument


def test_a_function_of_numpy_is_swept_in_formats_that_numpy_does_not_have() -> None:
    result = measure.measure("cbrt", "bfloat16", 0)
    assert result["inputs"] == 2**16
    assert 0.4 < result["normal"]["ulps"] < 0.501


def test_the_shards_of_a_format_are_all_its_arguments() -> None:
    (whole,) = inputs.patterns_of_shard("float16", 0)
    assert sorted(whole.tolist()) == list(range(2**16))
    ends = [
        (parts[0][0], parts[-1][-1])
        for parts in (list(inputs.patterns_of_shard("float32", shard)) for shard in (0, 7, 255))
    ]
    assert ends == [(0, 2**24 - 1), (7 * 2**24, 2**27 - 1), (255 * 2**24, 2**32 - 1)]
    with pytest.raises(ValueError, match="got shard=256, need 0 to 255"):
        next(inputs.patterns_of_shard("float32", 256))


def test_drawn_arguments_reach_every_binade_and_differ_between_shards() -> None:
    (one,), (other,) = (list(inputs.patterns_of_shard("float64", shard)) for shard in (3, 4))
    exponents = {int(bits) >> 52 for bits in one}
    assert exponents == set(range(2047)) | {exponent + 2048 for exponent in range(2047)}
    assert not np.array_equal(one, other)


def test_the_search_reaches_a_fault_that_no_draw_can_meet(monkeypatch: pytest.MonkeyPatch) -> None:
    # The error grows towards one argument, as that of a poor polynomial does towards the end of its interval.
    def change(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        far = (x - 1.25).abs().clamp_min(1e-12)
        return out * (1 + 4e-15 / (1 + 1e4 * far))

    _plant(monkeypatch, change)
    worst = measure.measure("exp", "float64", 0)["normal"]
    assert abs(np.array([int(worst["bits"], 16)], np.uint64).view(np.float64)[0] - 1.25) < 1e-6
