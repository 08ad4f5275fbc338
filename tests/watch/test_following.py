"""The error of any number that a program names is followed to the calls, against the same step in float64."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any, cast

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import opassay
from opassay.oracles.verdicts.watched import LossFacts
from opassay.properties.watch.regions import TABLE
from opassay.reports.watch.html import render
from opassay.reports.watch.text import lines_of
from tests.watch.programs import PROGRAMS
from tests.watch.test_recorder import record

Tensor = torch.Tensor
CLASSES = 7


class _Transformer(nn.Module):
    """One layer with causal attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.norm, self.qkv = nn.Embedding(11, 16), nn.LayerNorm(16), nn.Linear(16, 48)
        self.up, self.down, self.head = nn.Linear(16, 32), nn.Linear(32, 16), nn.Linear(16, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        x: Tensor = self.embedding(tokens)
        q, k, v = self.qkv(self.norm(x)).view(*x.shape[:2], 3, 2, 8).permute(2, 0, 3, 1, 4)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape)
        scores: Tensor = self.head(x + self.down(F.gelu(self.up(x))))
        return scores


def _perceptron() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Linear(12, 24), nn.GELU(), nn.LayerNorm(24), nn.Linear(24, CLASSES))
    return model, torch.randn(9, 12)


def _convolutions() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.SiLU(), nn.AvgPool2d(2), nn.Conv2d(4, 4, 3), nn.Tanh(),
        nn.Flatten(), nn.Linear(16, CLASSES),
    )  # fmt: skip
    return model, torch.randn(4, 3, 8, 8)


MODELS: dict[str, Callable[[], tuple[nn.Module, Tensor]]] = {
    "perceptron": _perceptron,
    "convolutions": _convolutions,
    "transformer": lambda: (_Transformer(), torch.randint(0, 11, (2, 6))),
}


def _step(model: nn.Module, x: Tensor) -> dict[str, Any]:
    logits = model(x).flatten(0, -2)
    loss = F.cross_entropy(logits, torch.arange(len(logits)) % CLASSES)
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    return {"logits": logits, "norm": norm, "loss": loss, "slope": next(model.parameters()).grad}


def _facts(watcher: opassay.Watcher) -> LossFacts:
    assert watcher.result is not None
    assert watcher.result.loss is not None
    return watcher.result.loss


def _follow(name: str, model: str, dtype: torch.dtype, of: str = "") -> tuple[LossFacts, float]:
    """What the calls explain of the error of a tensor's largest element, and that error."""
    torch.manual_seed(1)
    module, x = MODELS[model]()
    module, x = module.to(dtype), x.to(dtype) if x.is_floating_point() else x
    exact = copy.deepcopy(module).double()
    with opassay.watch(module, of=of or name) as watcher:
        computed = _step(module, x)[name].detach().double().reshape(-1)
    right = _step(exact, x.double() if x.is_floating_point() else x)[name].detach().reshape(-1)
    at = computed.abs().argmax()
    return _facts(watcher), float(computed[at] - right[at])


# Errors that grow to √u in a step leave a rest of √u of themselves to second order.
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", ["logits", "norm", pytest.param("loss", marks=pytest.mark.slow)])
def test_the_calls_explain_the_error_of_what_is_named(name: str, model: str, dtype: torch.dtype) -> None:
    facts, error = _follow(name, model, dtype)
    assert facts.unknown == ()
    assert facts.size > 0
    assert not math.isnan(facts.error)  # which first order does not know
    assert abs(facts.explained - error) <= math.sqrt(torch.finfo(dtype).eps) * facts.size


@pytest.mark.parametrize(
    ("of", "name", "text"),
    [
        ("3", "logits", "aten::addmm (3, "),
        ("model.3", "logits", "aten::addmm (3, "),
        ("logits [ 2, -1 ]", "", "one of its 9 × 7 elements, of aten::addmm"),
        ("tests/watch/test_following.py:65", "loss", "aten::nll_loss_forward (tests/watch/test_following.py:65)"),
    ],
)
def test_a_number_has_many_names(of: str, name: str, text: str) -> None:
    facts, error = _follow(name or "logits", "perceptron", torch.float32, of)
    assert text in facts.about
    if name:
        assert abs(facts.explained - error) <= math.sqrt(torch.finfo(torch.float32).eps) * facts.size
    else:
        assert facts.name == "logits[2, 6]"


