"""PURE, DUAL and MEM find what a call changes, shares or keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from opassay.oracles.op.bits import same_bits
from opassay.oracles.op.documented import Documented
from opassay.oracles.verdicts.violation import Unsupported, Violation
from opassay.properties.checks.purity import check_memory, check_primal, check_primal_with_tangents, check_purity
from tests.oracles.planted_ops import (
    ALL,
    Check,
    Subject,
    accumulated,
    accumulating,
    accumulating_sample,
    custom,
    declared,
    judge,
    right_backward,
    sample,
    scaled,
    upward,
    violation,
)


@pytest.fixture(autouse=True)
def _modes_are_restored() -> Iterator[None]:
    threads = torch.get_num_threads()
    with torch.random.fork_rng(devices=[]):
        yield
    torch.set_grad_enabled(True)
    torch.set_default_dtype(torch.float32)
    torch.set_num_threads(threads)


def _after(effect: Any) -> Subject:
    """The right op after `effect(x, w)`."""

    def op(x: Tensor, w: Tensor) -> Tensor:
        effect(x.detach(), w.detach())
        return x * w

    return op


def _writes_to_the_cotangent(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
    grads = right_backward(g, x, w)
    g.mul_(2)
    return grads


_library = torch.library.Library("opassay_planted", "FRAGMENT")
_library.define("double_in_place(Tensor x) -> ()")  # the schema ought to say Tensor(a!)
_library.impl("double_in_place", lambda x: x.mul_(2) and None, "CPU")


def _by_an_untrue_schema(x: Tensor, w: Tensor) -> Tensor:
    doubled = x.detach().clone()
    torch.ops.opassay_planted.double_in_place(doubled)
    return x * w


IMPURE: dict[str, tuple[Subject, str]] = {
    "writes into its input": (_after(lambda x, w: x.fill_(0.5)), "MUTATED"),
    "writes into its weight, past the version counter": (_after(lambda x, w: w.data.fill_(0.5)), "MUTATED"),
    "bumps a version counter, bits unchanged": (_after(lambda x, w: x.mul_(1)), "MUTATED"),
    "writes to the cotangent": (custom(backward=_writes_to_the_cotangent), "MUTATED"),
    "draws a random number": (_after(lambda x, w: torch.rand(1)), "MUTATED"),
    "changes the default dtype": (_after(lambda x, w: torch.set_default_dtype(torch.float64)), "MUTATED"),
    "changes the number of threads": (_after(lambda x, w: torch.set_num_threads(3)), "MUTATED"),
    "returns its input": (lambda x, w: x, "ALIASED"),
    "returns a view of its weight": (lambda x, w: w[1:], "ALIASED"),
    "returns one tensor twice": (lambda x, w: (lambda y: (y, y.view(-1)))(x * w), "ALIASED"),
    "a schema that hides a write": (_by_an_untrue_schema, "RAISED"),
}


@pytest.mark.parametrize("name", IMPURE)
def test_pure_finds_a_planted_fault(name: str) -> None:
    subject, code = IMPURE[name]
    result = violation(check_purity, declared(subject), sample(1))
    assert result is not None
    assert result.code.name == code, result.message


ALIASING: dict[str, tuple[Subject, bool]] = {
    "a view of the declared argument": (lambda x, w: (x.view_as(x), x * w), True),
    "a copy of it": (lambda x, w: (x.clone(), x * w), False),
    "the argument itself": (lambda x, w: (x, x * w), False),
    "a view of another": (lambda x, w: (w.view_as(w), x * w), False),
    "one view more than declared": (lambda x, w: (x.view_as(x), x[:1]), False),
}


@pytest.mark.parametrize("name", ALIASING)
def test_declared_aliases_are_judged_both_ways(name: str) -> None:
    subject, right = ALIASING[name]
    result = violation(check_purity, declared(subject).changed(aliases=lambda args: (0, None)), sample(1))
    assert (result is None) is right, result
    assert right or (result is not None and result.code.name == "ALIASED")


def test_pure_finds_a_changed_grad_mode() -> None:
    result = violation(check_purity, declared(_after(lambda x, w: torch.set_grad_enabled(False))), sample(1))
    assert result is not None


def _accumulates_past_the_version_counter(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    total.data.add_(x.detach().sum())
    return x * w


def _writes_a_second_argument(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    w.detach().mul_(2)
    return accumulated(x, w, total)


def _returns_what_it_writes(x: Tensor, w: Tensor, total: Tensor) -> Tensor:
    total.add_(x.detach().sum())
    return total.view(-1)


WRITING: dict[str, tuple[Subject, str, str]] = {
    "hides its write from autograd": (_accumulates_past_the_version_counter, "MUTATED", "wrote to total without"),
    "writes another argument": (_writes_a_second_argument, "MUTATED", "wrote to its argument w"),
    "returns what it writes": (_returns_what_it_writes, "ALIASED", "shares memory with another output"),
}


@pytest.mark.parametrize("name", WRITING)
def test_pure_judges_what_an_op_writes(name: str) -> None:
    subject, code, text = WRITING[name]
    result = violation(check_purity, accumulating(subject), accumulating_sample(1))
    assert result is not None
    assert result.code.name == code, result.message
    assert text in result.title


def test_a_declared_write_passes() -> None:
    assert judge(check_purity, accumulating(accumulated), accumulating_sample(1)).judged > 0


def _off_by_an_ulp_if(condition: Any) -> Subject:
    return lambda x, w: upward((x * w).detach()) + (x * w) * 0 if condition(x) else x * w


def _has_tangent(x: Tensor) -> bool:
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None


def _in_float64_if_required(x: Tensor, w: Tensor) -> Tensor:
    return x.double() * w.double() if x.requires_grad else x * w


NOT_DUAL: dict[str, Subject] = {
    "differs when its input requires grad": _off_by_an_ulp_if(lambda x: x.requires_grad),
    "differs when its input has a tangent": _off_by_an_ulp_if(_has_tangent),
    "differs under a transform": _off_by_an_ulp_if(torch._C._functorch.is_functorch_wrapped_tensor),
    "another dtype when its input requires grad": _in_float64_if_required,
}


@pytest.mark.parametrize("name", NOT_DUAL)
def test_dual_finds_a_planted_fault(name: str) -> None:
    result = violation(check_primal, declared(NOT_DUAL[name]), sample(2))
    assert result is not None
    assert result.code.name == "BITS", result.message


def test_another_container_where_the_input_requires_grad_is_found() -> None:
    result = violation(check_primal, declared(lambda x, w: [x * w] if x.requires_grad else (x * w,)), sample(2))
    assert result is not None
    assert result.title.endswith("returns a list where its inputs require grad, and a tuple where they do not")


def test_a_primal_that_has_the_bits_of_the_plain_call_is_not_blamed_for_its_value() -> None:
    def coarse(x: Tensor, w: Tensor) -> Tensor:
        return (x * w) * 1.01

    def other_with_tangent(x: Tensor, w: Tensor) -> Tensor:
        return (x * w) * (1.02 if _has_tangent(x) else 1.01)

    no_bits = {"opassay": Documented(bits=False)}
    assert violation(check_primal_with_tangents, declared(coarse, documented=no_bits), sample(2)) is None
    result = violation(check_primal_with_tangents, declared(other_with_tangent, documented=no_bits), sample(2))
    assert result is not None
    assert result.code.name == "VALUE", result.message


def _keeps_a_product_more(x: Tensor, w: Tensor) -> Tensor:
    return (x * w) * torch.ones_like(x, requires_grad=True)


@pytest.mark.parametrize("subject", [_keeps_a_product_more, custom()])
def test_memory_finds_what_is_kept_beyond_the_budget(subject: Subject) -> None:
    result = violation(check_memory, declared(subject), sample(3))
    assert result is not None
    assert result.code.name == "MEMORY"
    assert "declared" in result.title


def test_memory_without_a_budget_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="declares no budget"):
        judge(check_memory, declared(scaled).changed(saved=None), sample(3))


@pytest.mark.parametrize("check", [check_purity, check_primal, check_memory])
@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(check: Check, dtype: str) -> None:
    assert judge(check, declared(scaled), sample(4, dtype), dtype).judged > 0


def test_the_budget_is_met_exactly() -> None:
    assert judge(check_memory, declared(scaled), sample(4)).measure().max_ratio == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_bits_tell_zeros_and_payloads_apart(dtype: torch.dtype) -> None:
    one = torch.tensor([0.0, float("nan")], dtype=dtype)
    assert same_bits(one, one.clone())
    assert not same_bits(one, torch.tensor([-0.0, float("nan")], dtype=dtype))
    assert not same_bits(one, one.reshape(1, 2))
    assert not same_bits(one, -one)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.int64])
def test_bits_of_tensors_of_indices(dtype: torch.dtype) -> None:
    one = torch.tensor([0, 1], dtype=dtype)
    assert same_bits(one, one.clone())
    assert not same_bits(one, one.flip(0))


def test_a_violation_names_the_first_element_that_differs() -> None:
    with pytest.raises(Violation) as error:
        judge(check_primal, declared(NOT_DUAL["differs when its input requires grad"]), sample(2))
    assert "20 of 20 elements differ, first at [0, 0]" in error.value.message
