"""What torch's own evaluation of a reference does not keep is not asked of a kernel; every other promise stays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import opassay
from opassay import Code, Offer, Outcome, Settings, Verdict

ROWS = {"x": ("N", "n")}
GROUPS = {"x": ("N", "4*c", "n"), "w": ("4*c",), "b": ("4*c",)}
HEADS = {"q": ("B", "M", "d"), "k": ("B", "N", "d"), "v": ("B", "N", "e")}


def ask(
    kernel: Any, reference: Any, code: str, shapes: Any = ROWS, samples: int = 8, profile: str = "brief", **options: Any
) -> Verdict:  # fmt: skip
    settings = Settings(profile, max_examples=samples, simpler=False)
    offer = Offer(max_order=1)
    (verdict,) = opassay.verify_kernel(
        kernel, reference, shapes, properties=(code,), settings=settings, offer=offer, **options
    )
    return verdict


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def group_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.group_norm(x, 4, w, b)


def by_threads(reference: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """The reference with the last bit of what a thread has first changed by the number of threads."""

    def kernel(x: Tensor) -> Tensor:
        factor = 1 + torch.finfo(x.dtype).eps * (torch.get_num_threads() - 1)
        return reference(x) * factor

    return kernel


@pytest.mark.one_fast_in(2)
@pytest.mark.parametrize(
    ("kernel", "reference", "fails"),
    [
        (torch.sigmoid, torch.sigmoid, False),
        (torch.sum, torch.sum, False),
        (by_threads(torch.neg), torch.neg, True),
        (lambda x: torch.sigmoid(x) * (1 + 1e-3 * (torch.get_num_threads() - 1)), torch.sigmoid, True),
    ],
    ids=["sigmoid", "sum", "bits of what torch keeps", "beyond the bound of what it does not keep"],
)
def test_bits_are_asked_where_torch_keeps_its_own(kernel: Any, reference: Any, fails: bool) -> None:
    verdict = ask(kernel, reference, "DET", samples=4)
    assert (verdict.outcome is Outcome.FAIL) is fails
    if not fails and "does not keep" in verdict.reason:
        assert "torch's own evaluation of the reference does not keep its bits" in verdict.reason


def test_numbers_that_torch_has_wrong_are_named_and_others_are_judged() -> None:
    def largest(x: Tensor) -> Tensor:
        return x.amax(-1)

    right = ask(largest, largest, "SPECIAL")
    assert right.outcome is Outcome.VERIFIED
    assert "with the same bits, which is not judged: d_x[" in right.reason
    for wrong in (lambda x: largest(x.nan_to_num()), lambda x: largest(x) + (x - x.detach())[:, 0]):
        assert ask(wrong, largest, "SPECIAL").outcome is Outcome.FAIL


@pytest.mark.slow
def test_samples_that_the_reference_refuses_are_left_out() -> None:
    sizes = {"c": (1,)}
    right = ask(group_norm, group_norm, "FWD", GROUPS, 24, sizes=sizes)
    assert right.outcome is Outcome.VERIFIED
    assert (
        "at which torch's own evaluation of the reference fails: ValueError: Expected more than 1 value" in right.reason
    )
    wrong = ask(lambda x, w, b: F.group_norm(x, 4, w, b, 1e-3), group_norm, "FWD", GROUPS, 24, sizes=sizes)
    assert wrong.outcome is Outcome.FAIL
    strict = ask(lambda x: x + x, lambda x: x + x if x.shape == (3, 2) else x.view(-1, 0), "FWD", samples=4)
    assert (strict.outcome, strict.code) == (Outcome.ERROR, Code.DECLARATION)


def test_nothing_but_what_the_reference_raises_may_be_raised() -> None:
    verdict = ask(attention, attention, "EMPTY", HEADS)
    assert verdict.outcome in (Outcome.VERIFIED, Outcome.UNSUPPORTED)

    def raising(x: Tensor) -> Tensor:
        return x + x if x.numel() else x.amax(-1)

    assert ask(raising, lambda x: x + x, "EMPTY").outcome is Outcome.FAIL
    assert ask(lambda x: x.amax(-1), lambda x: x.amax(-1), "EMPTY").outcome is not Outcome.FAIL


def test_memory_may_be_shared_as_the_reference_shares_it() -> None:
    assert ask(torch.flatten, torch.flatten, "PURE").outcome is Outcome.VERIFIED
    assert ask(lambda x: x.clone().flatten(), torch.flatten, "PURE").outcome is Outcome.VERIFIED
    assert ask(lambda x: x, lambda x: x * 1, "PURE").outcome is Outcome.FAIL


def test_a_question_with_nothing_to_judge_is_not_asked() -> None:
    def cosine(x: Tensor) -> Tensor:
        return x.cos()

    settings, offer = Settings("brief", max_examples=4, simpler=False), Offer(max_order=0)
    (verdict,) = opassay.verify_kernel(cosine, cosine, ROWS, properties=("DATA",), settings=settings, offer=offer)
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, Code.NOT_APPLICABLE)


def test_convolutions_are_read() -> None:
    def reference(x: Tensor, w: Tensor) -> Tensor:
        return F.conv1d(x, w, padding=1)

    shapes = {"x": ("N", "c", "n"), "w": ("m", "c", 3)}
    assert ask(reference, reference, "FWD", shapes).outcome is Outcome.VERIFIED
    assert ask(lambda x, w: F.conv1d(x, w.flip(-1), padding=1), reference, "FWD", shapes).outcome is Outcome.FAIL


@pytest.mark.slow
@pytest.mark.parametrize("solve", [torch.linalg.inv, torch.linalg.det])
def test_what_is_judged_by_its_residual_is_held_forward_alone(solve: Any) -> None:
    def off(x: Tensor) -> Tensor:
        y: Tensor = solve(x) * (1.001 if len(x) > 2 else 1.0)
        return y

    shapes = {"x": ("n", "n")}
    outcomes = {code: ask(lambda x: solve(x), lambda x: solve(x), code, shapes).outcome for code in ("FWD", "CALLS")}
    assert outcomes["FWD"] in (Outcome.VERIFIED, Outcome.WEAK)  # Nothing is known of matrices that may be singular.
    assert outcomes["CALLS"] is Outcome.VERIFIED
    assert ask(off, lambda x: solve(x), "FWD", shapes).outcome is Outcome.FAIL
    for code in ("VJP", "DATA"):
        assert ask(off, lambda x: solve(x), code, shapes).outcome is Outcome.UNSUPPORTED


def test_a_reference_without_floating_outputs_is_none_of_a_kernel() -> None:
    with pytest.raises(TypeError, match=r"reference: has no floating output.*opassay\.judge"):
        ask(torch.sign, lambda x: x > 0, "FWD")


@pytest.mark.slow
def test_bits_are_excused_where_torch_does_not_keep_its_own_and_is_outside_of_its_bound_as_well() -> None:
    shapes, settings = {"x": ("N", "n"), "w": ("n",), "b": ("n",)}, Settings("brief", simpler=False)

    def reference(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], w, b)

    (verdict,) = opassay.verify_kernel(
        reference, reference, shapes, properties=("DET",), dtypes=("bfloat16",), settings=settings
    )
    assert verdict.outcome is Outcome.VERIFIED


def test_numbers_are_tensors_without_axes() -> None:
    def bounded(x: Tensor) -> Tensor:
        return x.clamp(-1, 1)

    assert ask(bounded, bounded, "VJP", {"x": ()}).outcome is Outcome.VERIFIED


class Unguarded(torch.autograd.Function):
    """A product whose backward reads its operands past autograd's guard against writes."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, y: Tensor) -> Tensor:
        ctx.operands = x.detach(), y.detach()
        return x * y

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, ...]:
        return ctx.operands[1] * cotangents[0], ctx.operands[0] * cotangents[0]


def test_what_is_read_after_a_write_is_excused_only_where_torch_reads_it_too() -> None:
    both = {"input": ("N", "n"), "other": ("M", "m")}
    assert ask(torch.kron, torch.kron, "SAVE", both).outcome is not Outcome.FAIL
    pair = {"x": ("N", "n"), "y": ("N", "n")}
    assert ask(Unguarded, lambda x, y: x * y, "SAVE", pair).outcome is Outcome.FAIL
