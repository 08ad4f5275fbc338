"""PURE, DUAL and MEM find what a call changes, shares or keeps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from opassay.oracles.judgement import Unsupported, Violation
from opassay.oracles.op import Promises
from opassay.oracles.purity import dual, memory, pure, same_bits

from .planted_ops import (
    ALL,
    Check,
    Subject,
    custom,
    declared,
    judged,
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
    found = violation(pure, declared(subject), sample(1))
    assert found is not None
    assert found.code.name == code, found.message


def test_pure_finds_a_changed_grad_mode() -> None:
    found = violation(pure, declared(_after(lambda x, w: torch.set_grad_enabled(False))), sample(1))
    assert found is not None


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
    found = violation(dual, declared(NOT_DUAL[name]), sample(2))
    assert found is not None
    assert found.code.name == "BITS", found.message


def _keeps_a_product_more(x: Tensor, w: Tensor) -> Tensor:
    return (x * w) * torch.ones_like(x, requires_grad=True)


@pytest.mark.parametrize("subject", [_keeps_a_product_more, custom()])
def test_memory_finds_what_is_kept_beyond_the_budget(subject: Subject) -> None:
    found = violation(memory, declared(subject), sample(3))
    assert found is not None
    assert found.code.name == "MEMORY"
    assert "declared" in found.title


def test_memory_without_a_budget_is_unsupported() -> None:
    without = Promises(declared(scaled).promises.dtypes)
    with pytest.raises(Unsupported, match="declares no budget"):
        judged(memory, declared(scaled, promises=without), sample(3))


@pytest.mark.parametrize("check", [pure, dual, memory])
@pytest.mark.parametrize("dtype", ALL)
def test_the_right_op_passes(check: Check, dtype: str) -> None:
    assert judged(check, declared(scaled), sample(4, dtype), dtype).judged > 0


def test_the_budget_is_met_exactly() -> None:
    assert judged(memory, declared(scaled), sample(4)).max_ratio == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
def test_bits_tell_zeros_and_payloads_apart(dtype: torch.dtype) -> None:
    one = torch.tensor([0.0, float("nan")], dtype=dtype)
    assert same_bits(one, one.clone())
    assert not same_bits(one, torch.tensor([-0.0, float("nan")], dtype=dtype))
    assert not same_bits(one, one.reshape(1, 2))
    assert not same_bits(one, -one)


def test_a_violation_names_the_first_element_that_differs() -> None:
    with pytest.raises(Violation) as caught:
        judged(dual, declared(NOT_DUAL["differs when its input requires grad"]), sample(2))
    assert "20 of 20 elements differ, first at [0, 0]" in caught.value.message
