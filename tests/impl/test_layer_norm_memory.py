"""What layer norm keeps for backward: nothing that the wanted gradients can do without."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from torch import Tensor

from opassay.impl import layer_norm, native_layer_norm_backward

ROWS, LENGTH = 64, 32


def saved_elements(call: Any) -> list[int]:
    """Numbers of elements of the distinct tensors saved while `call` runs, largest first."""
    saved: dict[int, int] = {}

    def pack(t: Tensor) -> Tensor:
        saved[t.data_ptr()] = t.numel()
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        result = call()
    del result
    return sorted(saved.values(), reverse=True)


def operands(*wanted: str) -> tuple[Tensor, Tensor, Tensor]:
    x, w, b = torch.randn(ROWS, LENGTH), torch.randn(LENGTH), torch.randn(LENGTH)
    for name, t in (("x", x), ("w", w), ("b", b)):
        t.requires_grad_(name in wanted)
    return x, w, b


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (("x", "w", "b"), [ROWS * LENGTH, ROWS, ROWS, LENGTH]),
        (("x",), [ROWS * LENGTH, ROWS, ROWS, LENGTH]),
        (("w",), [ROWS * LENGTH, ROWS, ROWS]),
        (("w", "b"), [ROWS * LENGTH, ROWS, ROWS]),
        (("b",), []),
        ((), []),
    ],
)
def test_forward(wanted: tuple[str, ...], expected: list[int]) -> None:
    """Input and statistics, the weight where the input needs a gradient; nothing for the bias alone."""
    x, w, b = operands(*wanted)
    assert saved_elements(lambda: layer_norm(x, (LENGTH,), w, b)) == expected


def test_backward_in_double_backward() -> None:
    """Where only grad_out is differentiable, the backward op does not keep grad_out."""
    x, w, _ = operands()
    dy = torch.randn(ROWS, LENGTH, requires_grad=True)
    mean, rstd = torch.zeros(ROWS, 1), torch.ones(ROWS, 1)
    saved = saved_elements(
        lambda: native_layer_norm_backward(dy, x, (LENGTH,), mean, rstd, w, None, [True, True, False])
    )
    assert saved == [ROWS * LENGTH, ROWS, LENGTH]
    assert not saved_elements(
        lambda: native_layer_norm_backward(dy, x, (LENGTH,), mean, rstd, w, w, [False, False, True])
    )


@pytest.mark.parametrize("wanted", [("b",), ()])
def test_input_is_released(wanted: tuple[str, ...]) -> None:
    """The output keeps no input alive that backward does not read."""
    x, w, b = operands(*wanted)
    reference = weakref.ref(x)
    out = layer_norm(x, (LENGTH,), w, b)
    del x
    gc.collect()
    assert reference() is None
    assert out.requires_grad is bool(wanted)


def test_no_reference_cycle() -> None:
    """Graph and output go with the last reference, without the collector."""
    gc.disable()
    try:
        x, w, b = operands("x", "w", "b")
        out = layer_norm(x, (LENGTH,), w, b)
        reference = weakref.ref(out)
        torch.autograd.grad(out.sum(), (x, w, b))
        del out
        assert reference() is None
    finally:
        gc.enable()
