"""How a spec is traced and read: what goes in and comes out, what it may not do, and what its constants are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import Ball, ball, balls
from opassay.oracles.specs import ARGUMENT, BUFFER, PARAMETER, RESULT, SpecCall, UntraceableError, Values, trace, traced
from opassay.oracles.specs.rules import table
from opassay.reference.derivative import vjp
from opassay.reference.exact import evaluate, to_float_pair

TERMS = contract("float32")


class _Counting(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(3, 2)
        self.register_buffer("total", torch.zeros(2))
        self.register_buffer("kept", torch.ones(1))

    def forward(self, x: Tensor, *, scale: float = 2.0, others: Any = None) -> Any:
        y = self.inner(x) * scale
        self.total += y.sum(0)
        return {"loss": y.mean(), "rows": [y, others["first"] + 1]}


def _values(call: SpecCall) -> list[Any]:
    return [t.detach().double().numpy() if t.is_floating_point() else t.numpy() for t in call.tensors]


def test_inputs_and_outputs_have_their_names() -> None:
    call = SpecCall.of(_Counting(), torch.randn(4, 3), scale=3.0, others={"first": torch.arange(2)})
    formula = trace(call)
    named = [(x.name, x.role) for x in formula.inputs]
    assert named == [
        ("args[0]", ARGUMENT), ("others['first']", ARGUMENT), ("inner.weight", PARAMETER), ("inner.bias", PARAMETER),
        ("total", BUFFER), ("kept", BUFFER),
    ]  # fmt: skip
    assert [(y.name, y.role, y.shape) for y in formula.outputs] == [
        ("['loss']", RESULT, ()), ("['rows'][0]", RESULT, (4, 2)), ("['rows'][1]", RESULT, (2,)),
        ("total", BUFFER, (2,)),
    ]  # fmt: skip
    results, after = call.outputs(*call.tensors)
    result = formula(*_values(call))
    assert result[2].tolist() == [1, 2]
    assert np.abs(result[3] - after[4].detach().numpy()).max() < 1e-5
    assert call.tensors[4].tolist() == [0, 0]
    assert np.abs(result[1] - results[1].detach().numpy()).max() < 1e-5


def test_a_tensor_that_is_given_twice_is_two_inputs() -> None:
    x = torch.randn(3)
    formula = traced(lambda a, b: a - b, x, x)
    assert formula(np.ones(3), np.zeros(3))[0].tolist() == [1, 1, 1]


def _reads_a_number(x: Tensor) -> Tensor:
    return x / float(x.sum())


def _has_no_rule(x: Tensor) -> Any:
    y = x * 2
    return torch.special.erfcx(y)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (_reads_a_number, r"in line \d+ of test_reading.py \(return x / float\(x.sum\(\)\)\): a number, a branch"),
        (lambda x: x[x > 0], "a branch or a shape is read off a tensor there"),
        (
            _has_no_rule,
            r"erfcx.default in line \d+ of test_reading.py \(return torch.special.erfcx\(y\)\), which",
        ),
        (lambda x: x + torch.poisson(x), "draws random numbers of a kind that is not known; put it in evaluation"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_sentence(spec: Any, message: str) -> None:
    with pytest.raises(UntraceableError, match=message) as error:
        traced(spec, torch.ones(3))(np.ones(3))
    assert "\n" not in str(error.value)
    assert "executing" not in str(error.value)


def test_a_spec_that_reads_values_is_read_for_those_values() -> None:
    x = torch.tensor([1.0, -2.0, 4.0])
    formula = trace(SpecCall.of(lambda x: x[x > 0] * 2, x), Values.ALL)
    assert formula(x.numpy())[0].tolist() == [2, 8]


def test_derivatives_stop_where_the_spec_stops_them() -> None:
    def spec(x: Tensor) -> Tensor:
        with torch.no_grad():
            factor = x * 2
            copy = x.clone()
        y = x * 1.0
        with torch.no_grad():
            y.clamp_(max=1.0)
        return factor * x + x.detach() * x + copy + y

    x = np.array([0.5, 3.0])
    (slope,) = vjp(traced(spec, torch.ones(2)), [ball(x, TERMS)])[1](ball(np.ones(2), TERMS))
    assert isinstance(slope, Ball)
    assert slope.centre.tolist() == [2.5, 10.0]  # 2x + x, and 1 of what was clamped without being differentiated


def test_constants_are_rounded_where_floats_are_and_exact_where_integers_are() -> None:
    formula = traced(lambda x: (x, (torch.arange(3) // 2).to(x.dtype), torch.arange(3) / 3), torch.ones(3))
    _, whole, thirds = balls(formula, [np.ones(3)], TERMS)
    assert whole.radii().max() == 0
    assert thirds.radii()[1] > 2.0**-26


def test_an_image_is_interpolated_on_either_side_of_a_whole_coordinate() -> None:
    x = np.random.default_rng(0).standard_normal((1, 1, 7))
    (ball,) = balls(traced(lambda x: F.interpolate(x, size=13, mode="linear"), torch.ones(1, 1, 7)), [x], TERMS)
    # The middle stands at 3, but 7/13 is rounded, so the element before may be mixed in, or the one after.
    assert ball.radii()[0, 0, 6] > 2.0**-24
    (nearest,) = balls(traced(lambda x: F.interpolate(x, scale_factor=2.0), torch.ones(1, 1, 7)), [x], TERMS)
    assert nearest.radii().max() == 0


def test_every_algorithm_of_a_norm_counts_in_a_graph() -> None:
    offset = np.array([[[1e3, 1e3 + 1], [1e3 + 2, 1e3 + 3]]])

    def spec(x: Tensor, w: Tensor) -> Tensor:
        return F.group_norm(x, 1, w) * 1.0

    formula = traced(spec, torch.ones(1, 2, 2), torch.ones(2))
    (whole,) = balls(formula, [offset, np.ones(2)], TERMS)
    centred = offset - offset.mean()
    straight = balls(lambda x: x / np.sqrt(np.mean(np.square(x)) + 1e-5), [centred], TERMS)[0]
    # One factor and one shift per channel lose what the mean is larger than the deviations.
    assert whole.radii().max() > 100 * straight.radii().max()


def test_a_row_of_padding_has_a_value_and_no_gradient() -> None:
    formula = traced(lambda w: F.embedding(torch.tensor([0, 2, 2]), w, padding_idx=2), torch.ones(3, 2))
    table = ball(np.arange(6.0).reshape(3, 2), TERMS)
    (rows,), pull = vjp(formula, [table])
    assert rows.centre.tolist() == [[0, 1], [4, 5], [4, 5]]
    assert pull(ball(np.ones((3, 2)), TERMS))[0].centre.tolist() == [[1, 1], [0, 0], [0, 0]]


def test_a_condition_of_many_is_open_where_one_decides() -> None:
    formula = traced(lambda x: torch.where((x / 3 > 1).any(), x, -x), torch.ones(2))
    third = 3.0
    (open_,) = balls(formula, [np.array([third, 0.0])], TERMS)
    assert open_.radii()[0] >= third
    (sure,) = balls(formula, [np.array([third, 9.0])], TERMS)
    assert sure.radii().tolist() == [0, 0]


@pytest.mark.parametrize(
    "spec",
    [
        lambda x: F.interpolate(x[None, None], size=(5, 4), mode="bicubic"),
        lambda x: F.cross_entropy(x, torch.tensor([1, 0])),
        lambda x: F.pad(x, (1, 2), mode="constant", value=0.5).tril(),
        lambda x: torch.zeros(3, 3).index_put((torch.tensor([1, 1]),), x, accumulate=True),
        lambda x: F.batch_norm(x, None, None, training=True) + x.std(0),
    ],
)
def test_the_exact_values_lie_in_the_balls(spec: Any) -> None:
    x = np.array([[0.5, -1.25, 3.0], [2.0, 0.75, -0.5]])
    formula = traced(spec, torch.ones(2, 3))
    (exact,), _ = evaluate(formula, x)
    (ball,) = balls(formula, [x], TERMS)
    plain = formula(x)[0]
    assert (np.abs(to_float_pair(exact)[0] - ball.centre) <= ball.radii()).all()
    assert (np.abs(plain - ball.centre) <= ball.radii() + 1e-15).all()


def test_what_some_versions_of_torch_lack_has_no_rule_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table, "_NOT_EVERYWHERE", frozenset({"planted"}))
    assert table.overloads("planted exp sum.dim_IntList") == [
        torch.ops.aten.exp.default,
        torch.ops.aten.sum.dim_IntList,
    ]
    with pytest.raises(AttributeError, match="another"):
        table.overloads("another")
