"""VMAP finds batching rules that mix slices up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from opassay.impl.function import Function
from opassay.properties.checks.transforms.nesting import check_nesting
from opassay.properties.checks.transforms.vmap import check_vmap
from tests.oracles.planted_ops import (
    ALL,
    Subject,
    accumulated,
    accumulating,
    accumulating_sample,
    custom,
    declared,
    judge,
    right_jvp,
    sample,
    scaled,
    upward,
    violation,
)


def _front(t: Tensor, dim: int | None, size: int, rank: int) -> Tensor:
    """The batch at axis 0, then `rank` axes."""
    moved = t.expand(size, *t.shape) if dim is None else t.movedim(dim, 0)
    return moved.reshape(size, *(1,) * (rank - moved.ndim + 1), *moved.shape[1:])


def _right(info: Any, in_dims: tuple[int | None, ...], x: Tensor, w: Tensor) -> tuple[Tensor, int]:
    """A right batching rule."""
    rank = x.ndim - (in_dims[0] is not None)
    front = [_front(t, d, info.batch_size, rank) for t, d in zip((x, w), in_dims, strict=True)]
    return front[0] * front[1], 0


def _rule(change: Any) -> Subject:
    """A right batching rule, and `change(y)` of its result, the batch at axis 0."""
    return custom(vmap=lambda *args: (change(_right(*args)[0]), 0))


def _wrong_axis(info: Any, in_dims: tuple[int | None, ...], x: Tensor, w: Tensor) -> tuple[Tensor, int]:
    # Right for in_dims of None and 0 alone.
    return _right(info, tuple(None if d is None else 0 for d in in_dims), x, w)


def _swapped(y: Tensor) -> Tensor:
    return y[[1, 0, *range(2, y.shape[0])]]


def _last_off_by_an_ulp(y: Tensor) -> Tensor:
    y = y.clone()
    y[-1] = upward(upward(y[-1]))
    return y


def _ignores_a_shared_weight(info: Any, in_dims: tuple[int | None, ...], x: Tensor, w: Tensor) -> tuple[Tensor, int]:
    return (x.movedim(in_dims[0] or 0, 0), 0) if in_dims[1] is None else _right(info, in_dims, x, w)


FAULTS: dict[str, tuple[Subject, set[str]]] = {
    "two slices swapped": (_rule(_swapped), {"VALUE"}),
    "only the first slice used": (_rule(lambda y: y[:1].expand_as(y)), {"VALUE"}),
    "one slice two ulps off": (_rule(_last_off_by_an_ulp), {"VALUE"}),
    "slices in reverse": (_rule(lambda y: y.flip(0)), {"VALUE"}),
    "another dtype under vmap": (_rule(lambda y: y.double()), {"ATTRIBUTE"}),
    "ignores a shared weight": (custom(vmap=_ignores_a_shared_weight), {"VALUE"}),
    "the batch axis taken for another": (custom(vmap=_wrong_axis), {"VALUE", "RAISED", "ATTRIBUTE"}),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found(name: str) -> None:
    subject, codes = FAULTS[name]
    result = violation(check_vmap, declared(subject), sample(1, slices=2))
    assert result is not None
    assert result.code.name in codes, result.message
    assert "in_dims" in result.path


def test_a_slice_too_few_is_found() -> None:
    result = violation(check_vmap, declared(_rule(lambda y: y[:-1])), sample(1, slices=2))
    assert result is not None
    assert result.code.name == "ATTRIBUTE"


@pytest.mark.parametrize("dtype", ALL)
@pytest.mark.parametrize("lead", [(), (3,), (2, 4)])
def test_the_right_op_passes(dtype: str, lead: tuple[int, ...]) -> None:
    case = sample(1, dtype, lead, slices=2)
    assert judge(check_vmap, declared(scaled), case, dtype).judged > 0


def test_a_right_batching_rule_passes() -> None:
    assert violation(check_vmap, declared(_rule(lambda y: y)), sample(1, slices=2)) is None


@pytest.mark.parametrize("name", ["two slices swapped", "only the first slice used"])
def test_nest_finds_mixed_slices(name: str) -> None:
    assert violation(check_nesting, declared(FAULTS[name][0]), sample(1, lead=(2,), n=3, slices=4)) is not None


def test_nest_passes_the_right_op() -> None:
    assert judge(check_nesting, declared(scaled), sample(1, lead=(2,), n=3, slices=4)).judged > 0


@pytest.mark.parametrize(
    "fault", [lambda g, x, w: (g * w, g.sum(0)), lambda g, x, w: (w * g.roll(1, -1), (g * x).sum(0))]
)
def test_nest_finds_a_wrong_jacobian(fault: Any) -> None:
    result = violation(check_nesting, declared(custom(backward=fault)), sample(1, lead=(2,), n=3, slices=4))
    assert result is not None


def _batched(t: Tensor) -> bool:
    return torch._C._functorch.is_batchedtensor(t)


def _wrapped(t: Tensor) -> bool:
    return torch._C._functorch.is_functorch_wrapped_tensor(t)


def test_nest_finds_a_batch_axis_that_is_taken_for_another() -> None:
    op = declared(custom(vmap=_wrong_axis, base=Function))
    results = [violation(check_nesting, op, sample(seed, lead=(2,), n=3, slices=4)) for seed in range(4)]
    assert {each.path for each in results if each is not None} <= {"vmap∘vjp (func)", "vmap∘jvp (func)"}
    assert any(each is not None for each in results)


def test_nest_finds_what_is_wrong_where_tangents_alone_are_batched() -> None:
    def doubled(x: Tensor, w: Tensor, t_x: Tensor, t_w: Tensor) -> Tensor:
        return right_jvp(x, w, t_x, t_w) * (2 if _batched(t_x) and not _wrapped(x) else 1)

    result = violation(check_nesting, declared(custom(jvp=doubled, base=Function)), sample(1, lead=(2,), n=3, slices=4))
    assert result is not None
    assert result.path == "vmap∘jvp (func)"


def test_nest_finds_a_jacobian_that_is_wrong_in_the_second_input_alone() -> None:
    def doubled(x: Tensor, w: Tensor, t_x: Tensor, t_w: Tensor) -> Tensor:
        factor = 1.0 if _wrapped(x) else torch.where((t_x == 0).all(), 2.0, 1.0).to(x.dtype)
        return right_jvp(x, w, t_x, t_w) * factor

    # A sample takes the jacobian in one of the inputs.
    op = declared(custom(jvp=doubled, base=Function))
    results = [violation(check_nesting, op, sample(seed, lead=(2,), n=3, slices=4)) for seed in range(8)]
    assert {each.path for each in results if each is not None} == {"jacfwd"}
    assert None in results


def _of_the_first_slice(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    if _batched(x) and not _batched(total):
        x0 = torch._C._functorch.get_unwrapped(x).movedim(torch._C._functorch.maybe_get_bdim(x), 0)[0]
        total.add_(x0.sum())
    else:
        total.add_(x.sum())
    return scaled(x, w)


def _refuses_any_batch(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    if _batched(w) and not _batched(total):
        raise RuntimeError("the total is not batched")
    return accumulated(x, w, total)


def _refuses_in_torch_s_words(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    total.add_(x.sum())
    return scaled(x, w)


WRITING: dict[str, tuple[Subject, str, str]] = {
    "does not refuse": (_of_the_first_slice, "NOT_RAISED", "slices write different values to total"),
    "refuses without need": (_refuses_any_batch, "RAISED", "raised RuntimeError on valid input"),
    "does not name the argument": (_refuses_in_torch_s_words, "NOT_RAISED", "does not mention 'total'"),
}


@pytest.mark.parametrize("name", WRITING)
def test_a_write_to_what_slices_share_is_judged(name: str) -> None:
    subject, code, text = WRITING[name]
    # A sample tries some of the in_dims.
    results = [violation(check_vmap, accumulating(subject), accumulating_sample(seed, slices=2)) for seed in range(6)]
    assert {v.code.name for v in results if v is not None} == {code}
    assert all(text in v.title for v in results if v is not None)


def test_a_right_refusal_passes() -> None:
    assert judge(check_vmap, accumulating(accumulated), accumulating_sample(1, slices=2)).judged > 0


def test_equal_data_in_all_slices_may_be_refused_or_not() -> None:
    sample = accumulating_sample(1, slices=2)
    same = type(sample)(sample.args, sample.seed, slices=(sample.args,) * 2)
    for subject in (accumulated, _of_the_first_slice):
        assert violation(check_vmap, accumulating(subject), same) is None


def test_a_write_that_depends_on_no_batch_must_not_be_refused() -> None:
    def counts(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
        total.add_(1)
        return scaled(x, w)

    op = accumulating(counts)
    counting = type(op)(**{**vars(op), "reference": lambda x, w, total: (x * w, total + np.ones(1))})
    assert violation(check_vmap, counting, accumulating_sample(1, slices=2)) is None
