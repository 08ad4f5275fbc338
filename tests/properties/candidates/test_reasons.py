"""The card of wrong values says what the candidate computes instead, where that is known, and no more."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.specification import specification
from tests.properties.candidates.candidates import as_tf32

EPS = 1e-5


def _draw(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _lines(spec: Any, candidate: Any, inputs: tuple[Tensor, ...], word: str, **questions: Any) -> list[str]:
    judgement = judge(
        candidate,
        spec,
        inputs,
        questions=["FWD:given", "FWD:seeds", "FWD:signs", "SPECIAL:zeros", "DATA:bits"],
        **questions,
    )
    cards = [line.strip() for finding in judgement.causes for line in str(finding.wrong).splitlines()]
    return [line.removeprefix(word).strip() for line in cards if line.startswith(f"{word} ")]


def rms(x: Tensor, eps: float = EPS) -> Tensor:
    return x / torch.sqrt(x.square().mean(-1, keepdim=True) + eps)


def rms_in_products(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + EPS)


def rms_eps_outside(x: Tensor) -> Tensor:
    return x / (torch.sqrt(x.square().mean(-1, keepdim=True)) + EPS)


def rms_unbiased(x: Tensor) -> Tensor:
    return x / torch.sqrt(x.square().sum(-1, keepdim=True) / (x.shape[-1] - 1) + EPS)


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    return torch.softmax(q @ k.mT * (scale or 1 / math.sqrt(q.shape[-1])), -1) @ v


def causal(q: Tensor, k: Tensor, v: Tensor, diagonal: int = 0) -> Tensor:
    mask = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).tril(diagonal)
    return torch.softmax((q @ k.mT).masked_fill(~mask, -1e9), -1) @ v


def standardize(x: Tensor, correction: int = 1) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / x.var(-1, keepdim=True, correction=correction)


def layer_norm(x: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],))


def layer_norm_unbiased(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + EPS)


def layer_norm_eps_outside(x: Tensor) -> Tensor:
    return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True, correction=0) + EPS)


def two_gelus(x: Tensor, first: str = "none", second: str = "none") -> Tensor:
    return F.gelu(F.gelu(x, approximate=first) - 1, approximate=second)


def by_places(compare: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Tensor]:
    def masked(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        places = torch.arange(q.shape[-2])
        return torch.softmax((q @ k.mT).masked_fill(~compare(places[:, None], places), -1e9), -1) @ v

    return masked


def enlarged(align_corners: bool) -> Callable[[Tensor], Tensor]:
    return lambda x: F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=align_corners)


def scaled_norm(x: Tensor, w: Tensor) -> Tensor:
    return F.layer_norm(x, (x.shape[-1],), w)


def cut_off(t: Tensor) -> Tensor:
    return (t.contiguous().view(torch.int32) & -8192).view(torch.float32)


ROWS, CUBE, HEADS = ((8, 32),), ((4, 6, 5),), ((2, 6, 6),) * 3
FAULT: list[tuple[Callable[..., Tensor], Callable[..., Tensor], tuple[tuple[int, ...], ...], str]] = [
    (F.gelu, lambda x: F.gelu(x, approximate="tanh"), ROWS, "gelu with approximate=tanh in place of none"),
    (lambda x: F.gelu(x, approximate="tanh"), F.gelu, ROWS, "gelu with approximate=none in place of tanh"),
    (two_gelus, lambda x: two_gelus(x, second="tanh"), ROWS, "gelu with approximate=tanh in place of none"),
    (rms, lambda x: rms(x, 1e-3), ROWS, "add with other=0.001 in place of 1e-05"),
    (rms, lambda x: rms(x, 0.0), ROWS, "add of 1e-05 left out"),
    (rms, rms_eps_outside, ROWS, "eps added to the square root in place of what is under it"),
    (rms_in_products, rms_eps_outside, ROWS, "eps added to the square root in place of what is under it"),
    (rms_eps_outside, rms, ROWS, "eps added to what is under the square root in place of the root"),
    (rms, rms_unbiased, ROWS, "n - 1 in place of n in mean"),
    (standardize, lambda x: standardize(x, 0), ROWS, "var with correction=0 in place of 1"),
    (lambda x: standardize(x, 0), standardize, ROWS, "var with correction=1 in place of 0"),
    (layer_norm, layer_norm_unbiased, ROWS, "n - 1 in place of n in layer_norm"),
    (layer_norm, layer_norm_eps_outside, ROWS, "layer_norm with eps added to the square root"),
    (lambda x: F.layer_norm(x, (32,), eps=1e-3), layer_norm, ROWS, "layer_norm with eps=1e-05 in place of 0.001"),
    (attention, lambda q, k, v: attention(q, k, v, 1.0), HEADS, "mul of 0.4082 left out"),
    (attention, lambda q, k, v: attention(q, k, v, 1 / 6), HEADS, "mul with other=0.1667 in place of 0.4082"),
    (
        F.scaled_dot_product_attention,
        lambda q, k, v: attention(q, k, v, 1.0),
        HEADS,
        "attention_scores with scale=1 in place of 0.4082",
    ),
    (causal, lambda q, k, v: causal(q, k, v, 1), HEADS, "tril with diagonal=1 in place of 0"),
    (lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, 1), CUBE, "softmax with dim=1 in place of -1"),
    (lambda x: x.sum(-1), lambda x: x.mean(-1), CUBE, "mean in place of sum"),
    (lambda x: x.mean(-1), lambda x: x.sum(-1), CUBE, "sum in place of mean"),
    (
        lambda x: x - x.mean((-2, -1), keepdim=True),
        lambda x: x - x.mean(-1, keepdim=True),
        CUBE,
        "mean with dim=[2] in place of [-2, -1]",
    ),
    (lambda a, b: a @ b, lambda a, b: a @ b.T, ((6, 6), (6, 6)), "operand 1 of mm transposed"),
    (F.linear, lambda x, w, b: x @ w.T, ((8, 5), (7, 5), (7,)), "addmm without operand 0"),
    (lambda x, w, b: torch.relu(F.linear(x, w, b)), F.linear, ((8, 5), (7, 5), (7,)), "relu left out"),
    (lambda x: x + torch.tanh(x), torch.tanh, ROWS, "add without operand 0"),
    (
        lambda x: F.avg_pool2d(x, 3, padding=1),
        lambda x: F.avg_pool2d(x, 3, padding=1, count_include_pad=False),
        ((1, 2, 6, 6),),
        "avg_pool2d with count_include_pad=False in place of True",
    ),
    (
        lambda a, b: a @ b,
        lambda a, b: as_tf32(a) @ as_tf32(b),
        ((32, 32),) * 2,
        "factors of products rounded to TF32 or float16",
    ),
    (
        lambda a, b: a @ b,
        lambda a, b: a.bfloat16().float() @ b.bfloat16().float(),
        ((32, 32),) * 2,
        "factors of products rounded to bfloat16",
    ),
    (
        lambda a, b: a @ b,
        lambda a, b: a.half().float() @ b.half().float(),
        ((32, 32),) * 2,
        "factors of products rounded to TF32 or float16",
    ),
    (by_places(torch.ge), by_places(torch.gt), HEADS, "gt in place of ge"),
    (
        lambda x: F.normalize(x * 1e-7, eps=1e-3),
        lambda x: F.normalize(x * 1e-7, eps=1e-5),
        ROWS,
        "clamp_min with min=1e-05",
    ),
    (lambda x: x.cumsum(-1), lambda x: x.cumsum(1), CUBE, "cumsum with dim=1 in place of -1"),
    (enlarged(False), enlarged(True), ((1, 2, 6, 6),), "upsample_bilinear2d with align_corners=True in place of False"),
    (scaled_norm, lambda x, w: layer_norm(x), ((8, 32), (32,)), "layer_norm without its weight"),
    (lambda x, w: F.conv1d(x, w, w[:, 0, 0]), F.conv1d, ((2, 3, 9), (4, 3, 3)), "convolution without its bias"),
    (torch.matmul, lambda a, b: cut_off(a) @ cut_off(b), ((32, 32),) * 2, "factors of products cut off to TF32"),
]


@pytest.mark.parametrize(
    ("spec", "candidate", "shapes", "text"), FAULT, ids=[f"{i} {row[3]}" for i, row in enumerate(FAULT)]
)
def test_a_planted_fault_is_named(spec: Any, candidate: Any, shapes: tuple[tuple[int, ...], ...], text: str) -> None:
    (line,) = _lines(spec, candidate, _draw(*shapes), "likely")
    assert line.startswith(text)


def product(a: Tensor, b: Tensor) -> Tensor:
    return a @ b


def _one_column(x: Tensor) -> Tensor:
    return torch.cat([rms(x)[:, :-1], rms(x)[:, -1:] * 1.5], -1)


def _scattered(x: Tensor) -> Tensor:
    return rms(x) * (1 + 1e-3 * torch.sign(torch.sin(1e4 * x)))


def _cached(of: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    known: list[Tensor] = []

    def candidate(x: Tensor) -> Tensor:
        known.extend([of(x)] if not known else [])
        return known[0]

    return candidate


@pytest.mark.parametrize(
    "candidate",
    [
        lambda x: rms(x) * 1.03,
        lambda x: rms(x) + 1e-3,
        lambda x: rms(x, 3e-5),
        _one_column,
        _scattered,
        _cached(rms),
        lambda x: rms(x).flip(-1),
        lambda x: torch.zeros_like(x),
    ],
)
def test_no_reason_is_told_of_another_fault(candidate: Callable[[Tensor], Tensor]) -> None:
    assert _lines(rms, candidate, _draw((8, 32)), "likely") == []


def test_no_reason_is_told_where_it_holds_at_some_inputs_alone() -> None:
    def candidate(x: Tensor) -> Tensor:
        return rms_unbiased(x) if x.flatten()[0] == first.flatten()[0] else rms(x) * 1.01

    (first,) = _draw((8, 32))
    assert _lines(rms, candidate, (first,), "likely") == []


def test_subnormal_inputs_that_count_as_zero_are_named() -> None:
    def candidate(x: Tensor) -> Tensor:
        return torch.where(x.abs() < torch.finfo(x.dtype).tiny, torch.zeros_like(x), x) * 1e30

    (x,) = _draw((8, 32))
    assert _lines(lambda x: x * 1e30, candidate, (x * 1e-40,), "likely") == ["subnormal inputs as zero"]


def test_right_evaluations_have_no_card() -> None:
    for candidate in (rms_in_products, lambda x: rms(x.double()).float()):
        assert _lines(rms, candidate, _draw((8, 32)), "likely") == []


def test_a_large_problem_and_a_formula_have_no_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("opassay.properties.candidates.reasons._ELEMENTS", 255)
    assert _lines(rms, lambda x: rms(x, 1e-3), _draw((8, 32)), "likely") == []
    assert _lines(rms, lambda x: rms(x, 1e-3), _draw((8, 31)), "likely") != []
    assert _lines("rms_norm", lambda x: rms(x, 0.01), _draw((8, 32)), "likely") == []


def _flushed(a: Tensor, b: Tensor) -> Tensor:
    out = a * b
    return torch.where(out.abs() < torch.finfo(out.dtype).tiny, 0.0 * out, out)


def _in_bfloat16(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return attention(q.bfloat16(), k.bfloat16(), v.bfloat16()).float()


def _stored_in_bfloat16(a: Tensor, b: Tensor) -> Tensor:
    return (a.bfloat16() @ b.bfloat16()).float()


def _cross_entropy(x: Tensor, t: Tensor) -> Tensor:
    return F.cross_entropy(x, t.argmax(-1), reduction="none")


TINY = tuple(t * 1e-20 for t in _draw((8, 32), (8, 32)))
LOGITS = (_draw((64, 40))[0] * 30,) * 2


@pytest.mark.parametrize(
    ("spec", "candidate", "inputs", "contract"),
    [
        (product, lambda a, b: as_tf32(a) @ as_tf32(b), _draw((32, 32), (32, 32)), "tensor_core"),
        (product, _stored_in_bfloat16, _draw((32, 32), (32, 32)), "torch+bfloat16_factors"),
        (torch.mul, _flushed, TINY, "torch+flush"),
        (_cross_entropy, lambda x, t: x.logsumexp(-1) - x.gather(-1, t.argmax(-1, True))[:, 0], LOGITS, "torch+lse"),
        (attention, _in_bfloat16, _draw(*((2, 16, 8),) * 3), "torch+bfloat16_factors"),
    ],
)
def test_the_contract_that_is_named_accepts(spec: Any, candidate: Any, inputs: Any, contract: str) -> None:
    (named,) = _lines(spec, candidate, inputs, "accepted")
    assert named == f"with --contract {contract}"
    questions = ["FWD:given", "FWD:seeds", "FWD:signs", "SPECIAL:zeros", "DATA:bits"]
    assert judge(candidate, spec, inputs, questions=questions, contract=contract).causes == ()


@pytest.mark.parametrize("candidate", [lambda a, b: 1.01 * a @ b, lambda a, b: a @ b.T, lambda a, b: (a @ b).tril()])
def test_no_contract_is_advised_where_none_accepts_or_precision_is_not_at_fault(candidate: Any) -> None:
    assert _lines(product, candidate, _draw((32, 32), (32, 32)), "accepted") == []


def test_the_line_of_the_spec_is_told() -> None:
    (line,) = _lines(rms, lambda x: rms(x, 1e-3), _draw((8, 32)), "likely")
    assert f"line {rms.__code__.co_firstlineno + 1} of test_reasons.py (return x / torch.sqrt(" in line


def test_the_marks_of_a_spec_stay_as_they_are() -> None:
    """A rewrite is traced with the metadata of the spec's nodes; the spec itself is read again afterwards."""
    specification_read = specification(rms)
    (x,) = _draw((8, 32))
    judge(rms, specification_read, (x,), questions=["FWD:given"])
    graph = specification_read.traced_at(CallArguments.of((x,)), {}).graph
    before = [repr(node.meta.get("custom")) for node in graph.graph.nodes]
    assert _lines(specification_read, lambda x: rms(x, 0.0), (x,), "likely")
    assert [repr(node.meta.get("custom")) for node in graph.graph.nodes] == before


def test_a_map_stands_on_the_card() -> None:
    def candidate(x: Tensor) -> Tensor:
        return torch.where(torch.ones(8, 32, dtype=torch.bool).triu(), rms(x), 2 * rms(x))

    judgement = judge(candidate, rms, _draw((8, 32)), questions=["FWD:given"])
    lines = [line.strip() for line in str(judgement).splitlines()]
    start = lines.index("map        of 1 by 1 elements each: . none outside, 1 to 9 tenths, # all")
    assert lines[start + 1 : start + 9] == ["#" * i + "." * (32 - i) for i in range(8)]
