"""DATA credits what is exact in any order, and nothing else; then one bit is enough to tell a fault."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball
from opassay.oracles.bound.rounding.lattice import lowest_bit
from opassay.oracles.op.declaration import Op, Sample
from opassay.properties.checks.exact_data import check_exact_data
from opassay.reference.algorithms import algorithm_of
from opassay.reference.formats import FORMATS
from tests.oracles.planted_ops import Subject, declared, judge, violation


def _ball(values: Any, dtype: str = "float32") -> Any:
    terms = contract(dtype).on_lattice
    return Ball(np.asarray(values, dtype=terms.centre_type), None, terms)


def _credited(array: Any) -> list[bool]:
    return [bool(radius == 0) for radius in np.ravel(array.radii())]


# ---------------------------------------------------------------------------------------- credits


@pytest.mark.parametrize(
    ("value", "unit"),
    [(1.0, 1.0), (-1.0, 1.0), (12.0, 4.0), (-12.0, 4.0), (0.75, 0.25), (2.0**1023, 2.0**1023), (1 + 2.0**-52, 2.0**-52),
     (2.0**-1074, 2.0**-1074), (3 * 2.0**-1074, 2.0**-1074), (-6 * 2.0**-1074, 2.0**-1073), (0.0, np.inf),
     (-0.0, np.inf)],
)  # fmt: skip
def test_the_lowest_bit_divides_its_value(value: float, unit: float) -> None:
    assert float(lowest_bit(value)) == unit


def test_the_lowest_bit_of_random_patterns() -> None:
    values = np.random.default_rng(1).integers(0, 2**63, 500, dtype=np.int64).view(np.float64)
    values = values[np.isfinite(values) & (values != 0)]
    for value, unit in zip(values.tolist(), lowest_bit(values).tolist(), strict=True):
        numerator, denominator = value.as_integer_ratio()
        scale, integer = unit.as_integer_ratio()
        quotient, rest = divmod(numerator * integer, denominator * scale)
        assert (rest, quotient % 2) == (0, 1), value.hex()


@pytest.mark.parametrize(("dtype", "bits"), [("float64", 53), ("float32", 24), ("bfloat16", 24), ("float16", 24)])
def test_a_sum_of_integers_is_exact_up_to_two_to_the_precision(dtype: str, bits: int) -> None:
    half = 2.0 ** (bits - 1)
    for values, exact in (
        ([half, half], True),
        ([half, half - 1], True),
        ([half, half + 1], False),
        ([half, half, 1, -1], False),  # a partial sum may pass the limit
        ([2 * half, 2 * half], True),  # one unit is worth 2^bits here
        ([half, 0.5], False),
        ([0.0, 0.0], True),
    ):
        assert _credited(np.sum(_ball(values, dtype))) == [exact], values


def test_scaled_integers_are_as_exact_as_integers() -> None:
    for scale in (2.0**-140, 2.0**-20, 2.0**90):
        assert _credited(np.sum(_ball(np.array([2.0**9, 3.0, -5.0]) * scale))) == [True]
    assert _credited(np.sum(_ball([2.0**-150, 2.0**-150]))) == [False]  # half of binary32's smallest subnormal
    assert _credited(np.sum(_ball([2.0**127, 2.0**127]))) == [False]  # overflows


def test_sums_and_differences_of_two() -> None:
    a, b = _ball([1.0, 2.0**24, 2.0**23, 3.0]), _ball([1.0, 1.0, 2.0**23, 2.0**-23])
    assert _credited(a + b) == [True, False, True, False]
    assert _credited(a - b) == [True, False, True, False]
    assert _credited(_ball([3.0]) + 0.5) == [True]
    assert _credited(_ball([3.0]) + 0.1) == [False]


def test_products() -> None:
    a, b = _ball([3.0, 4097.0, 4095.0, 0.0, 0.1]), _ball([5.0, 4097.0, 4095.0, 1e30, 0.0])
    assert _credited(a * b) == [True, False, True, True, True]
    assert _credited(np.square(_ball([4095.0, 4097.0]))) == [True, False]
    assert _credited(_ball([3.0]) * 0.1) == [False]
    assert _credited(_ball([2.0**-80]) * _ball([2.0**-80])) == [False]  # underflows


def test_quotients_that_every_order_gives_are_credited() -> None:
    whole = _ball([6.0]) / 3.0
    assert _credited(whole) == [True]
    assert _credited(_ball([6.0]) / _ball([2.0])) == [True]
    assert _credited(whole + 1.0) == [True]
    assert _credited(np.sum(np.concatenate([whole, _ball([1.0])]))) == [True]


def test_other_quotients_and_what_follows_from_them_are_not_credited() -> None:
    third = _ball([1.0]) / 3.0
    assert _credited(third) == [False]
    assert _credited(third + 1.0) == [False]
    assert _credited(third * _ball([2.0])) == [False]
    assert _credited(np.sum(np.concatenate([third, _ball([1.0])]))) == [False]
    assert _credited(np.sqrt(_ball([4.0]))) == [False]
    assert _credited(np.exp(_ball([0.0]))) == [False]


def test_means_are_not_credited() -> None:
    """A running mean divides at every step: over four elements it divides by three, too."""
    assert _credited(np.mean(_ball([[1.0, 2.0, 3.0]]), -1)) == [False]
    assert _credited(np.mean(_ball([[1.0, 2.0, 3.0, 4.0]]), -1)) == [False]
    assert _credited(np.sum(_ball([[1.0, 2.0, 3.0, 4.0]]), -1) / 4.0) == [False]


def test_reductions_to_no_axis_are_read() -> None:
    assert _credited(np.mean(_ball([1.0, 2.0, 3.0]))) == [False]


def test_zero_times_what_is_not_exact_is_zero() -> None:
    assert _credited((_ball([6.0]) / 3.0) * _ball([0.0])) == [True]
    with np.errstate(all="ignore"):
        assert _credited(_ball([0.0]) * (_ball([1.0]) / _ball([0.0]))) == [False]  # 0 ∞


def test_credit_survives_what_moves_elements() -> None:
    x = _ball([[1.0, 2.0], [3.0, 4.0]])
    moved = np.concatenate([np.transpose(x)[1:], np.reshape(x, (2, 2))[:1]], 0)
    assert _credited(np.sum(np.broadcast_to(np.max(moved, -1, keepdims=True), (2, 2)), -1)) == [True, True]


@pytest.mark.parametrize("dtype", FORMATS)
def test_a_credited_sum_is_exact_in_every_order(dtype: str) -> None:
    """Whatever is credited, random trees in the accumulate format give the same bits."""
    kind = np.float64 if dtype == "float64" else np.float32
    bits = contract(dtype).accumulate.precision
    credited = 0
    for seed in range(60):
        rng = np.random.default_rng([seed, 2])
        largest = 2 ** (bits - int(rng.integers(2, 6)))
        values = rng.integers(-largest, largest, 17) * 2.0 ** int(rng.integers(-9, 9))
        if _credited(np.sum(_ball(values, dtype))) != [True]:
            continue
        credited += 1
        exact = float(np.sum(values.astype(np.longdouble)))
        for _ in range(5):
            assert float(_random_tree(values.astype(kind), rng)) == exact, f"seed={seed}"
    assert 5 < credited < 60, credited


def _random_tree(values: Any, rng: Any) -> Any:
    terms = list(values)
    while len(terms) > 1:
        i, j = rng.choice(len(terms), 2, replace=False)
        merged = terms[i] + terms[j]
        terms = [t for k, t in enumerate(terms) if k not in (i, j)] + [merged]
    return terms[0]


# ---------------------------------------------------------------------------------------- planted faults


def _total(subject: Subject) -> Op:
    """sum(x w) over the last axis."""
    return declared(subject, name="total", reference=lambda x, w: np.sum(x * w, axis=-1))


def _right(x: Tensor, w: Tensor) -> Tensor:
    return (x.float() * w.float()).sum(-1).to(x.dtype) if x.element_size() == 2 else (x * w).sum(-1)


def _halved_twice(x: Tensor, w: Tensor) -> Tensor:
    return ((x * w) / 3).sum(-1) * 3


def _integers(seed: int, dtype: str = "float32", largest: int = 200) -> Sample:
    rng = np.random.default_rng([seed, 5])
    x, w = rng.integers(-largest, largest + 1, (6, 9)), rng.integers(-3, 4, 9)
    return Sample(tuple(torch.from_numpy(v).to(getattr(torch, dtype)) for v in (x, w)), seed)


class _RowsMissing(torch.autograd.Function):
    """Right values; the weight's gradient leaves out the last row."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return (x * w).sum(-1)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        x, w = ctx.saved_tensors
        return g.unsqueeze(-1) * w, (g.unsqueeze(-1) * x)[:-1].sum(0)


