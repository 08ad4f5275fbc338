"""Products and sums without a rounding are rounded once, as NVIDIA's assembler does it; others are rounded twice."""

from __future__ import annotations

import pytest
import torch

from tests.oracles.machine.ptx.running import at, entry, run

#: Of these the product has more digits than float32: (1 + 2^-12)^2 = 1 + 2^-11 + 2^-24.
_A, _C = 1 + 2**-12, 1.0
_ONCE, _TWICE = 2**-11 + 2**-24, 2**-11


def _run(body: str, kind: str = "f32", factor: float = _A) -> float:
    """What is written of %r4 by a body that has `a` in %r1 and %r2, and `c` in %r3."""
    width = 8 if kind == "f64" else 4
    word = "%d" if kind == "f64" else "%r"
    loads = "\n".join(f"{at(k, width)}\nld.global.{kind} {word}{k + 1}, [%rd60];" for k in range(3))
    store = f"{at(3, width)}\nst.global.{kind} [%rd60], {word}4;"
    dtype = torch.float64 if kind == "f64" else torch.float32
    operands = [torch.full((32,), value, dtype=dtype) for value in (factor, factor, _C)]
    result = torch.zeros(32, dtype=dtype)
    run(entry(f"{loads}\n{body}\n{store}", 4, ".reg .b64 %d<9>;"), [*operands, result])
    return float(result[0])


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ("mul.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r5, %r3;", _ONCE),
        ("mul.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r3, %r5;", -_ONCE),
        ("mul.ftz.f32 %r5, %r1, %r2;\nsub.ftz.f32 %r4, %r5, %r3;", _ONCE),
        ("mul.f32 %r5, %r1, %r2;\nadd.f32 %r4, 0fBF800000, %r5;", _ONCE),
        ("mul.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r5, 0f3F800000;", _ONCE),
        # What is certainly rounded twice: with a rounding, of two flushings, or where a product has another use.
        ("mul.rn.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r5, %r3;", _TWICE),
        ("mul.f32 %r5, %r1, %r2;\nsub.rn.f32 %r4, %r5, %r3;", _TWICE),
        ("mul.ftz.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r5, %r3;", _TWICE),
        ("mul.f32 %r5, %r1, %r2;\nsub.f32 %r4, %r5, %r3;\nmov.b32 %r6, %r5;", _TWICE),
        # Its operands are others by then, or it counts elsewhere.
        ("mul.f32 %r5, %r1, %r2;\nmov.b32 %r1, %r3;\nsub.f32 %r4, %r5, %r3;", _TWICE),
        ("setp.ne.s32 %p1, %t, 77;\nmul.f32 %r5, %r1, %r2;\n@%p1 sub.f32 %r4, %r5, %r3;", _TWICE),
        ("mul.f32 %r5, %r1, %r2;\nbra.uni $next;\n$next:\nsub.f32 %r4, %r5, %r3;", _TWICE),
    ],
)
def test_a_product_and_its_only_sum_are_rounded_once(body: str, value: float) -> None:
    assert _run(body) == value


def test_float64_is_contracted() -> None:
    small = 2.0**-27
    product = "mul.f64 %d5, %d1, %d2;\nsub.f64 %d4, %d5, %d3;"
    assert _run(product, "f64", 1 + small) == 2 * small + small * small


def test_a_sum_of_two_products_has_one_of_them_rounded() -> None:
    body = "mul.f32 %r5, %r1, %r2;\nmul.f32 %r6, %r3, %r3;\nsub.f32 %r4, %r5, %r6;"
    assert _run(body) == _ONCE
