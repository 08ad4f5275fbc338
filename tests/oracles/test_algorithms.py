"""Algorithms that good implementations use are accepted, less accurate ones by their name.

Each is evaluated in float32 on data that show its error, and held against the accept set of the formula.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import CPU_FUNCTIONS, EXP2, contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.op.declaration import Sample
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks.transforms.values import check_values
from opassay.reference.algorithms import algorithm_of, algorithms, declared
from opassay.reference.formats import BINARY32
from opassay.reference.norms.batch_norm import batch_norm
from opassay.reference.norms.layer_norm import layer_norm, native_layer_norm_backward
from opassay.reference.norms.moments import FOLDED, SHIFTED
from opassay.reference.softmax import softmax

from .planted_ops import declared as declared_op
from .planted_ops import scaled, tensor, violation

ONE = np.float32(1.0)
EPS = np.float32(1e-5)
LOG2_E = np.float32(np.log2(np.e))


def _accepted(formula: Callable[..., Any], operands: Sequence[Any], computed: Any, allowed: Sequence[str] = ()) -> bool:
    """Whether every element of the first output lies in its accept set, with those names of algorithms allowed."""

    def stated(*arrays: Any) -> Any:
        return formula(*arrays)

    for other in algorithms(formula, allowed):
        algorithm_of(stated)(other)
    ball, *_ = balls(stated, operands, contract("float32", algorithms=frozenset(allowed)))
    places = accept.place_in_accept_sets(np.asarray(computed, dtype=np.float64), BINARY32, ball, None)
    assert places.judged.mean() > 0.9
    return bool(places.accepted.all())


# ------------------------------------------------------------------------------------------------------------ norms


def _rows(seed: int, length: int, offset: float) -> Any:
    rng = np.random.default_rng(seed)
    return np.asarray(rng.standard_normal((20_000, length)) + offset, dtype=np.float32)


def _declared(length: int) -> Callable[..., Any]:
    """Layer norm of rows of a length with its algorithms."""

    def formula(x: Any) -> Any:
        return layer_norm(x, (length,))

    for one, name in declared(layer_norm):
        algorithm_of(formula, name)(lambda x, one=one: one(x, (length,)))
    return formula


def _statistics(x: Any) -> tuple[Any, Any]:
    mean = x.mean(-1, keepdims=True, dtype=np.float32)
    return mean, ONE / np.sqrt(np.square(x - mean).mean(-1, keepdims=True, dtype=np.float32) + EPS)


def _plain(x: Any) -> Any:
    mean, r = _statistics(x)
    return (x - mean) * r


def _folded(x: Any) -> Any:
    mean, r = _statistics(x)
    return x * r - mean * r


def _shifted(x: Any) -> Any:
    moved = x - x[:, :1]
    mean = moved.mean(-1, keepdims=True, dtype=np.float32)
    variance = np.square(moved).mean(-1, keepdims=True, dtype=np.float32) - np.square(mean)
    return (moved - mean) / np.sqrt(variance + EPS)


def _one_pass(x: Any) -> Any:
    mean = x.mean(-1, keepdims=True, dtype=np.float32)
    variance = np.maximum(np.square(x).mean(-1, keepdims=True, dtype=np.float32) - np.square(mean), 0)
    return (x - mean) / np.sqrt(variance + EPS)


@pytest.mark.parametrize(("way", "name"), [(_plain, ""), (_folded, FOLDED), (_shifted, SHIFTED)])
@pytest.mark.parametrize("offset", [0.0, 30.0])
def test_a_norm_may_be_evaluated_in_a_way_that_is_allowed(way: Callable[[Any], Any], name: str, offset: float) -> None:
    for length in (2, 3, 5, 16):
        x = _rows(1, length, offset)
        assert _accepted(_declared(length), [x], way(x), (name,)), length


def test_a_folded_norm_is_refused_without_its_name() -> None:
    x = _rows(2, 2, 30.0)
    assert not _accepted(_declared(2), [x], _folded(x))


def test_moments_about_an_outlier_are_refused_without_their_name() -> None:
    x = _rows(2, 16, 0.0)
    x[:, 0] += np.float32(300)
    assert _accepted(_declared(16), [x], _shifted(x), (SHIFTED,))
    assert not _accepted(_declared(16), [x], _shifted(x))


def test_one_pass_moments_are_refused_whatever_is_allowed() -> None:
    x = _rows(3, 16, 300.0)
    assert not _accepted(_declared(16), [x], _one_pass(x), (FOLDED, SHIFTED))
    assert _accepted(_declared(16), [x], _plain(x))


def test_a_row_of_one_element_is_judged_on_the_scale_of_what_cancels() -> None:
    x = _rows(4, 1, 3.0)
    scale = ONE / np.sqrt(EPS)
    fused = np.asarray(x.astype(np.float64) * scale - np.float64(x * scale), dtype=np.float32)
    assert np.any(fused != 0)
    assert _accepted(_declared(1), [x], fused)
    assert not _accepted(_declared(1), [x], 64 * fused)


def test_the_gradient_of_a_row_of_one_element_is_judged_on_the_scale_of_what_cancels() -> None:
    rng = np.random.default_rng(7)
    g, x = (np.asarray(3 * rng.standard_normal((5000, 1)), dtype=np.float32) for _ in range(2))
    r = np.full((5000, 1), ONE / np.sqrt(EPS))
    # A fused product leaves what the other product rounds off.
    rest = np.asarray(r.astype(np.float64) * g - np.asarray(r * g, dtype=np.float64), dtype=np.float32)
    slope = np.asarray((g.astype(np.float64) * x - np.asarray(g * x, dtype=np.float64)) * r**3, dtype=np.float32)
    computed = slope * x - slope * np.nextafter(x, np.float32(0)) + rest
    assert np.any(computed != 0)

    def backward(g: Any, x: Any, mean: Any, r: Any) -> Any:
        return native_layer_norm_backward(g, x, (1,), mean, r, None, None, (True, False, False))[0]

    for one in algorithms(native_layer_norm_backward):
        algorithm_of(backward)(lambda *a, one=one: one(*a[:2], (1,), *a[2:], None, None, (True, False, False))[0])
    assert _accepted(backward, [g, x, x, r], computed)
    assert not _accepted(backward, [g, x, x, r], computed + r * g / 64)


def test_a_running_statistic_may_move_by_its_distance() -> None:
    rng = np.random.default_rng(5)
    x, running = (np.asarray(3 + rng.standard_normal(s), dtype=np.float32) for s in ((2, 5000), 5000))
    momentum = np.float32(0.1)
    mean = x.mean(0, dtype=np.float32)
    moved = running + momentum * (mean - running)

    def updated(x: Any, running: Any) -> Any:
        return batch_norm(x, running, np.ones(5000), None, None, True, 0.1)[1]

    for other in algorithms(batch_norm):
        algorithm_of(updated)(lambda x, running, one=other: one(x, running, np.ones(5000), None, None, True, 0.1)[1])
    assert _accepted(updated, [x, running], moved)
    assert not _accepted(updated, [x, running], running + np.float32(0.1001) * (mean - running))


# ---------------------------------------------------------------------------------------------------------- softmax


def _softmax(x: Any) -> Any:
    return softmax(x, 1)


def _logits() -> Any:
    return np.asarray(np.random.default_rng(6).standard_normal((20_000, 4)) * 20, dtype=np.float32)


def _weights(x: Any) -> Any:
    return np.exp(x - x.max(-1, keepdims=True))


def _by_exp2(x: Any) -> Any:
    weights = np.exp2((x - x.max(-1, keepdims=True)) * LOG2_E)
    return weights / weights.sum(-1, keepdims=True)


def _of_log_sum(x: Any) -> Any:
    largest = x.max(-1, keepdims=True)
    return np.exp(x - (largest + np.log(np.exp(x - largest).sum(-1, keepdims=True))))


def test_softmax_may_multiply_by_the_reciprocal_of_its_sum() -> None:
    x = _logits()
    assert _accepted(_softmax, [x], _weights(x) * (ONE / _weights(x).sum(-1, keepdims=True)))


def test_softmax_may_use_powers_of_two_by_that_name() -> None:
    x = _logits()
    assert _accepted(_softmax, [x], _by_exp2(x), (EXP2,))
    assert not _accepted(_softmax, [x], _by_exp2(x))


def test_softmax_of_the_logarithm_of_its_sum_is_refused() -> None:
    x = _logits() + np.float32(100)
    assert not _accepted(_softmax, [x], _of_log_sum(x), (EXP2,))


# ---------------------------------------------------------------------------------------------------- what is declared


def _flushed(x: Tensor, w: Tensor) -> Tensor:
    y = scaled(x, w)
    return torch.where(y.abs() < torch.finfo(y.dtype).tiny, 0 * y, y)


def test_an_op_may_promise_to_flush_what_is_below_the_normal_range() -> None:
    small = Sample((tensor((1,), (4, 5)) * 2.0**-100, tensor((2,), (5,)) * 2.0**-30))
    flushing = declared_op(_flushed).changed(flush=True)
    assert violation(check_values, declared_op(_flushed), small) is not None
    assert violation(check_values, flushing, small) is None
    halved = declared_op(lambda x, w: scaled(x, w) / 2, promises=flushing.promises)
    assert violation(check_values, halved, Sample((tensor((1,), (4, 5)), tensor((2,), (5,))))) is not None


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_an_op_may_promise_an_algorithm_by_its_name(dtype: str) -> None:
    """The names that a declaration allows reach the formula's algorithms through every path."""
    native = load_op("layer_norm")
    rows = tensor((3,), (3000, 2), dtype) + 30
    for allowed, wrong in ((frozenset[str](), True), (frozenset((FOLDED,)), False)):
        op = replace(native, subjects={"opassay": _folded_layer_norm}).changed(algorithms=allowed)
        sample = Sample((rows, (2,), None, None, 1e-5))
        assert (violation(check_values, op, sample, dtype) is not None) == wrong


