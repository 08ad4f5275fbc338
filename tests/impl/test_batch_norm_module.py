"""BatchNorm1d, 2d and 3d are torch.nn's to everything but the kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.func import functional_call, grad

from opassay import impl

MODULES = [
    (impl.BatchNorm1d, torch.nn.BatchNorm1d, (6, 4)),
    (impl.BatchNorm1d, torch.nn.BatchNorm1d, (6, 4, 5)),
    (impl.BatchNorm2d, torch.nn.BatchNorm2d, (6, 4, 5, 2)),
    (impl.BatchNorm3d, torch.nn.BatchNorm3d, (6, 4, 5, 2, 3)),
]
ARGUMENTS: list[dict[str, Any]] = [
    {},
    {"momentum": None},
    {"momentum": 0.3, "eps": 1e-3},
    {"affine": False},
    {"track_running_stats": False},
    {"dtype": torch.float64, "affine": False, "momentum": None},
]
CLOSE = 2.0**10
"""Bound on the difference to torch, in units of u and relative to the largest element: a few passes over 30 elements
and 4 steps of the running statistics, some hundred operations on rows of unit scale."""


def assert_near(ours: torch.Tensor, theirs: torch.Tensor) -> None:
    assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
    if not ours.is_floating_point():
        assert torch.equal(ours, theirs)
    else:
        bound = CLOSE * torch.finfo(ours.dtype).eps / 2 * theirs.abs().max().item()
        assert (ours - theirs).abs().max().item() <= bound


@pytest.mark.parametrize(("ours", "theirs", "shape"), MODULES, ids=str)
@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_steps_of_training_and_evaluation(ours: Any, theirs: Any, shape: Any, arguments: dict[str, Any]) -> None:
    """Outputs, buffers and state_dicts, both ways, over some batches."""
    torch.manual_seed(0)
    theirs, ours = theirs(4, **arguments), ours(4, **arguments)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    for training in (True, True, False, True, False):
        x = torch.randn(shape, dtype=arguments.get("dtype", torch.float32))
        assert_near(ours.train(training)(x), theirs.train(training)(x))
        assert list(ours.state_dict()) == list(theirs.state_dict())
        for name, buffer in theirs.state_dict().items():
            assert_near(ours.state_dict()[name], buffer)
    type(theirs)(4, **arguments).load_state_dict(ours.state_dict())


def test_another_rank_is_refused() -> None:
    with pytest.raises(ValueError, match="expected 4D input"):
        impl.BatchNorm2d(4)(torch.ones(2, 4, 5))


@pytest.mark.slow
def test_a_module_under_func_grad_counts_its_batches() -> None:
    """torch's own module is refused there: it counts in place by an aten op."""
    x = torch.randn(6, 4)
    module, theirs = impl.BatchNorm1d(4), torch.nn.BatchNorm1d(4)
    gradients = grad(lambda p: functional_call(module, p, (x,)).square().sum())(dict(module.named_parameters()))
    theirs(x)
    assert set(gradients) == {"weight", "bias"}
    for name, buffer in theirs.state_dict().items():
        assert_near(module.state_dict()[name], buffer)
