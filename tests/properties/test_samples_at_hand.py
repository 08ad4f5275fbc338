"""Samples without a strategy: calls at hand, functions that give one, and shapes with integers among the arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import opassay
from opassay import Integers, Op, Outcome, Settings, declare, verify, verify_kernel
from opassay.properties.declaring.user_samples import drawer

Tensor = torch.Tensor
FEW = Settings("brief", max_examples=6, simpler=False)
X, W = torch.randn(3, 5), torch.randn(5)
SHAPES: dict[str, Any] = {"x": ("N", "n"), "k": Integers(4, least=2)}
LABELS: dict[str, Any] = {"x": ("N", "C"), "target": Integers("C", ("N",))}


def product(x: Any, w: Any) -> Any:
    return x * w


def declared(samples: Any, **changes: Any) -> Op:
    options: dict[str, Any] = {"differentiable": ("x", "w"), "dtypes": lambda x: (x.dtype,), **changes}
    return declare(product, {"opassay": product}, samples, **options)


def outcomes(op: Op, *codes: str) -> list[Outcome]:
    return [v.outcome for v in verify(op, properties=codes or ("FWD", "VJP"), dtypes="fp32", settings=FEW)]


@pytest.mark.parametrize(
    "samples",
    [
        [(X, W)],
        [{"w": W, "x": X}, (X, W)],
        lambda: (X, W),
        lambda rng: {"x": X, "w": W},
        {"w": ("n",), "x": ("N", "n")},
    ],
)
def test_samples_need_no_strategy(samples: Any) -> None:
    assert outcomes(declared(samples)) == [Outcome.VERIFIED] * 2


def test_a_function_of_nothing_gives_the_same_sample_for_a_seed() -> None:
    draw = drawer(product, lambda: (torch.randn(2), W))
    before = torch.random.get_rng_state()
    first, again, other = (draw(np.random.default_rng(seed))[0] for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize(
    ("samples", "error", "message"),
    [
        (X, TypeError, r"samples: got a Tensor of shape \(3, 5\), need tuples"),
        ([X], TypeError, "samples: got a Tensor, need tuples"),
        ([], ValueError, "samples: got none"),
        ([{"X": X, "w": W}], TypeError, r"argument='X' \(did you mean 'x'\?\), need one of x, w"),
        ([(X,)], TypeError, "samples: 1 arguments do not go with forward: missing a required argument: 'w'"),
        ({"x": ("n",), "W": ("n",)}, ValueError, r"samples: got argument 'W' \(did you mean 'w'\?\), need one of x, w"),
        ({"x": ("n",)}, ValueError, "samples: got no 'w'"),
        ({"x": X, "w": W}, TypeError, r"got a Tensor of shape \(3, 5\) for 'x', need a tuple"),
        ({"x": Integers(3), "w": Integers(3)}, ValueError, "shapes: got none"),
        ({"x": ("n",), "w": Integers("2n")}, ValueError, "shapes: got '2n' in w=Integers"),
    ],
)
def test_what_is_no_sample_is_refused_by_name(samples: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        declared(samples)


def test_names_of_keywords_and_dtypes_are_read() -> None:
    with pytest.raises(TypeError, match=r"product: unknown keyword: got keyword='flsh' \(did you mean 'flush'\?\)"):
        declared([(X, W)], flsh=True)
    op = declared([(X, W)], dtypes=lambda x: ("fp32",), differentiable="x")
    assert (op.differentiable, outcomes(op, "FWD")) == (("x",), [Outcome.VERIFIED])
    assert outcomes(declared([(X, W)], dtypes=lambda x: ("bf16",)), "FWD") == [Outcome.FAIL]


# --------------------------------------------------------------------------------------------------------- integers


def moment(x: Any, k: int) -> Any:
    return np.sum(x**k, -1)


def of_torch(x: Tensor, k: int) -> Tensor:
    return (x**k).sum(-1)


def squares(x: Tensor, k: int) -> Tensor:
    return (x**2).sum(-1)


def loss(x: Tensor, target: Tensor) -> Tensor:
    return torch.nn.functional.cross_entropy(x, target, reduction="none")


def by_rows(x: Tensor, target: Tensor) -> Tensor:
    return -torch.log_softmax(x, 1).gather(1, target[:, None])[:, 0]


def eight_classes(x: Tensor, target: Tensor) -> Tensor:
    return loss(x, target.clamp(max=7))


@pytest.mark.fast_cases("fail")
@pytest.mark.parametrize(("kernel", "outcome"), [(of_torch, Outcome.VERIFIED), (squares, Outcome.FAIL)])
def test_a_count_is_drawn(kernel: Any, outcome: Outcome) -> None:
    op = declare(moment, {"opassay": kernel}, SHAPES, ("x",), lambda x: (x.dtype,))
    assert outcomes(op, "FWD", "VMAP")[0] == outcome
    for reference in (moment, of_torch):
        verdicts = verify_kernel(kernel, reference, SHAPES, properties=("FWD", "VJP"), settings=FEW)
        assert {v.outcome for v in verdicts} == {outcome}, str(verdicts)


@pytest.mark.fast_cases("fail")
@pytest.mark.parametrize(("kernel", "outcome"), [(by_rows, Outcome.VERIFIED), (eight_classes, Outcome.FAIL)])
def test_labels_are_below_the_number_of_classes(kernel: Any, outcome: Outcome) -> None:
    verdicts = verify_kernel(kernel, loss, LABELS, properties=("FWD", "VJP", "EMPTY", "LAYOUT", "WAYS"), settings=FEW)
    assert [v.outcome for v in verdicts][:2] == [outcome] * 2, str(verdicts)
    assert outcome is Outcome.FAIL or opassay.ok(verdicts), str(verdicts)


def test_shapes_say_how_many_dims_there_are() -> None:
    (verdict,) = verify_kernel(
        lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, 1), {"x": ("N", "n")}, properties="WAYS",
        settings=FEW,
    )  # fmt: skip
    assert verdict.outcome is Outcome.VERIFIED, str(verdict)
