"""Regions with a spec are held as one call: operators, autograd functions forward and backward, classes of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils import _pytree as pytree

import opassay
from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import Site, Watched
from opassay.properties.watch.call import DispatcherCall, Origin, Switches
from opassay.properties.watch.compiled import GraphRegion
from opassay.properties.watch.judging import CallFinding, CallJudge
from opassay.properties.watch.regions import TABLE

Tensor = torch.Tensor
_LIBRARY = torch.library.Library("opassay_test_regions", "DEF")
_LIBRARY.define("silu_mul(Tensor a, Tensor b) -> Tensor")
_FAULT = {"silu_mul": 1.0, "forward": 1.0, "backward": 1.0, "module": 1.0, "nan": torch.nan}
_LIBRARY.impl("silu_mul", lambda a, b: a * torch.sigmoid(a) * b * _FAULT["silu_mul"], "CPU")


class Norm(torch.autograd.Function):
    """A norm with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, eps: float) -> Tensor:
        scale = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps * _FAULT["forward"])
        ctx.save_for_backward(x, weight, scale)
        return x * scale * weight

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> tuple[Tensor, Tensor, None]:
        x, weight, scale = ctx.saved_tensors
        g = cotangents[0] * weight
        dx = g * scale - x * scale.pow(3) * (g * x).mean(-1, keepdim=True) * _FAULT["backward"]
        return dx, (cotangents[0] * x * scale).flatten(0, -2).sum(0), None


class Doubled(torch.autograd.Function):
    """A function of the form with a context that is set up apart."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
        pass

    @staticmethod
    def backward(ctx: Any, *cotangents: Tensor) -> Tensor:
        return cotangents[0] * 2 * _FAULT["backward"]


class Selected(torch.autograd.Function):
    """Where a mask is not 1, it has no product, and so no NaN."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor) -> Tensor:
        return torch.where(mask == 1, torch.nan_to_num(x.exp(), nan=_FAULT["nan"]), 0)


