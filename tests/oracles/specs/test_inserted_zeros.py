"""A margin of zeros meets an infinite weight: kernels that form the product and kernels that do not are both right."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay
from opassay.oracles.specs import traced
from tests.traced_once import traced_once
from workshop.second import enclosures

from ..spec_judging import draw, read


def _padded(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding=1)


def _padded_alike(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(x, w, padding="same")


def _padded_before(x: Tensor, w: Tensor) -> Tensor:
    return F.conv2d(F.pad(x, (1, 1, 1, 1)), w)


def _spread(x: Tensor, w: Tensor) -> Tensor:
    return F.conv_transpose2d(x, w, stride=2, padding=1)


def _in_windows(x: Tensor, w: Tensor) -> Tensor:
    """Every product with the margin is formed."""
    return (w.reshape(len(w), -1) @ F.unfold(x, 3, padding=1)).reshape(1, len(w), *x.shape[2:])


def _tap_by_tap(x: Tensor, w: Tensor) -> Tensor:
    """No product with the margin is formed."""
    out = torch.zeros(1, len(w), 4, 4)
    for i in range(3):
        for j in range(3):
            rows, columns = slice(max(1 - i, 0), min(5 - i, 4)), slice(max(1 - j, 0), min(5 - j, 4))
            part = x[..., max(i - 1, 0) : 4 + min(i - 1, 0), max(j - 1, 0) : 4 + min(j - 1, 0)]
            for c in range(x.shape[1]):
                out[..., rows, columns] += part[:, c : c + 1] * w[:, c, i, j].reshape(1, -1, 1, 1)
    return out


def _stuffed(x: Tensor, w: Tensor) -> Tensor:
    """Zeros stand between the elements of x, and all products with them are formed."""
    wide = torch.zeros(1, x.shape[1], 7, 7)
    wide[..., ::2, ::2] = x
    columns = F.unfold(wide, 3, padding=1)
    return (w.flip(2, 3).transpose(0, 1).reshape(w.shape[1], -1) @ columns).reshape(1, -1, 7, 7)


def _throw(x: Tensor, w: Tensor) -> Tensor:
    """Every element of x is multiplied with all weights and added where the products belong."""
    out = torch.zeros(1, w.shape[1], 9, 9)
    for i in range(3):
        for j in range(3):
            for c in range(x.shape[1]):
                out[..., i : i + 7 : 2, j : j + 7 : 2] += x[:, c : c + 1] * w[c, :, i, j].reshape(1, -1, 1, 1)
    return out[..., 1:8, 1:8]


Kernel = Callable[[Tensor, Tensor], Tensor]
RIGHT: list[tuple[Kernel, Kernel]] = [
    *((spec, kernel) for spec in (_padded, _padded_alike, _padded_before) for kernel in (_in_windows, _tap_by_tap)),
    (_spread, _stuffed),
    (_spread, _throw),
]


def _operands(value: float) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    x, w = torch.randn(1, 2, 4, 4, generator=generator), torch.randn(2, 2, 3, 3, generator=generator)
    w[0, 1, 0, 0] = value
    return x, w


@pytest.mark.parametrize("value", [-float("inf"), float("nan")])
@pytest.mark.parametrize(("spec", "kernel"), RIGHT)
def test_both_kinds_of_kernels_are_right(spec: Kernel, kernel: Kernel, value: float) -> None:
    x, w = _operands(value)
    opassay.assert_conforms(kernel(x, w), spec, x, w)


@pytest.mark.parametrize("spec", [_padded, _spread])
def test_wrong_numbers_and_wrong_signs_beside_them_are_refused(spec: Kernel) -> None:
    x, w = _operands(float("inf"))
    kernel = _throw if spec is _spread else _tap_by_tap
    out = kernel(x, w)
    assert out.isfinite().any()
    assert out.isinf().any()
    wrong = [
        torch.where(out.isfinite(), out * (1 + 1e-3), out),  # numbers that the infinity does not reach
        torch.where(out.isinf(), -out, out),  # infinities of the other sign
        torch.where(out.isinf(), torch.zeros(()), out),  # an infinity that is lost
        torch.where(out.isfinite(), torch.inf, out),  # one where there is none: an evaluation has NaN or the number
    ]
    for candidate in wrong:
        with pytest.raises(AssertionError, match="where the exact value is"):
            opassay.assert_conforms(candidate, spec, x, w)


def test_what_no_inserted_zero_reaches_may_not_be_nan() -> None:
    x, w = _operands(float("inf"))
    (ball,) = read(_spread, (x, w))
    assert 0 < ball.stray.sum() < ball.stray.size
    assert not ball.stray[0, 0].any()  # The weights of this channel are all finite.
    other = _throw(x, w)
    other[0, 0, 0, 0] = float("nan")
    with pytest.raises(AssertionError, match="where the exact value is"):
        opassay.assert_conforms(other, _spread, x, w)


def _diagonal(x: Tensor, w: Tensor) -> Tensor:
    return torch.diag(x) @ w


def _triangular(x: Tensor, w: Tensor) -> Tensor:
    return torch.tril(x) @ w


def _row_by_row(x: Tensor, w: Tensor) -> Tensor:
    return torch.stack([x[i, : i + 1] @ w[: i + 1] for i in range(len(x))])


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
def test_products_with_zeros_of_a_mask_may_be_left_out(value: float) -> None:
    generator = torch.Generator().manual_seed(4)
    w = torch.randn(3, 2, generator=generator)
    w[1, 0] = value
    for spec, kernel, shape in ((_diagonal, lambda x, w: x[:, None] * w, (3,)), (_triangular, _row_by_row, (3, 3))):
        x = torch.randn(shape, generator=generator)
        for out in (spec(x, w), kernel(x, w)):
            opassay.assert_conforms(out, spec, x, w)
        wrong = kernel(x, w)
        wrong[0, 0] += 1e-3
        with pytest.raises(AssertionError, match="where the exact value is"):
            opassay.assert_conforms(wrong, spec, x, w)


def test_products_with_zeros_that_values_made_are_formed() -> None:
    x, w = torch.tensor([[-1.0, 2.0]]), torch.tensor([[torch.inf], [1.0]])
    (ball,) = read(lambda x, w: F.relu(x) @ w, (x, w))
    assert ball.stray is None
    assert ball.centre != ball.centre


def test_marks_go_with_what_is_computed() -> None:
    x, w = _operands(float("inf"))
    (plain,) = read(_padded, (x, w))
    (scaled,) = read(lambda x, w: (_padded(x, w) * 0.7 + x[:, :1]).transpose(2, 3), (x, w))
    assert (scaled.stray == plain.stray.swapaxes(2, 3)).all()
    (added,) = read(lambda x, w: _padded(x, w).sum(3), (x, w))
    assert (added.stray == plain.stray.any(3)).all()
    (ball,) = read(lambda x, w: F.relu(_padded(x, w)), (x, w))
    assert (ball.radii()[plain.stray] >= abs(ball.centre[plain.stray])).all()
    (marks,) = read(_padded, _operands(1.0))
    assert marks.stray is None


@pytest.mark.parametrize("spec", [_padded, _spread])
def test_the_second_reading_has_the_same_convolution(spec: Kernel) -> None:
    x, w = (t[:, :, :2, :2].double() for t in _operands(1.0))
    formula = traced(spec, x.float(), w.float())
    (enclosed,) = enclosures(formula, x.numpy(), w.numpy())
    near = enclosed.intervals.astype(float)
    assert np.abs(near - spec(x, w).numpy()).max() < 1e-12
    assert enclosed.narrow.all()


_VISIBLE = torch.ones(8, 8, dtype=torch.bool).tril()
_BIAS = torch.zeros(8, 8).masked_fill(~_VISIBLE, -torch.inf)
CAUSAL: dict[str, Callable[..., Tensor]] = {
    "an operation of torch": lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.5),
    "masked_fill": lambda q, k, v: torch.softmax((q @ k.mT * 0.5).masked_fill(~_VISIBLE, -torch.inf), -1) @ v,
    "where": lambda q, k, v: torch.softmax(torch.where(_VISIBLE, q @ k.mT * 0.5, -torch.inf), -1) @ v,
    "added": lambda q, k, v: torch.softmax(q @ k.mT * 0.5 + _BIAS, -1) @ v,
}


def _skipping(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Causal attention that never reads a key behind the query."""
    rows = [torch.softmax(q[i : i + 1] @ k[: i + 1].mT * 0.5, -1) @ v[: i + 1] for i in range(len(q))]
    return torch.cat(rows)


@pytest.mark.fast_cases("added")
@pytest.mark.parametrize("name", CAUSAL)
def test_masked_keys_may_be_skipped_whatever_they_hold(name: str) -> None:
    spec = CAUSAL[name]
    for place, value in ((1, torch.nan), (2, torch.nan), (2, torch.inf)):
        tensors = [t.clone() for t in draw((8, 4), (8, 4), (8, 4))]
        tensors[place][5, 1] = value
        questions = ("FWD:given", "SPECIAL:nan")
        for candidate in (_skipping, lambda q, k, v: spec(q, k, v)):
            assert (
                opassay.judge(candidate, traced_once(spec), tuple(tensors), questions=questions).verdict != "rejected"
            )
        wrong = opassay.judge(
            lambda q, k, v: _skipping(q, k, v).nan_to_num(0.0), traced_once(spec), tuple(tensors), questions=questions
        )
        assert wrong.verdict == "rejected"
