"""What an offer says of bits, of orders, and of where outputs are written: asked where promised, and there alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import opassay
from opassay import Code, Offer, Outcome, Settings, Verdict, verify_kernel
from opassay.pytest import questions

Tensor = torch.Tensor
FEW = Settings("brief", max_examples=8, simpler=False)
ROWS: dict[str, Any] = {"x": ("N", "n")}


def total(x: Tensor) -> Tensor:
    return x.sum(-1)


def ask(kernel: Any, *codes: str, reference: Any = total, **options: Any) -> dict[str, Verdict]:
    words: dict[str, Any] = {"shapes": ROWS, "settings": FEW, **options}
    words |= {"properties": codes} if codes else {}
    return {v.cell.property: v for v in verify_kernel(kernel, reference, **words)}


# ------------------------------------------------------------------------------------------------------ determinism


CALLS = itertools.count(1)


def racing(x: Tensor) -> Tensor:
    """A sum in two parts, cut elsewhere in every call, as atomic additions give it, and by a count."""
    cut = 7 * next(CALLS) % max(x.shape[-1], 1)
    return x[..., :cut].sum(-1) + x[..., cut:].sum(-1)


@pytest.mark.slow
def test_equal_bits_are_not_asked_of_a_kernel_that_offers_none() -> None:
    result = ask(racing, offer=Offer(deterministic=False))
    unasked = [result.pop(code) for code in ("DET", "CALLS")]
    assert [(v.outcome, v.code) for v in unasked] == [(Outcome.UNSUPPORTED, Code.NOT_APPLICABLE)] * 2
    assert all("its offer says deterministic=False" in v.reason for v in unasked)
    assert {v.outcome for v in result.values()} == {Outcome.VERIFIED}, str(result)


@pytest.mark.slow
def test_they_are_asked_of_others_and_values_of_both() -> None:
    # Another cut every time: a failure need not come again, so it may be unstable.
    assert {v.outcome for v in ask(racing, "DET", "CALLS", "WAYS").values()} <= {Outcome.FAIL, Outcome.UNSTABLE}
    wrong = ask(lambda x: racing(x) * 1.001, "FWD", "WAYS", offer=Offer(deterministic=False))
    assert wrong["FWD"].outcome is Outcome.FAIL


# ------------------------------------------------------------------------------------------------- rows of a batch


def one_by_one(x: Tensor) -> Tensor:
    return torch.stack([row.sum() for row in x]) if len(x) else x.sum(-1)


def split_from(rows: int) -> Callable[[Tensor], Tensor]:
    def kernel(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        return one_by_one(x) if len(x) < rows or half < 32 else one_by_one(x[:, :half]) + one_by_one(x[:, half:])

    return kernel


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("rows", [2, 4, 32, 256])
def test_a_promise_of_bits_in_any_batch_is_asked_for(rows: int) -> None:
    options: dict[str, Any] = {"offer": Offer(invariant="N"), "settings": Settings("brief", simpler=False)}
    assert ask(split_from(rows), "INV", **options)["INV"].outcome is Outcome.FAIL


@pytest.mark.parametrize("words", [["rows", "neighbours"], "rows=N", "position", True])
def test_axes_are_words_of_a_promise(words: Any) -> None:
    def slices(offer: Any) -> Any:
        promised = opassay.custom_kernel(one_by_one, total, {"x": ("N", "n")}, offer=Offer(invariant=offer)).promises
        assert promised.invariant is not None
        return promised.invariant((), "")

    assert slices(words) == slices("N")
    with pytest.raises(ValueError, match=r"invariant: got 'chunks'.*or of rows, position, "):
        slices(["rows", "chunks"])


def length_of_others(x: Tensor, length: Tensor, width: int) -> Tensor:
    """Sums up to a length, each cut into parts of a width."""
    keep = torch.arange(x.shape[1])[None] < length[:, None]
    parts = torch.where(keep, x, 0.0).split(width, 1)
    sums = [sum(part.unbind(1), torch.zeros(len(x), dtype=x.dtype)) for part in parts]
    return sum(sums, torch.zeros(len(x), dtype=x.dtype))


@pytest.mark.parametrize(("widths", "outcome"), [((2, 16), Outcome.FAIL), ((8, 8), Outcome.VERIFIED)])
def test_bits_that_follow_the_longest_row_are_found_without_settings(widths: tuple[int, int], outcome: Outcome) -> None:
    def kernel(x: Tensor, length: Tensor) -> Tensor:
        return length_of_others(x, length, widths[0] if len(length) and int(length.max()) >= 10 else widths[1])

    def reference(x: Tensor, length: Tensor) -> Tensor:
        return torch.where(torch.arange(x.shape[1])[None] < length[:, None], x, 0.0).sum(-1)

    shapes: dict[str, Any] = {"x": ("N", "n"), "length": opassay.Integers("n", ("N",))}
    offer = Offer(invariant="N", max_order=0)
    (verdict,) = opassay.verify_kernel(kernel, reference, shapes, offer=offer, properties=("INV",))
    assert verdict.outcome is outcome, str(verdict)


@pytest.mark.slow
def test_it_is_asked_where_it_is_promised_and_there_alone() -> None:
    result = ask(one_by_one, offer=Offer(invariant=True))
    assert set(result) == {*opassay.KERNEL_PROPERTIES, "INV"}
    assert result["INV"].outcome is Outcome.VERIFIED, str(result["INV"])
    assert "INV" not in ask(split_from(4))
    (unasked,) = ask(split_from(4), "INV").values()
    assert (unasked.outcome, unasked.reason) == (Outcome.UNSUPPORTED, "kernel promises nothing of slices")
    op = opassay.custom_kernel(one_by_one, total, ROWS, offer=Offer(invariant="N"))
    assert [question.id for question in questions(op)][-1] == "INV-float32"


def test_an_op_of_the_catalog_has_its_own_slices() -> None:
    def kernel(*args: Any) -> Any:
        return torch.nn.functional.layer_norm(*args)

    for invariant, promised in ((True, True), (None, False)):
        op = opassay.kernel_of_op(kernel, "layer_norm", offer=Offer(invariant=invariant))
        assert (op.promises.invariant is not None) is promised


@pytest.mark.parametrize(
    ("symbol", "shapes", "sizes"),
    [("M", ROWS, None), ("n", ROWS, None), ("N", ROWS, {"N": (64,)}), ("N", {"x": ("2*N", "n")}, None)],
)
def test_what_is_no_axis_of_slices_is_refused(symbol: str, shapes: Any, sizes: Any) -> None:
    with pytest.raises(ValueError, match=f"invariant: got '{symbol}'.*, need one of "):
        opassay.custom_kernel(one_by_one, total, shapes, sizes=sizes, offer=Offer(invariant=symbol))


def test_a_custom_function_has_no_rows_to_promise() -> None:
    with pytest.raises(ValueError, match="invariant: got 'N' in offer, which is for a kernel"):
        opassay.custom_function(torch.autograd.Function, [(1,)], offer=Offer(invariant="N"))


# ----------------------------------------------------------------------------------------------------- destinations


def into(x: Tensor, out: Tensor) -> None:
    out.copy_(x.sum(-1))


def into_by_name(x: Tensor, *, scale: float, out: Tensor) -> Tensor:
    return out.copy_(scale * x.sum(-1))


def added(x: Tensor, out: Tensor) -> Tensor:
    return out.add_(x.sum(-1))


def raw(x: Tensor, out: Tensor) -> None:
    with torch.no_grad():
        into(x, out)


@pytest.mark.slow
def test_a_kernel_may_write_into_destinations() -> None:
    assert opassay.ok(list(ask(into).values()))
    scaled = ask(into_by_name, "FWD", "VJP", reference=lambda x, scale: scale * x.sum(-1), constants={"scale": 3.0})
    assert opassay.ok(list(scaled.values()))
    assert ask(added, "FWD")["FWD"].outcome is Outcome.FAIL
    assert ask(raw, "FWD", "VJP")["VJP"].outcome is Outcome.FAIL
    assert opassay.ok(list(ask(raw, offer=Offer(max_order=0)).values()))


# ----------------------------------------------------------------------------------------------------------- orders


class Cube(torch.autograd.Function):
    """x^3 with a backward that cannot be differentiated."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, g: Tensor) -> Tensor:
        x: Tensor = ctx.saved_tensors[0]
        return 3 * g * x * x


def test_no_second_order_is_asked_of_a_kernel_that_offers_the_first() -> None:
    codes = ("VJP", "ORD2", "ORD3", "ADJ", "NEST", "WORD", "DUAL", "NEEDS", "WAYS", "SAVE", "AGREE")
    result = ask(Cube.apply, *codes, reference=lambda x: x**3, offer=Offer(max_order=1), dtypes="float64")
    assert {v.outcome for v in result.values()} <= {Outcome.VERIFIED, Outcome.UNSUPPORTED, Outcome.WEAK}, str(result)
    assert result["VJP"].outcome is Outcome.VERIFIED
    assert [result[code].outcome for code in ("ORD2", "ORD3")] == [Outcome.UNSUPPORTED] * 2
    assert ask(Cube.apply, "ORD2", reference=lambda x: x**3)["ORD2"].outcome is Outcome.FAIL


@pytest.mark.slow
def test_a_kernel_that_tires_is_seen_by_the_default_questions() -> None:
    calls = 0

    def tiring(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x.sum(-1) * (1 if calls < 100 else 1.01)

    assert Outcome.FAIL in {v.outcome for v in ask(tiring).values()}
