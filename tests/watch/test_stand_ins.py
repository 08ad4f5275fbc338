"""Stand-ins, held against torch's own operations: these are inside their balls, and what is computed wrongly is not."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import opassay
from opassay.properties.watch.call import DispatcherCall, Origin, Switches, results_of
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.stand_ins.lookup import stand_in_of
from tests.watch import stand_in_calls as calls
from tests.watch import stand_in_steps

Tensor = torch.Tensor
FAMILIES = {
    calls: "CONVOLUTIONS DISTANCES EMBEDDINGS LOSSES MOVING POOLING ROUNDING",
    stand_in_steps: "ATTENTION LISTS OPTIMIZERS PRODUCTS RECURRENT",
}
ALL = {
    f"{name}: {case}": maker
    for module, names in FAMILIES.items()
    for name in names.split()
    for case, maker in getattr(module, name).items()
}
#: What torch has not in bfloat16; what it adds up there one after another in it (docs/findings.md); and what it has
#: wrong there: fused SGD leaves out blocks of elements, and fused Adagrad rounds its numbers.
NOT_IN_HALF = (
    "dist", "margin", "weight norm", "antialiased", "RECURRENT", "alignments",
    "CONVOLUTIONS", "avg_pool3d", "segments sum",
    "sgd", "first step", "dampened", "adagrad",
)  # fmt: skip
#: What has no kernel in float64.
NOT_IN_DOUBLE = (
    "cross entropy backward",
    "ATTENTION",
    "PRODUCTS",
    "ROUNDING",
    "inf",
    "RECURRENT",
    "scale",
    "found",
    "norm in float32",
    "margin",
)


def computed_by(function: Callable[..., Any], one: calls.Call, tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """What a function gives for a call with these tensors in the place of its own: what it writes, and the rest."""
    leaves, structure = pytree.tree_flatten((one.args, one.kwargs))
    places = iter(tensors)
    filled = [next(places) if isinstance(leaf, Tensor) else leaf for leaf in leaves]
    args, kwargs = pytree.tree_unflatten(filled, structure)
    return results_of(one.op, args, kwargs, function(*args, **kwargs))


def tensors_of(one: calls.Call) -> tuple[Tensor, ...]:
    return tuple(x.clone() for x in pytree.tree_leaves((one.args, one.kwargs)) if isinstance(x, Tensor))


def bounds_of(one: calls.Call) -> list[Any]:
    stand_in = stand_in_of(one.op)
    assert stand_in is not None, one.op
    read = opassay.bound(lambda *tensors: computed_by(stand_in, one, tensors), *tensors_of(one))
    return [read] if isinstance(read, opassay.Bound) else list(read)


def floating_of(results: tuple[Tensor, ...]) -> list[Tensor]:
    return [y for y in results if y.is_floating_point()]


def worst(results: tuple[Tensor, ...], bounds: list[Any]) -> float:
    """The largest error over its bound; the results may be more than there are bounds."""
    ratios = [0.0]
    for y, bound in zip(floating_of(results), bounds, strict=False):
        error = torch.where(y.double() == bound.centre, 0.0, (y.double() - bound.centre).abs())
        ratio = torch.where(error == 0, 0.0, error / bound.half_width)
        ratios += ratio.nan_to_num(math.inf).flatten().tolist()
    return max(ratios)


def with_fault(one: calls.Call, tensors: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """The operands, one element wrong by a little: the largest that says anything of the first `count` results."""
    right = computed_by(one.op, one, tensors_of(one))
    floating = [i for i, x in enumerate(tensors) if x.dtype == torch.float32]
    for factor, i in itertools.product((1.001, -1.0), floating):
        for place in tensors[i].flatten().abs().argsort(descending=True):
            changed = tensors_of(one)
            changed[i].view(-1)[place] *= factor
            results = computed_by(one.op, one, tuple(x.clone() for x in changed))
            if not all(map(torch.equal, floating_of(right)[:count], floating_of(results)[:count])):
                return changed
    raise AssertionError("no element matters")


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("case", ALL)
def test_torch_is_inside_and_a_wrong_operand_is_not(case: str) -> None:
    one = calls.make(ALL[case], torch.float32)
    bounds, tensors = bounds_of(one), tensors_of(one)
    assert worst(computed_by(one.op, one, tensors_of(one)), bounds) <= 1
    if not any(word in case for word in NOT_IN_DOUBLE):
        exact = tuple(x.double() if x.dtype == torch.float32 and x.numel() > 1 else x for x in tensors_of(one))
        assert worst(computed_by(one.op, one, exact), bounds) <= 1
    assert worst(computed_by(one.op, one, with_fault(one, tensors, len(bounds))), bounds) > 1


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("case", [case for case in ALL if not any(word in case for word in NOT_IN_HALF)])
def test_torch_is_inside_in_half_types(case: str) -> None:
    one = calls.make(ALL[case], torch.bfloat16)
    assert worst(computed_by(one.op, one, tensors_of(one)), bounds_of(one)) <= 1


def test_a_call_is_held_by_the_first_results_that_its_stand_in_gives() -> None:
    one = calls.make(calls.EMBEDDINGS["bags"], torch.float32)
    leaves, structure = pytree.tree_flatten((one.args, one.kwargs))
    results = results_of(one.op, one.args, one.kwargs, one.op(*one.args, **one.kwargs))
    assert len(results) == 4
    finding = CallJudge().hold(DispatcherCall(one.op, tuple(leaves), structure, results, Origin(), Switches(), 0))
    assert (finding.elements, finding.wrong) == (results[0].numel(), None)


@pytest.mark.parametrize("by_channel", [False, True])
def test_a_product_of_quantized_weights_is_held(by_channel: bool) -> None:
    torch.manual_seed(0)
    own = torch.ao.quantization
    wanted = own.per_channel_dynamic_qconfig if by_channel else own.default_dynamic_qconfig
    linear = own.quantize_dynamic(torch.nn.Sequential(torch.nn.Linear(16, 8)), {"0": wanted})
    x, packed = torch.randn(5, 16) - 0.3, linear[0]._packed_params._packed_params
    one = calls.Call(torch.ops.quantized.linear_dynamic.default, (x, packed, True), {})
    leaves, structure = pytree.tree_flatten((one.args, one.kwargs))
    y = one.op(*one.args)
    call = DispatcherCall(one.op, tuple(leaves), structure, (y,), Origin(), Switches(), 0)
    right = CallJudge().hold(call)
    assert (right.wrong, right.reason, right.elements) == (None, "", 40)
    steps = x.amax().clamp(min=0) - x.amin().clamp(max=0)
    call.results = (y + steps / 127 * linear[0].weight().dequantize().abs().amax(),)  # one element rounded otherwise
    assert CallJudge().hold(call).wrong is not None


def test_a_sparse_layout_moves_elements() -> None:
    x = torch.randn(3, 4).relu()
    for name in ("_to_sparse", "_to_sparse_csr"):
        op = getattr(torch.ops.aten, name).default
        leaves, structure = pytree.tree_flatten(((x,), {}))
        call = DispatcherCall(op, tuple(leaves), structure, (op(x).to_dense(),), Origin(), Switches(), 0)
        assert CallJudge().hold(call).elements == 12
        call.results = (call.results[0].roll(1),)
        assert CallJudge().hold(call).wrong is not None