def test_a_gradient_of_a_parameter_is_its_value_at_the_end() -> None:
    facts, error = _follow("slope", "perceptron", torch.float32, "model.0.weight.grad")
    assert "aten::_foreach_mul_" in facts.about  # which clips
    assert abs(facts.explained - error) <= math.sqrt(torch.finfo(torch.float32).eps) * facts.size


def test_what_was_written_by_parts_is_followed_through_all_of_them() -> None:
    x = torch.randn(4, 6)

    def program(x: Tensor) -> Tensor:
        rows = torch.zeros(4, 6, dtype=x.dtype)
        for i in range(4):
            rows[i] = torch.sin(x[i])
        rows[1:3, ::2].mul_(1 / 3)
        return rows.exp().sum()

    with opassay.watch(of="value") as watcher:
        value = program(x)
    error = float(value.double() - program(x.double()))
    assert abs(_facts(watcher).explained - error) <= math.sqrt(torch.finfo(torch.float32).eps) * _facts(watcher).size
    sizes = {site.place.op: site.totals.size for site in watcher.result.sites} if watcher.result else {}
    assert sizes["aten::sin"] > 0


def test_a_region_is_pulled_back_through_its_spec_and_another_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x + x

    monkeypatch.setitem(TABLE, Twice, None)
    opassay.spec(Twice, lambda x: x * 2)
    library = torch.library.Library("opassay_following", "FRAGMENT")
    library.define("opaque(Tensor x) -> Tensor")
    library.impl("opaque", lambda x: x * 3, "CompositeExplicitAutograd")
    x, twice = torch.randn(5), cast(Any, Twice.apply)
    with opassay.watch(of="total") as watcher:
        total = (twice(x.sin()) + torch.ops.opassay_following.opaque(x.cos())).sum()
    assert float(total) == _facts(watcher).value
    sizes = {site.place.op: site.totals.size for site in watcher.result.sites} if watcher.result else {}
    assert sizes["aten::sin"] > 0
    assert set(_facts(watcher).unknown) == {"aten::cos", "opassay_following::opaque"}


def test_what_has_no_name_is_refused_with_what_has_one() -> None:
    with pytest.raises(
        ValueError, match=r"of: 'logit' is no floating .*logits, .*modules: 0, .*test_following\.py:\d+"
    ):
        _follow("loss", "perceptron", torch.float32, "logit")
    with pytest.raises(ValueError, match=r"of: got element \[9, 0\] of logits, which has the shape \(9, 7\)"):
        _follow("loss", "perceptron", torch.float32, "logits[9, 0]")
    with pytest.raises(ValueError, match="of: got 'logits\\[', need a variable"):
        opassay.watch(of="logits[")
    with pytest.raises(ZeroDivisionError), opassay.watch(of="nothing"):
        raise ZeroDivisionError


@pytest.mark.parametrize("name", ["mlp", "written_views", "threads", "checkpoints"])
def test_a_program_that_is_looked_into_computes_the_same_bits(name: str) -> None:
    plain, _ = record(PROGRAMS[name])
    looked_into, recorder = record(PROGRAMS[name], of="y")
    assert not recorder.faults
    assert all(torch.equal(a, b) for a, b in zip(plain, looked_into, strict=True))


def test_the_page_and_the_summary_say_whose_error_it_is() -> None:
    torch.manual_seed(1)
    module, x = MODELS["perceptron"]()
    with opassay.watch(module, of="logits") as watcher:
        _step(module, x)
    watched, element = watcher.result, _facts(watcher).name
    assert watched is not None
    text, page = "\n".join(lines_of(watched)), render(watched)
    for words in (f"{element}, the largest of its 9 × 7 elements, of aten::addmm (3, ", "is -1.3"):
        assert words in text
        assert words in page
    assert f"moves {element} by" in page
    assert "the loss" not in page.partition('<section id="reading">')[0] + text
