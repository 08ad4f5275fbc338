"""Where arguments lie in memory: shared, far apart, written, marked as negative; and what of them nobody reads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opassay
from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.layouts import is_far, place, place_all, placing_of
from opassay.properties.candidates.results import overlaps

GENERATOR = torch.Generator().manual_seed(11)
#: Elements between two rows: the third one begins where a number of 32 bits ends.
FAR = 2**30


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=GENERATOR)


def _causes(candidate: Any, spec: Any, inputs: Sequence[Any], *questions: str) -> list[str]:
    judgement = judge(candidate, spec, inputs, questions=["FWD:given", *questions])
    assert not judgement.error, judgement.error
    return [each.question for each in judgement.causes]


def _layout_line(judgement: Judgement) -> str:
    (line,) = (line for line in str(judgement).splitlines() if line.strip().startswith("layout"))
    return line.split(maxsplit=1)[1]


# ------------------------------------------------------------------------------------------------ written in place


def add_norm(x: Tensor, residual: Tensor) -> Tensor:
    residual.add_(x)
    return residual * torch.rsqrt(residual.square().mean(-1, keepdim=True) + 1e-6)


def _rows(x: Tensor, residual: Tensor, strided: bool = True) -> Tensor:
    """What a program for each row does, with its own stride or with that of dense rows."""
    out = torch.empty_like(x, memory_format=torch.contiguous_format)
    step = residual.stride(0) if strided else residual.shape[1]
    for i in range(len(x)):
        row = residual.as_strided(residual.shape[1:], residual.stride()[1:], residual.storage_offset() + i * step)
        row.copy_(row + x[i])
        out[i] = row * torch.rsqrt(row.square().mean() + 1e-6)
    return out


def test_rows_are_written_in_place_in_every_layout_that_a_caller_can_want() -> None:
    inputs = _normal(4, 8), _normal(4, 8)
    assert (
        _causes(
            _rows, add_norm, inputs, "LAYOUT:strides", "CALLS:same", "CALLS:reborn", "CALLS:again", "PURE:untouched"
        )
        == []
    )
    expanded = inputs[0], inputs[1][:1].expand(4, 8)
    assert _causes(_rows, add_norm, expanded) == []  # the rows of what is written are several ones for the spec, too
    judgement = judge(lambda x, r: _rows(x, r, False), add_norm, inputs, questions=["FWD:given", "LAYOUT:strides"])
    assert [each.question for each in judgement.causes] == ["LAYOUT:strides"]


def test_properties_of_a_kernel_that_writes_in_place_are_verified() -> None:
    def wrong(x: Tensor, residual: Tensor) -> Tensor:
        return _rows(x, residual, False)

    shapes, codes = {"x": ("n", 8), "residual": ("n", 8)}, ("FWD", "LAYOUT", "PURE")
    few = opassay.Settings("brief", max_examples=8, simpler=False)
    for kernel, outcomes in ((_rows, ["verified"] * 3), (wrong, ["verified", "fail", "verified"])):
        verdicts = opassay.verify_kernel(kernel, add_norm, shapes, properties=codes, settings=few)
        assert [str(verdict.outcome) for verdict in verdicts] == outcomes


# --------------------------------------------------------------------------------------------------- shared memory


def product(a: Tensor, b: Tensor) -> Tensor:
    return a * b + a + b


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, half: bool) -> Tensor:
        ctx.save_for_backward(a, b)
        ctx.half = half and a.data_ptr() == b.data_ptr()
        return product(a, b)

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor | None, ...]:
        a, b = ctx.saved_tensors
        d_a, d_b = (cotangents[0] * (other + 1) for other in (b, a))
        return d_a, torch.zeros_like(d_b) if ctx.half else d_b, None


def half_the_gradient(a: Tensor, b: Tensor) -> Tensor:
    return _Product.apply(a, b, True)  # type: ignore[no-any-return, no-untyped-call]


def whole_gradient(a: Tensor, b: Tensor) -> Tensor:
    return _Product.apply(a, b, False)  # type: ignore[no-any-return, no-untyped-call]


def apart_alone(a: Tensor, b: Tensor) -> Tensor:
    return product(a, b) if a.data_ptr() != b.data_ptr() else product(a, b) - b


X, Y = _normal(4, 8), _normal(4, 8)


@pytest.mark.fast_cases("one tensor")
@pytest.mark.parametrize("inputs", [(X, Y), (X, X)], ids=["two tensors", "one tensor"])
def test_one_tensor_stands_for_two(inputs: tuple[Tensor, Tensor]) -> None:
    assert _causes(whole_gradient, product, inputs, "LAYOUT:strides", "VJP:grad", "PURE:fresh", "CALLS:same") == []
    assert _causes(half_the_gradient, product, inputs, "LAYOUT:strides", "VJP:grad") == ["VJP:grad"]
    of_values = _causes(apart_alone, product, inputs, "LAYOUT:strides")
    assert of_values[0] == ("FWD:given" if inputs[0] is inputs[1] else "LAYOUT:strides")


def test_a_refusal_of_one_tensor_for_two_is_told() -> None:
    def kernel(a: Tensor, b: Tensor) -> Tensor:
        if a.data_ptr() == b.data_ptr():
            raise ValueError("a and b share memory")
        return product(a, b)

    judgement = judge(kernel, product, (X, Y), questions=["FWD:given", "LAYOUT:strides"])
    assert judgement.verdict is Ruling.ACCEPTED
    assert "the candidate refuses one tensor as a and b" in str(judgement)


def test_views_of_one_memory_come_as_views_of_one_memory() -> None:
    def kernel(a: Tensor, b: Tensor) -> Tensor:
        apart = (b.data_ptr() - a.data_ptr()) // a.element_size()
        return a + b if apart != 2 else a - b

    inputs = X.reshape(-1)[:-2], X.reshape(-1)[2:]
    assert _causes(kernel, torch.add, inputs) == ["FWD:given"]
    assert (
        _causes(
            torch.add, torch.add, inputs, "CALLS:same", "CALLS:reborn", "CALLS:again", "PURE:fresh", "PURE:untouched"
        )
        == []
    )
    q, k = X.unbind(0)[:2]
    assert (
        _causes(lambda q, k: (k.view(-1), q.view(-1)), lambda q, k: (k.view(-1), q.view(-1)), (q, k), "PURE:fresh")
        == []
    )


def test_memory_is_not_shared_with_what_is_written() -> None:
    base = _normal(5)
    tensors = [base[:4], base[1:]]
    assert overlaps(place_all(tensors, placing_of(tensors, None, tuple))) == [(1, 0)]
    assert not placing_of(tensors, None, lambda: (0,)).memories


# ------------------------------------------------------------------------------------------------------ destinations


def doubled(x: Tensor) -> Tensor:
    return x * 2


@pytest.mark.parametrize("refuses", [False, True])
def test_destinations_are_rows_of_wider_tensors_and_transposed(refuses: bool) -> None:
    def dense(x: Tensor, out: Tensor) -> None:
        if refuses and not out.is_contiguous():
            raise ValueError("out: need a contiguous tensor")
        out.as_strided((out.numel(),), (1,), out.storage_offset()).copy_(doubled(x).reshape(-1))

    def right(x: Tensor, out: Tensor) -> None:
        out.copy_(doubled(x))

    judgement = judge(dense, doubled, (X,), questions=["FWD:given", "LAYOUT:strides"])
    if refuses:
        assert judgement.verdict is Ruling.ACCEPTED
        assert "the candidate refuses destinations that are rows cut out of a wider tensor" in str(judgement)
    else:
        assert _layout_line(judgement) == "destinations that are rows cut out of a wider tensor"
    assert _causes(right, doubled, (X,), "LAYOUT:strides") == []


# --------------------------------------------------------------------------------------------------------- far apart


def _rows_at(x: Tensor, bits: torch.dtype) -> Tensor:
    starts = torch.arange(len(x), dtype=bits) * torch.tensor(x.stride(0)).to(bits)
    rows = [x.as_strided(x.shape[1:], x.stride()[1:], x.storage_offset() + max(int(n), 0)) for n in starts]
    return torch.stack(rows) * 2


def test_a_view_that_is_far_apart_costs_what_it_holds() -> None:
    x = place(_normal(3, 8).half(), (FAR, 1))
    assert is_far(x)
    again = place(x, x.stride())
    assert torch.equal(again, x)
    assert again.stride() == (FAR, 1)
    start = again.storage_offset()
    assert again.as_strided((2,), (FAR,), start + 8).isnan().all()  # behind a row
    assert again.as_strided((2,), (FAR,), start + FAR - 1).isnan().all()  # before the next one
    questions = "FWD:given", "CALLS:same", "CALLS:again", "LAYOUT:strides", "LAYOUT:align", "POISON", "VJP:grad"
    assert _causes(lambda x: _rows_at(x, torch.int64), doubled, (x,), *questions) == []
    assert _causes(lambda x: _rows_at(x, torch.int32), doubled, (x,))[0] == "FWD:given"


def test_rows_are_asked_far_apart_where_a_dense_tensor_is_given() -> None:
    assert _causes(lambda x: _rows_at(x, torch.int64), doubled, (X,), "LAYOUT:strides") == []
    judgement = judge(lambda x: _rows_at(x, torch.int32), doubled, (X,), questions=["LAYOUT:strides"])
    assert judgement.verdict is Ruling.REJECTED
    assert _layout_line(judgement) == "2^31 elements from the first row to the last"


# ------------------------------------------------------------------------------------------------------------- marks

Z = torch.complex(X, Y)


class _Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        return torch._neg_view(cotangents[0] * ctx.saved_tensors[0] * -2)


@pytest.mark.one_fast_in(9)
@pytest.mark.parametrize(
    ("candidate", "spec", "argument"),
    [
        (lambda x: torch._neg_view(x * -2), doubled, X),
        (lambda z: (z + z).conj().imag, lambda z: (z * 2).conj().imag, Z),
        (lambda z: (z + z).conj(), lambda z: torch.conj_physical(z * 2), Z),
        (lambda x: x + x, doubled, torch._neg_view(X)),
        (lambda x: x + x, doubled, Z.conj().imag),
        (lambda z: z.imag * 2, lambda z: z.imag * 2, Z.conj()),
        (lambda x: -x - x, lambda x: torch._neg_view(x * 2), X),
        (lambda x: x.add_(1) * 2, lambda x: x.add_(1) * 2, torch._neg_view(X)),
        (_Square.apply, torch.square, X),
    ],
)
def test_marks_of_negatives_and_conjugates_are_no_fault(
    candidate: Callable[..., Any], spec: Callable[..., Any], argument: Tensor
) -> None:
    judgement = judge(candidate, spec, (argument.detach(),))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


@pytest.mark.parametrize("argument", [torch._neg_view(X), Z.conj().imag])
def test_a_candidate_that_does_not_see_the_mark_of_an_argument_is_refused(argument: Tensor) -> None:
    def kernel(x: Tensor) -> Tensor:
        return (torch._neg_view(x) if x.is_neg() else x) + 1

    assert _causes(kernel, lambda x: x + 1, (argument,)) == ["FWD:given"]


def test_a_marked_view_of_an_input_is_no_memory_of_its_own() -> None:
    assert _causes(torch._neg_view, torch.neg, (X,), "PURE:fresh") == ["PURE:fresh"]


# ----------------------------------------------------------------------------------------------- what nobody reads


def attend(q: Tensor, k: Tensor, v: Tensor, length: Tensor) -> Tensor:
    n = int(length)
    return torch.softmax(q @ k[:n].mT, -1) @ v[:n]


def _masked(q: Tensor, k: Tensor, v: Tensor, length: Tensor, also_values: bool = False) -> Tensor:
    rows = torch.arange(len(k)) < length
    scores = (q @ k.mT).masked_fill(~rows, float("-inf"))
    return torch.softmax(scores, -1) @ (torch.where(rows[:, None], v, 0.0) if also_values else v)


def _all_masked(q: Tensor, k: Tensor, v: Tensor, length: Tensor) -> Tensor:
    return _masked(q, k, v, length, also_values=True)


def pick_rows(x: Tensor, at: Tensor) -> Tensor:
    return torch.relu(x)[at]


def _by_product(x: Tensor, at: Tensor) -> Tensor:
    return nn.functional.one_hot(at, len(x)).to(x.dtype) @ torch.relu(x)


class _Embedding(nn.Module):
    def __init__(self, by_product: bool = False) -> None:
        super().__init__()
        self.weight, self.by_product = nn.Parameter(_normal(12, 4)), by_product

    def forward(self, at: Tensor) -> Tensor:
        return nn.functional.one_hot(at, 12).float() @ self.weight if self.by_product else self.weight[at]


TOKENS = (_normal(4, 8), _normal(10, 8), _normal(10, 8), torch.tensor(9))
AT = torch.tensor([3, 1, 4, 1])


@pytest.mark.parametrize(
    ("spec", "wrong", "right", "inputs"),
    [
        (attend, _masked, _all_masked, TOKENS),
        (pick_rows, _by_product, pick_rows, (_normal(10, 16), AT)),
        (torch.tril, lambda x: x * torch.ones(8, 8).tril(), torch.tril, (_normal(8, 8),)),
        (_Embedding(), _Embedding(True), _Embedding(), (AT,)),
        (lambda x, at: x.float()[at], lambda x, at: _by_product(x.float(), at) - _by_product(-x.float(), at),
         lambda x, at: x[at].float(), (_normal(10, 8).to(torch.float8_e4m3fn), AT)),
    ],
)  # fmt: skip
def test_what_the_spec_does_not_read_is_nan(spec: Any, wrong: Any, right: Any, inputs: Sequence[Any]) -> None:
    judgement = judge(wrong, spec, inputs, questions=["FWD:given", "POISON"])
    assert [each.question for each in judgement.causes] == ["POISON"], str(judgement)
    assert "that the spec does not read" in str(judgement)
    assert _causes(right, spec, inputs, "POISON") == []


@pytest.mark.parametrize(
    "spec",
    [
        torch.relu,
        lambda x: x * torch.ones(6, 8).tril(),
        lambda x: (x > 0, x * 2),
        lambda x: x.amax(-1),
        lambda x: torch.softmax(x * 300, -1),
        lambda x: torch.nn.functional.hardtanh(x, -1e-3, 1e-3),
    ],
)
def test_a_gradient_of_zero_alone_is_no_element_that_nobody_reads(spec: Callable[..., Any]) -> None:
    def kernel(x: Tensor) -> Any:
        assert not x.isnan().any()
        return spec(x)

    finding = judge(kernel, spec, (_normal(6, 8),), questions=["FWD:given", "POISON"]).findings[-1]
    assert not finding.is_wrong, finding


@pytest.mark.parametrize("seed", range(4))
def test_what_a_comparison_drops_for_one_sign_is_read(seed: int) -> None:
    """A NaN that `x > 0` drops comes out of relu; negative numbers alone would not show that the place is read."""
    questions = ["FWD:given", "POISON"]
    x = torch.randn(64, 64, generator=GENERATOR)
    assert not judge(torch.relu, lambda x: torch.where(x > 0, x, 0.0), [x], questions=questions, seed=seed).causes