def _folded_layer_norm(x: Tensor, shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    r = 1 / ((x - mean).square().mean(-1, keepdim=True) + eps).sqrt()
    return x * r - mean * r


def test_a_failure_names_the_algorithm_that_would_have_to_be_allowed() -> None:
    native = load_op("layer_norm")
    sample = Sample((tensor((3,), (3000, 2)) + 30, (2,), None, None, 1e-5))
    failure = violation(check_values, replace(native, subjects={"opassay": _folded_layer_norm}), sample)
    assert failure is not None
    assert failure.allowance is not None
    assert failure.allowance() == "accepted   if the declaration allowed algorithms={'folded'}"
    wrong = replace(native, subjects={"opassay": lambda *args: _folded_layer_norm(*args) * (1 + 2.0**-10)})
    failure = violation(check_values, wrong, sample)
    assert failure is not None
    assert failure.allowance is not None
    assert failure.allowance() == ""


def test_a_failure_says_that_flushing_would_have_to_be_allowed() -> None:
    small = Sample((tensor((1,), (4, 5)) * 2.0**-100, tensor((2,), (5,)) * 2.0**-30))
    failure = violation(check_values, declared_op(_flushed), small)
    assert failure is not None
    assert failure.allowance is not None
    assert failure.allowance() == "accepted   if the declaration allowed flush=True"


def test_a_name_of_no_algorithm_is_refused_when_the_declaration_is_made() -> None:
    native = load_op("layer_norm")
    need = "got 'foldd' (did you mean 'folded'?), need names of folded, shifted, exp2"
    with pytest.raises(ValueError, match=re.escape(need)):
        native.changed(algorithms=frozenset(("foldd",)))
    with pytest.raises(ValueError, match="got 'folded', need names of exp2"):
        declared_op(scaled).changed(algorithms=frozenset((FOLDED,)))
    with pytest.raises(ValueError, match="need a set of names of exp2"):
        declared_op(scaled).changed(algorithms=EXP2)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------ torch on this machine


def test_the_roots_of_torch_are_within_the_contract() -> None:
    """Every 64th float32 number from 1 to 4: exponents repeat what two binades show."""
    x = np.arange(0x3F800000, 0x40800000, 64, dtype=np.uint32).view(np.float32)
    exact = np.sqrt(x.astype(np.float64))
    error = np.abs(torch.from_numpy(x).sqrt().numpy() - exact) / 2.0**-23
    print(f"torch.sqrt: largest error {error.max():.4f} ulp, not nearest {np.mean(error > 0.5):.3%}")
    assert error.max() <= CPU_FUNCTIONS["sqrt"]
