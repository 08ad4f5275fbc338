"""Specs of many kinds are read; what torch computes for them is accepted, and what is wrong is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.specs import SpecCall, traced
from tests.specs import SPECS, gradients, make_example, values

#: Of every kind of rule a few; the command `benchmarks/specs_read.py` reads them all.
NAMES = (
    "layer_norm", "batch_norm_training", "batch_norm_1d", "vector_norms", "moments", "cross_entropy_full",
    "binary_cross_entropy", "kl_div", "multilabel_margin_loss", "gaussian_nll_loss", "embedding",
    "embedding_bag_offsets", "gather_and_scatter", "scatter_reduce", "index_put_and_add", "masks",
    "split_chunk_unbind", "windows", "pads", "strided", "empty_and_scalar", "one_hot", "interpolate_linear",
    "attention_masked", "linear_bias_scale_residual", "linear_weight_norm", "in_place", "autocast",
    "without_gradients", "conv_instance_norm_divide", "cells", "long_convolution",
)  # fmt: skip


def _call(name: str, dtype: torch.dtype = torch.float32) -> SpecCall:
    example = make_example(name, SPECS[name], dtype)
    return SpecCall.of(example.spec, *example.args)


@pytest.mark.one_fast_in(7)
@pytest.mark.parametrize("name", NAMES)
def test_torch_is_accepted(name: str) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        call = _call(name, dtype)
        try:
            results, after = call.outputs(*call.tensors)
        except NotImplementedError:
            assert name == "multilabel_margin_loss"  # torch has no kernel for bfloat16.
            continue
        result = values(call, str(dtype).removeprefix("torch."), results, after)
        assert result.refusals == 0, result.line()
        assert result.judged > 0
    result = gradients(_call(name))
    assert result.refusals == 0, result.line()


def _normalised(x: Tensor) -> Tensor:
    return F.layer_norm(x, (8,))


def _picked(x: Tensor) -> Tensor:
    return x[:, [0, 3, 5]].scatter_add(1, torch.zeros(4, 1, dtype=torch.int64), x[:, :1])


def _widened(x: Tensor) -> Tensor:
    return F.interpolate(x[None], size=11, mode="linear")[0]


def _length(x: Tensor) -> Any:
    return torch.linalg.vector_norm(x, dim=1)


def _spread(x: Tensor) -> Tensor:
    return x.var(1)


def _lose(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.tensor([1, 0, 2, 2]), ignore_index=0, label_smoothing=0.1)


def _subtracted(x: Tensor) -> Any:
    return torch.rsub(x, 3, alpha=2)


#: A spec, and a candidate with one mistake.
MISTAKES: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (_normalised, lambda x: F.layer_norm(x, (8,), eps=1e-3)),
    (_normalised, lambda x: _normalised(x) * (1 + 2e-5)),
    (_picked, lambda x: x[:, [0, 3, 6]].scatter_add(1, torch.zeros(4, 1, dtype=torch.int64), x[:, :1])),
    (_picked, lambda x: x[:, [0, 3, 5]].scatter(1, torch.zeros(4, 1, dtype=torch.int64), x[:, :1])),
    (_widened, lambda x: F.interpolate(x[None], size=11, mode="linear", align_corners=True)[0]),
    (_length, lambda x: x.abs().sum(1)),
    (_length, lambda x: (x.square().sum(1) + 1e-4).sqrt()),
    (_spread, lambda x: x.var(1, correction=0)),
    (_subtracted, lambda x: 6 - x),
    (_lose, lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2, 2]), label_smoothing=0.1)),
    (_lose, lambda x: F.cross_entropy(x, torch.tensor([1, 0, 2, 2]), ignore_index=0)),
)


@pytest.mark.parametrize(("spec", "candidate"), MISTAKES)
def test_a_candidate_with_one_mistake_is_refused(spec: Callable[..., Any], candidate: Callable[..., Any]) -> None:
    torch.manual_seed(5)
    x = torch.randn(4, 8)
    call = SpecCall.of(spec, x)
    assert values(call, "float32", [spec(x)]).refusals == 0
    assert values(call, "float32", [candidate(x)]).refusals > 0


def test_a_wrong_count_of_results_is_no_reading() -> None:
    formula = traced(_spread, torch.randn(4, 8))
    with pytest.raises(TypeError, match="arrays: got 2, need 1"):
        formula(torch.ones(4, 8).numpy(), torch.ones(4, 8).numpy())
