"""What is within its bound and not likely is suspect, a verdict of its own; other formulas of a function are not."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from opassay.oracles.verdicts.verdict import Outcome
from opassay.properties.candidates.judgement import Ruling
from opassay.properties.candidates.judging import judge
from opassay.reports.cli.main import main

QUESTIONS = ("FWD:given", "VJP:grad", "LIKELY")


def _layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.relu(x @ weight) * 1.25
    return x


def _draw(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(3)
    return tuple(torch.randn(shape, generator=generator) / shape[0] ** 0.5 for shape in shapes)


_OPERANDS = _draw((8, 32), *[(32, 32)] * 6)


class _OtherGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        return grads[0] * 1.00002


def test_a_right_candidate_is_not_suspect() -> None:
    judgement = judge(_layers, _layers, _OPERANDS, questions=QUESTIONS)
    assert judgement.findings[-1].outcome is Outcome.VERIFIED, str(judgement)
    assert not judgement.suspicions


def test_an_error_within_the_bound_is_suspect() -> None:
    judgement = judge(lambda *args: _layers(*args) * (1 + 3e-5), _layers, _OPERANDS, questions=("FWD:given", "LIKELY"))
    assert judgement.verdict is Ruling.SUSPECT, str(judgement)
    assert [each.question for each in judgement.suspicions] == ["LIKELY"]
    reply = json.loads(judgement.as_json())
    assert (reply["verdict"], reply["causes"]) == ("suspect", [])
    (text,) = reply["suspect"]
    assert "standard deviations of rounding" in text
    assert "no proof" in str(judgement)


def test_a_gradient_within_the_bound_is_suspect() -> None:
    def candidate(*args: Tensor) -> Tensor:
        scaled: Any = _OtherGradient
        judgement: Tensor = scaled.apply(_layers(*args))
        return judgement

    judgement = judge(candidate, _layers, _OPERANDS, questions=QUESTIONS)
    assert judgement.verdict is Ruling.SUSPECT, str(judgement)
    assert "gradient" in judgement.suspicions[0].text


def _wrong_once() -> Callable[..., Tensor]:
    """Wrong at the first call alone, as no function of its arguments is."""
    calls: list[int] = []

    def candidate(*args: Tensor) -> Tensor:
        calls.append(0)
        return _layers(*args) * (1 + 3e-5 * (len(calls) == 1))

    return candidate


def test_a_suspicion_needs_a_fresh_draw_that_agrees() -> None:
    judgement = judge(_wrong_once(), _layers, _OPERANDS, questions=("FWD:given", "LIKELY"))
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


@pytest.mark.slow
def test_the_command_ends_with_4_where_a_candidate_is_suspect(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "products.py").write_text(
        "import torch\n"
        "def reference(x):\n"
        "    return x @ x.mT\n"
        "def kernel(x):\n"
        "    return reference(x) * 1.00002\n"
        "def inputs():\n"
        "    return (torch.randn(8, 1024),)\n"
    )
    file = tmp_path / "products.py"
    assert (
        main(["judge", f"{file}:kernel", "--spec", f"{file}:reference", "-k", "FWD:given", "-k", "LIKELY", "--json"])
        == 4
    )
    assert json.loads(capsys.readouterr().out)["verdict"] == "suspect"


# -------------------------------- other formulas of the same function


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1]), -1) @ v


def _in_two_splits(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    parts = []
    for keys, values in zip(k.chunk(2, -2), v.chunk(2, -2), strict=True):
        scores = q @ keys.transpose(-1, -2) / math.sqrt(q.shape[-1])
        parts.append((torch.softmax(scores, -1) @ values, torch.logsumexp(scores, -1, keepdim=True)))
    both = torch.logaddexp(parts[0][1], parts[1][1])
    return parts[0][0] * torch.exp(parts[0][1] - both) + parts[1][0] * torch.exp(parts[1][1] - both)


def _by_logsumexp(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    return torch.exp(scores - torch.logsumexp(scores, -1, keepdim=True)) @ v


def _standardized(x: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:])


def _of_shifted(x: Tensor) -> Tensor:
    return _standardized(x - x[:, :1])


def _total(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def _total_online(x: Tensor) -> Tensor:
    """The largest so far, and the sum of exponentials above it, which is scaled whenever that changes."""
    most, total = x[:, 0], torch.ones_like(x[:, 0])
    for part in x[:, 1:].split(16, -1):
        larger = torch.maximum(most, part.amax(-1))
        total = total * torch.exp(most - larger) + torch.exp(part - larger[:, None]).sum(-1)
        most = larger
    return most + torch.log(total)


@pytest.mark.fast_cases("_total_online-_total-shapes3-dtype0")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("candidate", "spec", "shapes"),
    [
        (_in_two_splits, _attention, ((6, 16), (20, 16), (20, 8))),
        (_by_logsumexp, _attention, ((6, 16), (20, 16), (20, 8))),
        (_of_shifted, _standardized, ((8, 200),)),
        (_total_online, _total, ((8, 200),)),
    ],
)
def test_other_formulas_are_not_suspect(
    candidate: Any, spec: Any, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype
) -> None:
    questions = ("FWD:given", "FWD:seeds", "FWD:offset", "FWD:nearone", "VJP:grad", "LIKELY")
    operands = tuple(t.to(dtype) for t in _draw(*shapes))
    judgement = judge(candidate, spec, operands, questions=questions)
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert judgement.findings[-1].outcome is Outcome.VERIFIED


# -------------------------------- to which side an output lies


def _scaled(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def _of_float32(function: Any) -> Any:
    def rounded(*args: Tensor) -> Tensor:
        result: Tensor = function(*(t.float() for t in args)).to(args[0].dtype)
        return result

    return rounded


def _cut(function: Any, bits: int) -> Any:
    """Computed in float32, and cut off where it is to be rounded: the bits that the output lacks are dropped."""

    def truncated(*args: Tensor) -> Tensor:
        wide = function(*(t.float() for t in args)).view(torch.int32)
        result: Tensor = ((wide >> bits) << bits).view(torch.float32).to(args[0].dtype)
        return result

    return truncated


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 16), (torch.float16, 13)])
@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (torch.add, ((32, 64), (32, 64))),
        (_scaled, ((32, 64), (64,))),
        (lambda x, y: torch.softmax(x + y, -1), ((32, 64), (32, 64))),
    ],
)
def test_what_is_cut_off_in_place_of_rounded_is_no_success(
    function: Any, shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype, bits: int
) -> None:
    operands = tuple(t.to(dtype) for t in _draw(*shapes))
    questions = ("FWD:given", "FWD:seeds", "FWD:offset", "FWD:nearone", "LIKELY")
    judgement = judge(_cut(function, bits), function, operands, questions=questions)
    assert judgement.verdict in (Ruling.SUSPECT, Ruling.REJECTED), str(judgement)
    for right in (function, _of_float32(function)):
        assert judge(right, function, operands, questions=questions).verdict is Ruling.ACCEPTED


def test_a_rounding_to_nearest_that_leans_is_not_suspect() -> None:
    """x times 1.001 in bfloat16 is x: half an ulp is more than that, so it is too small for all x but a few."""

    def nearly(x: Tensor) -> Tensor:
        return x * 1.001 + 0.0

    operands = (_draw((64, 64))[0].bfloat16(),)
    for candidate in (nearly, _of_float32(nearly)):
        judgement = judge(candidate, nearly, operands, questions=("FWD:given", "FWD:seeds", "LIKELY"))
        assert judgement.verdict is Ruling.ACCEPTED, str(judgement)


def _from_the_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """A convolution of each channel alone, whose sums begin with the bias."""
    count = x.shape[-1] - weight.shape[-1] + 1
    taps = (x[:, :, k : k + count] * weight[:, 0, k, None] for k in range(weight.shape[-1]))
    return functools.reduce(torch.add, taps, bias[:, None].expand(x.shape[0], -1, count))


def test_sums_may_begin_with_the_bias() -> None:
    def convolution(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return F.conv1d(x, weight, bias, groups=4)

    x, weight, bias = _draw((2, 4, 20), (4, 1, 5), (4,))
    # Small terms after a large first one lose as many roundings of it as there are.
    small = (x * 2.0**-20, weight, bias)
    assert judge(_from_the_bias, convolution, small, questions=["FWD:given"]).verdict is Ruling.ACCEPTED

    def linear_from_the_bias(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return functools.reduce(torch.add, (x[:, k, None] * weight[:, k] for k in range(x.shape[1])), bias)

    x, weight, bias = _draw((6, 40), (10, 40), (10,))
    small = (x * 2.0**-20, weight, bias)
    assert judge(linear_from_the_bias, F.linear, small, questions=["FWD:given"]).verdict is Ruling.ACCEPTED


def test_likely_alone_is_asked_of_values_that_are_asked_with_it() -> None:
    judgement = judge(lambda *args: _layers(*args) * (1 + 3e-5), _layers, _OPERANDS, questions=("LIKELY",))
    assert [each.question for each in judgement.suspicions] == ["LIKELY"]
