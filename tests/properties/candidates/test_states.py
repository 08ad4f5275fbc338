"""The states in which a right kernel is called: several graphs alive, threads, evaluation, other parameter objects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from opassay.properties.candidates.judgement import Judgement, Ruling
from opassay.properties.candidates.judging import judge
from opassay.properties.candidates.question_plan import USUAL

X = torch.randn(8, 16, generator=torch.Generator().manual_seed(5))


def cubed(x: Tensor) -> Tensor:
    return x * x * x


class SavesOnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return cubed(x)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return g[0] * 3 * x * x


class SavesOnClass(SavesOnContext):
    """Its backward is that of the latest forward."""

    latest = torch.zeros(())

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        SavesOnClass.latest = x
        return cubed(x)

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        return g[0] * 3 * SavesOnClass.latest * SavesOnClass.latest


class OneGradient(SavesOnContext):
    """All gradients of one shape are in one tensor."""

    @staticmethod
    def backward(ctx: Any, *g: Tensor) -> Any:
        memory = _MEMORY.setdefault(tuple(g[0].shape), torch.empty_like(g[0]))
        return memory.copy_(SavesOnContext.backward(ctx, *g))


_MEMORY: dict[tuple[int, ...], Tensor] = {}


def of_leaves_alone(x: Tensor) -> Tensor:
    out = cubed(x)
    return out if x.is_leaf else 2 * out - out.detach()


def of_one_thread(x: Tensor) -> Tensor:
    return cubed(x) if torch.get_num_threads() == 1 else torch.zeros_like(x)


def softmax_of_one_thread(x: Tensor) -> Tensor:
    out = torch.softmax(x, 0)
    return out if torch.get_num_threads() == 1 else torch.zeros_like(out)


def by_threads(x: Tensor) -> Tensor:
    """Its sums have another order for each number of threads."""
    parts = x.chunk(torch.get_num_threads(), -1)
    return sum(part.sum(-1) for part in reversed(parts))  # type: ignore[return-value]


class Batch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(16)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm(x)
        return out


class BatchInEvaluationToo(Batch):
    def forward(self, x: Tensor) -> Tensor:
        norm = self.norm
        assert norm.num_batches_tracked is not None
        norm.num_batches_tracked.add_(1)
        return F.batch_norm(
            x, norm.running_mean, norm.running_var, norm.weight, norm.bias, True, norm.momentum or 0.0, norm.eps
        )


class Drop(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.drop(x)
        return out


class DropInEvaluationToo(Drop):
    def forward(self, x: Tensor) -> Tensor:
        return F.dropout(x, 0.5)


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4, 16))

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.weight.mT


class Repacking(Linear):
    """It packs its weight anew whenever that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.known: tuple[Any, ...] = ()

    def forward(self, x: Tensor) -> Tensor:
        if not self.known or self.known[0] is not self.weight or self.known[1] != self.weight._version:
            self.known = self.weight, self.weight._version, self.weight.detach().mT.contiguous()
        packed: Tensor = self.known[2]
        return x @ packed


class PackedOnce(Linear):
    """It packs the parameter that it had first, though anew where that is written."""

    def __init__(self) -> None:
        super().__init__()
        self.own = [self.weight]

    def forward(self, x: Tensor) -> Tensor:
        return x @ self.own[0].mT


class Tied(nn.Module):
    """Two modules have one weight, which has one name among the parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.second.weight = self.first.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.second(torch.relu(self.first(x)))
        return out


def _judge(candidate: Any, spec: Any, *questions: str) -> Judgement:
    return judge(candidate, spec, (X,), questions=questions)


def _apply(function: Any) -> Callable[[Tensor], Tensor]:
    return lambda x: function.apply(x)


@pytest.mark.parametrize(
    ("candidate", "text"),
    [
        (_apply(SavesOnClass), "second backward through the same graph, after a call at other values"),
        (_apply(OneGradient), "the gradient of x was changed by the backward of a later call"),
        (of_leaves_alone, "at other inputs and parameters, no leaves"),
    ],
)
def test_several_graphs_may_be_alive_and_inputs_need_not_be_leaves(candidate: Any, text: str) -> None:
    judgement = _judge(candidate, cubed, "FWD:given", "VJP:grad")
    assert [each.question for each in judgement.causes] == ["VJP:grad"], str(judgement)
    assert text in str(judgement)
    assert _judge(_apply(SavesOnContext), cubed, "FWD:given", "VJP:grad").verdict is Ruling.ACCEPTED


def test_no_other_question_finds_a_gradient_that_a_later_call_changes() -> None:
    judgement = _judge(_apply(OneGradient), cubed, *(code for code in USUAL if code != "LIKELY"))
    assert [each.question for each in judgement.causes] == ["VJP:grad"], str(judgement)


@pytest.mark.fast_cases("softmax_of_one_thread")
@pytest.mark.parametrize(
    ("wrong", "spec"), [(of_one_thread, cubed), (softmax_of_one_thread, lambda x: torch.softmax(x, 0))]
)
def test_torch_has_several_threads_in_one_call(wrong: Any, spec: Any) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        judgement = _judge(wrong, spec, "FWD:given", "SIZE:sizes")
        assert [each.question for each in judgement.causes] == ["SIZE:sizes"], str(judgement)
        assert "where torch has several threads" in str(judgement)
        assert torch.get_num_threads() == 1
        assert _judge(spec, spec, "FWD:given", "SIZE:sizes").verdict is Ruling.ACCEPTED
        right = _judge(by_threads, lambda x: x.sum(-1), "FWD:given", "SIZE:sizes")
        assert right.verdict is Ruling.ACCEPTED, str(right)
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(("spec", "wrong"), [(Batch, BatchInEvaluationToo), (Drop, DropInEvaluationToo)])
def test_a_module_in_training_is_asked_in_evaluation_too(spec: Any, wrong: Any) -> None:
    judgement = _judge(wrong(), spec(), "FWD:given", "FWD:params")
    assert [each.question for each in judgement.causes] == ["FWD:params"], str(judgement)
    assert "call       in evaluation" in str(judgement)
    right = spec()
    assert _judge(right, spec(), "FWD:given", "FWD:params").verdict is Ruling.ACCEPTED
    assert right.training
    # A kernel that is made for evaluation is not asked in training.
    assert _judge(spec().eval(), spec().eval(), "FWD:given", "FWD:params").verdict is Ruling.ACCEPTED


def test_a_function_has_no_evaluation() -> None:
    judgement = _judge(lambda x: F.dropout(x, 0.5), Drop(), "FWD:given", "FWD:params")
    assert not judgement.causes, str(judgement)
    assert "a function has no evaluation" in str(judgement)


@pytest.mark.parametrize("right", [Linear, Repacking])
def test_parameters_may_be_other_objects(right: Any) -> None:
    judgement = _judge(PackedOnce(), Linear(), "FWD:given", "FWD:params")
    assert [each.question for each in judgement.causes] == ["FWD:params"], str(judgement)
    assert "call       after load_state_dict(assign=True)" in str(judgement)
    module = right()
    own = module.weight
    assert _judge(module, Linear(), "FWD:given", "FWD:params").verdict is Ruling.ACCEPTED
    assert module.weight is own


def test_a_tied_weight_is_replaced_wherever_it_stands() -> None:
    module = Tied()
    judgement = _judge(module, Tied(), "FWD:given", "FWD:params", "VJP:grad")
    assert judgement.verdict is Ruling.ACCEPTED, str(judgement)
    assert module.first.weight is module.second.weight
