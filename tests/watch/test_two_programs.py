"""Two forms of a step agree where they compute the same, and what differs is named where it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import opassay
from tests.watch.compared_programs import (
    LABELS,
    Folding,
    Perceptron,
    Recurrent,
    Transformer,
    watch_images,
    watch_rows,
    watch_tokens,
)

Watch = Callable[[], Any]


def _adam(**options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.AdamW(parameters, lr=0.1, **options)


def _sgd(momentum: float = 0.9, **options: Any) -> Callable[[Any], torch.optim.Optimizer]:
    return lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=momentum, **options)


def _steps(optimizer: Callable[[Any], torch.optim.Optimizer]) -> Watch:
    return lambda: watch_rows(Perceptron(0.0), optimizer)


def _transformer(**options: Any) -> Watch:
    return lambda: watch_tokens(Transformer(**options))


#: Two forms of one computation.
RIGHT: dict[str, tuple[Watch, Watch]] = {
    "itself": (_transformer(), _transformer()),
    "attention": (_transformer(is_plain=True), _transformer()),
    "repeated": (_transformer(repeats=True), _transformer()),
    "fused and one by one": (_steps(_adam(fused=True)), _steps(_adam(foreach=False))),
    "lists and one by one": (_steps(_adam(foreach=True)), _steps(_adam(foreach=False))),
    "fused momentum": (_steps(_sgd(fused=True)), _steps(_sgd(foreach=False))),
    "folded": (lambda: watch_images(Folding(is_folded=True)), lambda: watch_images(Folding(is_folded=False))),
    "recurrent": (lambda: watch_rows(Recurrent(by_hand=True)), lambda: watch_rows(Recurrent(by_hand=False))),
    "dropout": (lambda: watch_rows(Perceptron()), lambda: watch_rows(Perceptron())),
}


@pytest.mark.parametrize("name", RIGHT)
def test_two_forms_of_one_computation_agree(name: str) -> None:
    first, second = (watch() for watch in RIGHT[name])
    for here, there in ((first, second), (second, first)):
        comparison = opassay.compare_programs(here, there)
        assert not comparison.differences
        assert comparison.same > min(comparison.here, comparison.there) / 4


def test_a_model_in_bfloat16_differs_only_where_it_is_outside_of_its_own_bound() -> None:
    comparison = opassay.compare_programs(watch_tokens(Transformer(dtype=torch.bfloat16)), watch_tokens(Transformer()))
    assert all(each.wrong == "here" for each in comparison.differences)
    assert comparison.same == comparison.here


def _first(here: Any, there: Any) -> tuple[str, str]:
    """The place and the text of the first difference."""
    comparison = opassay.compare_programs(here, there)
    first = comparison.differences[0]
    assert first.here is not None
    assert first.wrong == ""
    assert first.ratio > 1
    return first.here.text, first.text


def test_a_residual_that_is_forgotten_is_named() -> None:
    right = watch_tokens(Transformer())
    place, text = _first(watch_tokens(Transformer(has_residual=False)), right)
    assert place.startswith("aten::native_layer_norm (second.last")
    assert "aten::add (second, " in text
    assert "there alone" in text
    place, text = _first(watch_tokens(Transformer(has_residual=False, dtype=torch.bfloat16)), right)
    assert "there alone" in text
    assert place.startswith("aten::native_layer_norm (second.last")


def test_another_number_is_named() -> None:
    place, text = _first(watch_tokens(Transformer(eps=1e-3)), watch_tokens(Transformer()))
    assert place.startswith("aten::native_layer_norm (second.norm")
    assert "takes eps=0.001 here and eps=1e-05 there" in text
    place, text = _first(watch_rows(Perceptron(0.2)), watch_rows(Perceptron()))
    assert place.startswith("aten::div_ (drop")
    assert "other=0.8 here" in text


def test_other_weights_and_labels_are_named() -> None:
    other = Transformer()
    with torch.no_grad():
        other.second.up.weight[3, 5] += 1e-3
    place, text = _first(watch_tokens(other), watch_tokens(Transformer()))
    assert place.startswith("aten::addmm (second.up")
    assert "takes other numbers: mat2" in text
    place, text = _first(watch_tokens(Transformer(), labels=LABELS.roll(1)), watch_tokens(Transformer()))
    assert place.startswith("aten::nll_loss")


def test_another_momentum_is_named_at_the_optimizer() -> None:
    place, _ = _first(_steps(_sgd(0.8, fused=True))(), _steps(_sgd(foreach=False))())
    assert "sgd" in place


def test_the_program_whose_call_is_outside_of_its_bound_is_wrong() -> None:
    wrong, right = watch_rows(Perceptron(0.0)), watch_rows(Perceptron(0.0))
    assert wrong.ledger is not None
    call = next(each for each in wrong.ledger.recording.calls if each.name == "aten::tanh")
    call.results = (call.results[0] * 1.001,)
    wrong.ledger.findings.clear()
    wrong.ledger.judge_calls()
    for here, there, side in ((wrong, right, "here"), (right, wrong, "there")):
        (first, *_) = [each for each in opassay.compare_programs(here, there).differences if each.wrong]
        assert first.wrong == side
        assert first.here is not None
        assert first.here.op == "aten::tanh"
        assert "held" in first.text


def test_a_block_that_has_not_ended_is_refused() -> None:
    watcher = opassay.watch()
    with pytest.raises(ValueError, match="ended"):
        opassay.compare_programs(watcher, watcher)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Using `torch.compile", "ignore:`torch.jit")
def test_a_compiled_model_is_the_eager_one_or_what_it_lacks_is_named() -> None:
    right = watch_tokens(Transformer())
    for model in (Transformer(), Transformer(has_residual=False)):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend=opassay.watched("inductor"))
        comparison = opassay.compare_programs(watch_tokens(model, run=compiled), right)
        texts = [each.text for each in comparison.differences if not each.wrong]
        assert bool(texts) is not model.second.has_residual
        if texts:
            assert "aten::add (second, " in texts[0]
