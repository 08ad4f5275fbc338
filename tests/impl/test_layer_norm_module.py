"""LayerNorm the module is torch.nn.LayerNorm to everything but the kernel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from opassay.impl import LayerNorm, layer_norm

ARGUMENTS: list[dict[str, Any]] = [
    {"normalized_shape": 6},
    {"normalized_shape": (5, 6), "eps": 1e-3},
    {"normalized_shape": [6], "bias": False},
    {"normalized_shape": (6,), "elementwise_affine": False},
    {"normalized_shape": (6,), "dtype": torch.float64},
]


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_state_dict_both_ways(arguments: dict[str, Any]) -> None:
    torch.manual_seed(0)
    ours, theirs = LayerNorm(**arguments), torch.nn.LayerNorm(**arguments)
    for parameter in theirs.parameters():
        torch.nn.init.normal_(parameter)
    ours.load_state_dict(theirs.state_dict())
    again = torch.nn.LayerNorm(**arguments)
    again.load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for name, value in theirs.state_dict().items():
        assert torch.equal(again.state_dict()[name], value)
    assert repr(ours) == repr(theirs)


@pytest.mark.parametrize("arguments", ARGUMENTS, ids=str)
def test_output_is_the_function(arguments: dict[str, Any]) -> None:
    """The module adds nothing to `layer_norm`: same bits."""
    torch.manual_seed(0)
    module = LayerNorm(**arguments)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(2, 5, 6, dtype=arguments.get("dtype", torch.float32))
    expected = layer_norm(x, module.normalized_shape, module.weight, module.bias, module.eps)
    assert torch.equal(module(x), expected)