FAULTS: dict[str, Subject] = {
    "a sum in bfloat16": lambda x, w: (x * w).bfloat16().sum(-1, dtype=torch.bfloat16).to(x.dtype),
    "products in bfloat16": lambda x, w: (x.bfloat16() * w.bfloat16()).to(x.dtype).sum(-1),
    "the last element missing": lambda x, w: (x * w)[..., :-1].sum(-1),
    "a neighbouring row": lambda x, w: (x.roll(1, 0) * w).sum(-1),
    "the first element twice": lambda x, w: (x * w).sum(-1) + (x * w)[..., 0],
    "by way of a third": _halved_twice,
    "a row missing in a gradient": lambda x, w: _RowsMissing.apply(x, w),  # type: ignore[no-untyped-call]
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    results = [violation(check_exact_data, _total(FAULTS[name]), _integers(seed)) for seed in range(4)]
    violations = [v for v in results if v is not None]
    assert len(violations) >= 2, name
    assert {v.code.name for v in violations} == {"BITS"}
    assert "is not exact on exact data" in violations[0].title
    assert "in any order" in violations[0].message


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_the_right_op_passes_and_all_of_it_is_judged(dtype: str) -> None:
    for seed in range(5):
        judgement = judge(check_exact_data, _total(_right), _integers(seed, dtype, largest=3), dtype)
        assert judgement.judged == 6 + 6 * 9 + 9, f"seed={seed}"


@pytest.mark.parametrize("order", ["forward", "reversed", "pairs"])
def test_the_order_of_a_sum_does_not_matter(order: str) -> None:
    def op(x: Tensor, w: Tensor) -> Tensor:
        terms = list((x * w).unbind(-1))
        terms = terms[::-1] if order == "reversed" else terms
        while len(terms) > 1:
            terms = [terms[0] + terms[1], *terms[2:]] if order != "pairs" else [*terms[2:], terms[0] + terms[1]]
        return terms[0]

    for seed in range(4):
        assert judge(check_exact_data, _total(op), _integers(seed)).judged == 6 + 6 * 9 + 9


def _scaled(x: Any, scale: Any) -> Any:
    return (x - 12.0) * scale


@algorithm_of(_scaled)
def _folded(x: Any, scale: Any) -> Any:
    return x * scale + -(12.0 * scale)


def test_what_rounds_in_an_algorithm_that_counts_need_not_be_exact() -> None:
    """12 a - 12 a is zero or not, by whether the product is rounded before it is subtracted."""
    x, scale = torch.full((4,), 12.0), torch.tensor([0.0, 1.0, 3.0, 0.1])
    fused = lambda x, scale: (x.double() * scale - (12.0 * scale)).float()  # noqa: E731
    op = declared(fused, name="scaled", reference=_scaled)
    assert violation(check_exact_data, op, Sample((x, scale))) is None
    alone = declared(fused, name="scaled", reference=lambda x, scale: (x - 12.0) * scale)
    result = violation(check_exact_data, alone, Sample((x, scale)))
    assert result is not None
    assert "out is not exact on exact data" in result.title


def test_a_missing_output_is_a_finding() -> None:
    result = violation(check_exact_data, _total(lambda x, w: ()), _integers(1))
    assert result is not None
    assert "got 0 outputs, need 1" in result.title
