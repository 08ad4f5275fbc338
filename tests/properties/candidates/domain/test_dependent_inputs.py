"""Inputs that belong together, are contiguous, or may be written: what their author says, or what shows by itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import opassay
from opassay.properties.candidates.domain.facts import find_facts
from opassay.reports.cli.main import main

Tensor = torch.Tensor
_QUESTIONS = ("FWD:signs", "FWD:wide", "SPECIAL:zeros", "SIZE:sizes", "VJP:grad", "LAYOUT:strides")


def rotate(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    half = q.shape[-1] // 2
    return q * cos + torch.cat([-q[..., half:], q[..., :half]], -1) * sin


def rotate_by_halves(q: Tensor, cos: Tensor, sin: Tensor, sign: float = 1.0) -> Tensor:
    half = q.shape[-1] // 2
    a, b, c, s = q[..., :half], q[..., half:], cos[..., :half], sin[..., :half]
    return torch.cat([a * c - b * s, b * c + sign * a * s], -1)


def rotate_back_behind(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate_by_halves(q, cos, sin, -1.0)


def angles(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    angle = 6 * torch.rand(6, 4, generator=generator)
    angle = torch.cat([angle, angle], -1)
    return torch.randn(6, 8, generator=generator), angle.cos(), angle.sin()


@pytest.mark.parametrize(("kernel", "verdict"), [(rotate_by_halves, "accepted"), (rotate_back_behind, "rejected")])
def test_equal_halves_stay_equal(kernel: Callable[..., Tensor], verdict: str) -> None:
    judgement = opassay.judge(lambda q, cos, sin: kernel(q, cos, sin), rotate, angles, questions=_QUESTIONS)
    assert judgement.verdict == verdict, str(judgement)


def test_a_row_of_one_number_has_no_halves() -> None:
    rows = torch.randn(8, 1, generator=torch.Generator().manual_seed(0)).expand(8, 6)
    assert find_facts([rows]) == ()
    halves = torch.randn(8, 3, generator=torch.Generator().manual_seed(0)).repeat(1, 2)
    assert find_facts([halves]) == ("equal halves along 1",)


@pytest.mark.parametrize(("axis", "message"), [(0, ""), (1, "equal halves along 1"), (5, "equal halves along 5")])
def test_halves_of_any_axis_may_be_declared(axis: int, message: str) -> None:
    x = torch.randn(2, 5, generator=torch.Generator().manual_seed(0)).repeat(2, 1)
    domain = {"where": [f"input: equal halves along {axis}"]}
    if message:
        with pytest.raises(ValueError, match=message):
            opassay.judge(_SILU, _SILU, (x,), questions=("FWD:signs",), domain=domain)
    else:
        assert (
            opassay.judge(_SILU, _SILU, (x,), questions=("FWD:signs", "SIZE:sizes"), domain=domain).verdict
            == "accepted"
        )


def turn(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return (q * cos).square() + (q * sin).square()


def turn_by_less(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q * q  # the sum of both squares is one


def turn_by_more(q: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return q * q * (1 + sin * cos * 2.0**-12)


def on_circle(cos: Tensor, sin: Tensor) -> dict[str, Tensor]:
    angle = torch.atan2(sin.double(), cos.double())
    return {"cos": angle.cos(), "sin": angle.sin()}


def circle(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    angle = 6 * torch.rand(5, 7, generator=generator)
    return torch.randn(5, 7, generator=generator), angle.cos(), angle.sin()


@pytest.mark.parametrize(
    ("kernel", "where", "verdict"),
    [
        (turn_by_less, (on_circle,), "accepted"),
        (turn_by_more, (on_circle,), "rejected"),
        (turn_by_less, (), "rejected"),
    ],
)
def test_a_function_says_what_follows(kernel: Callable[..., Tensor], where: tuple[Any, ...], verdict: str) -> None:
    questions = ("FWD:given", "FWD:signs", "FWD:seeds", "SIZE:sizes")
    judgement = opassay.judge(kernel, turn, circle, questions=questions, domain={"where": where})
    assert judgement.verdict == verdict, str(judgement)


def no_dictionary(cos: Tensor) -> Any:
    return cos


def unknown(cos: Tensor) -> dict[str, Tensor]:
    return {"tan": cos}


def another_shape(cos: Tensor) -> dict[str, Tensor]:
    return {"cos": cos[:1]}


def raising(cos: Tensor) -> dict[str, Tensor]:
    raise ValueError("no angle")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (no_dictionary, "its result="), (unknown, "tan="), (raising, "raising raises ValueError: no angle"),
        (another_shape, "another_shape: got cos=.*1, 7.*need .*5, 7"), ("x: contiguous", "got 'x: contiguous'"),
        ("sine: may be written", "did you mean 'sin'"), ("cos: contigous", "'contiguous' or 'may be written'"),
    ],
)  # fmt: skip
def test_what_is_no_such_thing_is_an_error(function: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        opassay.judge(turn, turn, circle, questions=("FWD:signs",), domain={"where": [function]})


class Silu(torch.autograd.Function):
    """Its backward leaves the gradient in the place of the saved input."""

    scale = 1.0

    @classmethod
    def forward(cls, ctx: Any, x: Tensor) -> Tensor:
        ctx.x, ctx.scale = x, cls.scale
        return x * torch.sigmoid(x)

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x = ctx.x.detach()
        s = torch.sigmoid(x)
        x.copy_(grads[0] * (s + x * s * (ctx.scale - s)))
        return x


class FalseSilu(Silu):
    scale = 1.001


def silu_over_input(x: Tensor) -> Tensor:
    result: Tensor = Silu.apply(x)  # type: ignore[no-untyped-call]
    return result


def false_silu_over_input(x: Tensor) -> Tensor:
    result: Tensor = FalseSilu.apply(x)  # type: ignore[no-untyped-call]
    return result


def silu_of_dense(x: Tensor) -> Tensor:
    x = x.as_strided(x.shape, (x.shape[1], 1))
    return x * torch.sigmoid(x)


def rows(seed: int) -> tuple[Tensor]:
    return (torch.randn(5, 33, generator=torch.Generator().manual_seed(seed)),)


_SILU = torch.nn.functional.silu


@pytest.mark.parametrize(
    ("kernel", "where", "causes"),
    [
        (silu_over_input, (), {"VJP:grad", "PURE:left"}), (silu_over_input, ("x: may be written",), set()),
        (false_silu_over_input, ("x: may be written",), {"VJP:grad"}),
        (silu_of_dense, ("x: may be written",), {"LAYOUT:strides", "VJP:grad"}),
        (silu_of_dense, ("x: contiguous",), set()),
    ],
)  # fmt: skip
def test_a_promise_excuses_what_it_names_alone(
    kernel: Callable[..., Tensor], where: tuple[str, ...], causes: set[str]
) -> None:
    domain = {"where": [sentence.replace("x:", "input:") for sentence in where]}
    questions = ("FWD:given", "VJP:grad", "LAYOUT:strides", "CALLS:again", "PURE:untouched", "PURE:fresh", "PURE:left")
    judgement = opassay.judge(kernel, _SILU, rows, questions=questions, domain=domain)
    assert {cause.question for cause in judgement.causes} == causes, str(judgement)


_FILE = """
import torch
def kernel(x):
    x = x.as_strided(x.shape, (x.shape[1], 1))
    return x.add_(1)
def wrong(x):
    x = x.as_strided(x.shape, (x.shape[1], 1))
    return x.add_(1.001)
def reference(x):
    return x + 1
def inputs(seed):
    return (torch.randn(4, 5),)
"""


def test_the_command_line_says_it_of_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "file.py"
    path.write_text(_FILE)
    words = ["--spec", f"{path}:reference", "--seed", "3", "--where", "x: contiguous", "--may-write", "x"]
    words += [
        word for code in ("FWD:given", "CALLS:again", "LAYOUT:strides", "PURE:untouched") for word in ("-k", code)
    ]
    assert main(["judge", f"{path}:kernel", *words]) == 0
    assert "x: contiguous; x: may be written" in capsys.readouterr().out
    report = tmp_path / "report"
    assert main(["judge", f"{path}:wrong", *words, "--report-dir", str(report)]) == 1
    case = next((report / "cases").glob("*.json"))
    capsys.readouterr()
    assert main(["replay", str(case), "--op", f"{path}:wrong"]) == 1
    text = capsys.readouterr().out
    assert "WRONG" in text
    assert "x: may be written" in text
