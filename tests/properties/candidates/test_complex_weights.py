"""Modules with complex parameters and buffers: what computes with parts is accepted, mistakes are rejected."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import opassay
from opassay.reports.cli.main import main

QUESTIONS = ["FWD:given", "PURE:untouched", "CALLS:same", "FWD:params", "VJP:grad"]
DTYPES = [torch.float32, torch.float64]


class _ConjugatesGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        return z.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0].conj()


def _same(z: Tensor) -> Tensor:
    return z


def _complex(*shape: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.view_as_complex(torch.randn(*shape, 2, generator=generator, dtype=dtype))


class _Layer(nn.Module):
    """A layer; a mistake is what `weigh` does with a weight, or `sign`, which is that of a product of imaginary parts.

    Shapes: of an input (3, 4); `weigh` takes and gives a complex tensor.
    """

    def __init__(self, dtype: torch.dtype, *, weigh: Callable[[Tensor], Tensor] = _same, sign: float = -1.0) -> None:
        super().__init__()
        self.weigh, self.sign = weigh, sign


class _Recurrence(_Layer):
    """A linear recurrent unit: h = λ h + B x, y = Re(C h) + D x."""

    def __init__(self, dtype: torch.dtype, **how: Any) -> None:
        super().__init__(dtype, **how)
        pole = _complex(3, dtype=dtype)
        self.pole = nn.Parameter(0.9 * pole / pole.abs())
        self.inner, self.outer = nn.Parameter(_complex(3, 4, dtype=dtype)), nn.Parameter(_complex(4, 3, dtype=dtype))
        self.skip = nn.Parameter(torch.linspace(-1, 1, 4, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        pole, h, steps = self.weigh(self.pole), torch.zeros_like(self.pole), list[Tensor]()
        for each in x.to(self.inner.dtype) @ self.inner.T:
            h = pole * h + each
            steps.append((h @ self.outer.T).real)
        return torch.stack(steps) + self.skip * x


class _RecurrenceOfParts(_Recurrence):
    def forward(self, x: Tensor) -> Tensor:
        pole, steps = self.weigh(self.pole), list[Tensor]()
        a, b = torch.zeros_like(self.pole.real), torch.zeros_like(self.pole.real)
        for c, d in zip(x @ self.inner.real.T, x @ self.inner.imag.T, strict=True):
            a, b = pole.real * a + self.sign * pole.imag * b + c, pole.real * b + pole.imag * a + d
            steps.append(self.outer.real @ a - self.outer.imag @ b)
        return torch.stack(steps) + self.skip * x


class _Diagonal(_Layer):
    """A convolution with the kernel 2 Re Σ C exp(A Δ l) of a diagonal state space (S4D)."""

    def __init__(self, dtype: torch.dtype, **how: Any) -> None:
        super().__init__(dtype, **how)
        poles = torch.complex(torch.full((4, 2), -0.5, dtype=dtype), torch.tensor([[3.0, 7.0]] * 4, dtype=dtype))
        self.poles, self.weight = nn.Parameter(poles), nn.Parameter(_complex(4, 2, dtype=dtype))
        self.step = nn.Parameter(torch.linspace(0.1, 0.4, 4, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return self.convolve(x, 2 * self.kernel(torch.arange(len(x), dtype=x.dtype)))

    def kernel(self, places: Tensor) -> Tensor:
        powers = torch.exp((self.weigh(self.poles) * self.step[:, None])[..., None] * places)
        return (self.weight[..., None] * powers).sum(1).real

    def convolve(self, x: Tensor, kernel: Tensor) -> Tensor:
        return torch.stack([(kernel[:, :n].flip(1).T * x[:n]).sum(0) for n in range(1, len(x) + 1)])


class _DiagonalOfParts(_Diagonal):
    def kernel(self, places: Tensor) -> Tensor:
        poles = self.weigh(self.poles) * self.step[:, None]
        angles, sizes = poles.imag[..., None] * places, (poles.real[..., None] * places).exp()
        a, b = self.weight.real[..., None], self.weight.imag[..., None]
        return (sizes * (a * angles.cos() + self.sign * b * angles.sin())).sum(1)


class _Linear(_Layer):
    def __init__(self, dtype: torch.dtype, **how: Any) -> None:
        super().__init__(dtype, **how)
        self.weight, self.bias = nn.Parameter(_complex(3, 4, dtype=dtype)), nn.Parameter(_complex(3, dtype=dtype))

    def forward(self, x: Tensor) -> Tensor:
        return torch.complex(x, x.flip(0)) @ self.weigh(self.weight).T + self.bias


class _LinearOfParts(_Linear):
    def forward(self, x: Tensor) -> Tensor:
        weight, y = self.weigh(self.weight), x.flip(0)
        real = x @ weight.real.T + self.sign * (y @ weight.imag.T)
        return torch.complex(real, x @ weight.imag.T + y @ weight.real.T) + self.bias


class _Rotary(_Layer):
    turns: Tensor

    def __init__(self, dtype: torch.dtype, **how: Any) -> None:
        super().__init__(dtype, **how)
        angles = torch.arange(3, dtype=dtype)[:, None] * torch.tensor([1.0, 0.1], dtype=dtype)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        turned = torch.view_as_complex(x.reshape(3, 2, 2)) * self.weigh(self.turns)
        return torch.view_as_real(turned).flatten(1)


class _RotaryOfParts(_Rotary):
    def forward(self, x: Tensor) -> Tensor:
        a, b, turns = x[:, 0::2], x[:, 1::2], self.weigh(self.turns)
        real = a * turns.real + self.sign * b * turns.imag
        return torch.stack([real, a * turns.imag + b * turns.real], -1).flatten(1)


class _TurnsBack(torch.autograd.Function):
    """A rotation whose gradient is turned on, and not back."""

    @staticmethod
    def forward(ctx: Any, pairs: Tensor, turns: Tensor) -> Tensor:
        ctx.save_for_backward(turns)
        return pairs * turns

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        (turns,) = ctx.saved_tensors
        return gradients[0] * turns, None


_turn: Any = _TurnsBack.apply


class _RotaryWithGradient(_Rotary):
    def forward(self, x: Tensor) -> Tensor:
        turned: Any = _turn(torch.view_as_complex(x.reshape(3, 2, 2)), self.turns)
        return torch.view_as_real(turned).flatten(1)


LAYERS = {
    _Linear: _LinearOfParts,
    _Rotary: _RotaryOfParts,
    _Recurrence: _RecurrenceOfParts,
    _Diagonal: _DiagonalOfParts,
}
WRONG_GRADIENTS: dict[type[_Layer], Callable[..., nn.Module]] = {
    **{layer: functools.partial(layer, weigh=_ConjugatesGradient.apply) for layer in LAYERS},
    _Rotary: _RotaryWithGradient,
}


def _judge(candidate: nn.Module, spec: nn.Module, dtype: torch.dtype, questions: Any = QUESTIONS) -> Any:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=dtype)
    return opassay.judge(candidate, spec, (x,), questions=questions, seed=0)


@pytest.mark.one_fast_in(8)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_layers_with_complex_weights_are_accepted(layer: type[_Layer], dtype: torch.dtype) -> None:
    for candidate, questions in ((layer, ["FWD:given"]), (LAYERS[layer], QUESTIONS)):
        judgement = _judge(candidate(dtype), layer(dtype), dtype, questions)
        assert judgement.verdict == "accepted", str(judgement)


@pytest.mark.fast_cases("_Rotary-dtype1")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layer", LAYERS)
def test_conjugates_signs_and_gradients_that_are_wrong_are_rejected(layer: type[_Layer], dtype: torch.dtype) -> None:
    for candidate in (layer(dtype, weigh=torch.conj), LAYERS[layer](dtype, sign=1.0)):
        judgement = _judge(candidate, layer(dtype), dtype, ["FWD:given"])
        assert judgement.verdict == "rejected", str(judgement)
    judgement = _judge(WRONG_GRADIENTS[layer](dtype), layer(dtype), dtype, ["FWD:given", "VJP:grad"])
    assert [finding.question for finding in judgement.causes] == ["VJP:grad"], str(judgement)


def test_weights_are_set_to_those_of_the_spec_and_set_back() -> None:
    spec, candidate = _Linear(torch.float32), _LinearOfParts(torch.float32)
    with torch.no_grad():
        candidate.weight.mul_(2j)
    before = candidate.weight.detach().clone()
    judgement = _judge(candidate, spec, torch.float32, ["FWD:given", "FWD:params"])
    assert judgement.verdict == "accepted", str(judgement)
    assert torch.equal(candidate.weight.detach(), before)


class _Running(nn.Module):
    """A running sum; `moves` says how it is written."""

    total: Tensor

    def __init__(self, moves: Callable[[nn.Module, Tensor], None]) -> None:
        super().__init__()
        self.moves = moves
        self.register_buffer("total", torch.zeros(4, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        self.moves(self, torch.complex(x[0], x[1]))
        return self.total.abs()


def _in_place(layer: Any, z: Tensor) -> None:
    layer.total.mul_(0.5j).add_(z)


def _replaced(layer: Any, z: Tensor) -> None:
    layer.total = 0.5j * layer.total + z


def _of_parts(layer: Any, z: Tensor) -> None:
    layer.total.copy_(torch.complex(z.real - 0.5 * layer.total.imag, z.imag + 0.5 * layer.total.real))


def _turned_the_other_way(layer: Any, z: Tensor) -> None:
    layer.total = z - 0.5j * layer.total


def _conjugated(layer: Any, z: Tensor) -> None:
    _in_place(layer, z)
    layer.total = layer.total.conj()


@pytest.mark.one_fast_in(5)
@pytest.mark.parametrize("spec", [_in_place, _replaced])
@pytest.mark.parametrize(
    ("moves", "verdict"),
    [
        *((moves, "accepted") for moves in (_in_place, _replaced, _of_parts)),
        *((moves, "rejected") for moves in (_turned_the_other_way, _conjugated, lambda layer, z: None)),
    ],
)
def test_buffers_that_a_call_writes_are_judged(spec: Any, moves: Any, verdict: str) -> None:
    questions = ["FWD:given", "CALLS:again", "FWD:params", "VJP:grad"]
    judgement = _judge(_Running(moves), _Running(spec), torch.float32, questions)
    assert judgement.verdict == verdict, str(judgement)


_FILE = """
import torch


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(3, dtype=torch.cfloat))

    def forward(self, x):
        return torch.view_as_real(x * self.weight{after})


def get_inputs():
    return [torch.randn(3)]


def get_init_inputs():
    return []
"""


@pytest.mark.usefixtures("copied_candidates")
@pytest.mark.parametrize(("after", "code"), [("", 0), (".conj()", 1)])
def test_files_with_complex_weights_are_judged_in_another_process(
    after: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in (("spec", ""), ("candidate", after)):
        Path(f"{name}.py").write_text(_FILE.format(after=text))
    assert main(["judge", "candidate.py", "--spec", "spec.py", "--json", "-k", "FWD:given", "-k", "VJP:grad"]) == code
    assert json.loads(capsys.readouterr().out)["verdict"] == ("rejected" if code else "accepted")