class Block(nn.Module):
    """A block that adds its input to what it computes."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.linear(x)) + x * _FAULT["module"]


def _norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * weight


@pytest.fixture(autouse=True)
def specs() -> Iterator[None]:
    """The specs of these regions, and no faults."""
    opassay.spec("opassay_test_regions::silu_mul", lambda a, b: F.silu(a) * b)
    opassay.spec(Norm, _norm)
    opassay.spec(Doubled, lambda x: x + x)
    opassay.spec(Block, lambda module, x: x + torch.tanh(F.linear(x, module.linear.weight, module.linear.bias)))
    opassay.spec(Selected, lambda x, mask: x.exp() * mask)
    faults = dict(_FAULT)
    yield
    TABLE.clear()
    _FAULT.update(faults)


def _step() -> Watched:
    torch.manual_seed(0)
    block, weight = Block(), torch.ones(6, requires_grad=True)
    norm: Callable[..., Tensor] = Norm.apply
    double: Callable[..., Tensor] = Doubled.apply
    with opassay.watch(block) as watcher:
        y = norm(block(torch.randn(4, 6)), weight, 1e-2)
        y = double(y) + torch.ops.opassay_test_regions.silu_mul(y.detach(), y.detach())
        y.square().mean().backward()
    assert watcher.result is not None
    return watcher.result


def _outside(watched: Watched) -> list[str]:
    return [site.place.op for site in watched.sites if site.outcome is Outcome.FAIL]


def _site(watched: Watched, op: str) -> Site:
    return next(site for site in watched.sites if site.place.op == op)


def test_right_regions_are_held() -> None:
    watched = _step()
    names = ["opassay_test_regions::silu_mul", "Norm", "Norm backward", "Doubled", "Doubled backward", "Block"]
    assert {_site(watched, name).outcome for name in names} == {Outcome.VERIFIED}
    assert _outside(watched) == []
    assert _site(watched, "Norm backward").place.node == "NormBackward"
    assert _site(watched, "Block").place.module == "Block"


@pytest.mark.parametrize(
    ("fault", "value", "sites"),
    [
        ("silu_mul", 1.0001, ["opassay_test_regions::silu_mul"]),
        ("forward", 1.1, ["Norm", "Norm backward"]),  # the backward uses what the forward has saved
        ("backward", 1.01, ["Doubled backward", "Norm backward"]),
        ("module", 0.0, ["Block"]),
    ],
)
def test_a_wrong_region_is_named_and_nothing_else(fault: str, value: float, sites: list[str]) -> None:
    _FAULT[fault] = value
    assert _outside(_step()) == sites


@pytest.mark.parametrize(("value", "sites"), [(torch.nan, []), (0.0, ["Selected"])])
def test_a_nan_need_not_reach_what_does_not_depend_on_it(value: float, sites: list[str]) -> None:
    """The reference multiplies NaN by 0. Where the result depends on it, no number is right."""
    _FAULT["nan"] = value
    select: Callable[..., Tensor] = Selected.apply
    with opassay.watch() as watcher:
        select(torch.tensor([0.5, torch.nan, torch.nan, 1.0]), torch.tensor([1.0, 0.0, 1.0, 0.0]))
    assert watcher.result is not None
    assert _outside(watcher.result) == sites


def test_a_region_counts_once_in_the_error_of_the_loss() -> None:
    watched = _step()
    inner = [site for site in watched.sites if site.place.module == "linear" and not site.place.node]
    assert inner
    assert all(site.totals.contribution != site.totals.contribution for site in inner)
    assert watched.loss is not None
    assert _site(watched, "Block").totals.size > 0


def test_classes_are_as_they_were_afterwards() -> None:
    before = [(Norm.__dict__[name], Doubled.__dict__.get(name)) for name in ("forward", "backward")]
    forward = Block.forward
    _step()
    assert [(Norm.__dict__[name], Doubled.__dict__.get(name)) for name in ("forward", "backward")] == before
    assert Block.forward is forward
    assert "setup_context" not in Norm.__dict__


def _hold_graph() -> CallFinding:
    """What is found about a compiled graph that calls the operator."""

    def function(a: Tensor, b: Tensor) -> Tensor:
        product: Tensor = torch.ops.opassay_test_regions.silu_mul(a + b, b)
        return product.sum()

    a, b = torch.randn(3, 4), torch.randn(3, 4)
    leaves, structure = pytree.tree_flatten(((a, b), {}))
    region = GraphRegion("graph", make_fx(function)(a, b))
    results = (function(a, b),)
    return CallJudge().hold(DispatcherCall(region, tuple(leaves), structure, results, Origin(), Switches(), 0))


def test_an_operator_within_a_compiled_graph_is_read_by_its_spec() -> None:
    torch.manual_seed(0)
    right = _hold_graph()
    assert (right.reason, right.wrong) == ("", None)
    _FAULT["silu_mul"] = 1.0001
    assert _hold_graph().wrong is not None
    TABLE.clear()
    assert "opassay_test_regions.silu_mul" in _hold_graph().reason


def test_a_region_without_a_spec_is_told() -> None:
    TABLE.clear()
    watched = _step()
    assert dict(watched.regions) == {"Norm": 1, "Doubled": 1, "opassay_test_regions::silu_mul": 1}
    assert _site(watched, "opassay_test_regions::silu_mul").outcome is Outcome.UNSUPPORTED


def test_targets_that_are_none_are_refused() -> None:
    with pytest.raises(TypeError, match="target: got 3"):
        opassay.spec(3, _norm)
    with pytest.raises(ValueError, match="NAMESPACE::NAME"):
        opassay.spec("norm", _norm)
    with pytest.raises(ValueError, match="backward: got one"):
        opassay.spec("a::norm", _norm, backward=_norm)
