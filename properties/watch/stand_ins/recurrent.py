"""Recurrent layers, and the cells of them that torch has as one operation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

aten = torch.ops.aten
#: cuDNN's and oneDNN's numbers for the kind of a layer.
_RELU, _TANH, _LSTM, _GRU = range(4)
_LAYERS: dict[int, Any] = {_RELU: torch.rnn_relu, _TANH: torch.rnn_tanh, _LSTM: torch.lstm, _GRU: torch.gru}


def _zeros_for(gradients: Sequence[Tensor | None], results: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Cotangents of results; zeros where there are none."""
    pairs = zip(gradients, results, strict=True)
    return tuple(torch.zeros_like(y) if g is None else g.reshape(y.shape) for g, y in pairs)


def _run_layers(
    mode: int, form: Sequence[Any], x: Tensor, sizes: Sequence[int], hx: Tensor, cx: Tensor | None,
    weights: Sequence[Tensor],
) -> tuple[Tensor, ...]:  # fmt: skip
    """Layers as torch's functions of packed and of padded sequences.

    Args:
        mode: which kind. form: whether there are biases, the number of layers, the share that is dropped, whether in
            training, whether in both directions, and of padded sequences whether the batch comes first.
        x: the sequences. sizes: of packed ones, how many there are at each step. hx, cx: the states before.
        weights: of all layers.
    """
    states: Any = [hx, cx] if mode == _LSTM else hx
    args = (x, torch.tensor(sizes), states, list(weights), *form[:-1]) if sizes else (x, states, list(weights), *form)
    enabled = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)  # Lest a layer stand for itself where this is run.
    try:
        return tuple(_LAYERS[mode](*args))
    finally:
        torch._C._set_mkldnn_enabled(enabled)


def _run_direction(x: Tensor, weights: Sequence[Tensor], hx: Tensor, cx: Tensor, reverse: bool) -> tuple[Tensor, ...]:
    """One layer of an LSTM in one direction, of sequences (steps, N, features)."""
    h, c = (state.reshape(1, -1, state.shape[-1]) for state in (hx, cx))
    form = (len(weights) == 4, 1, 0.0, True, False, False)
    y, h, c = _run_layers(_LSTM, form, x.flip(0) if reverse else x, (), h, c, weights)
    return y.flip(0) if reverse else y, h.reshape(hx.shape), c.reshape(cx.shape)


def _mkldnn_layer(
    x: Tensor, w0: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, hx: Tensor, cx: Tensor, reverse: bool, *args: Any
) -> tuple[Tensor, ...]:
    """The sequence and both states; what is kept for the backward has no meaning of its own."""
    return _run_direction(x, (w0, w1, w2, w3), hx, cx, reverse)


def _mkldnn_layer_backward(
    x: Tensor, w0: Tensor, w1: Tensor, w2: Tensor, w3: Tensor, hx: Tensor, cx: Tensor, output: Tensor, hy: Tensor,
    cy: Tensor, g: Tensor | None, gh: Tensor | None, gc: Tensor | None, reverse: bool, *args: Any,
) -> tuple[Tensor, ...]:  # fmt: skip
    vjp: Any = torch.func.vjp
    results, pull = vjp(
        lambda x, w0, w1, w2, w3, hx, cx: _run_direction(x, (w0, w1, w2, w3), hx, cx, reverse),
        x, w0, w1, w2, w3, hx, cx,
    )  # fmt: skip
    return tuple(pull(_zeros_for((g, gh, gc), results)))


def _cudnn_layers(
    x: Tensor, weight: Sequence[Tensor], stride: int, buffer: Tensor | None, hx: Tensor, cx: Tensor | None, mode: int,
    hidden: int, proj: int, layers: int, batch_first: bool, dropout: float, train: bool, both: bool,
    sizes: Sequence[int], state: Tensor | None,
) -> tuple[Tensor, ...]:  # fmt: skip
    form = (stride == 4 or (stride == 5 and proj > 0), layers, dropout, train, both, batch_first)
    return _run_layers(mode, form, x, sizes, hx, cx, weight)


def _cudnn_layers_backward(
    x: Tensor, weight: Sequence[Tensor], stride: int, buffer: Tensor, hx: Tensor, cx: Tensor | None, output: Tensor,
    g: Tensor | None, gh: Tensor | None, gc: Tensor | None, mode: int, hidden: int, proj: int, layers: int,
    batch_first: bool, dropout: float, train: bool, both: bool, sizes: Sequence[int], *args: Any,
) -> tuple[Any, ...]:  # fmt: skip
    def run(x: Tensor, hx: Tensor, cx: Tensor | None, *weights: Tensor) -> tuple[Tensor, ...]:
        others = (hidden, proj, layers, batch_first, dropout, train, both, sizes, None)
        return _cudnn_layers(x, weights, stride, None, hx, cx, mode, *others)

    primals = [x, hx, *([] if cx is None else [cx]), *weight]
    moved = run if cx is not None else lambda x, hx, *weights: run(x, hx, None, *weights)
    vjp: Any = torch.func.vjp
    results, pull = vjp(moved, *primals)
    gradients = iter(pull(_zeros_for((g, gh, gc)[: len(results)], results)))
    return next(gradients), next(gradients), None if cx is None else next(gradients), list(gradients)


def _lstm_cell(
    inputs: Tensor, hidden: Tensor, cx: Tensor, bias: Tensor | None = None, bias_h: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The states of a cell, whose gates stand in the order input, forget, cell, output; and the gates' values."""
    gates = inputs + hidden if bias is None or bias_h is None else inputs + hidden + bias + bias_h
    first, forget, cell, last = gates.chunk(4, -1)
    i, f, g, o = first.sigmoid(), forget.sigmoid(), cell.tanh(), last.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], -1)


def _lstm_cell_backward(
    gh: Tensor | None, gc: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, ...]:
    """The cotangents of the gates, of the state, and of the bias, by the gates' values."""
    i, f, g, o = workspace.chunk(4, -1)
    top, moved = cy.tanh(), torch.zeros_like(cy) if gh is None else gh
    total = moved * o * (1 - top * top) + (0 if gc is None else gc)
    parts = [total * g * (1 - i) * i, total * cx * (1 - f) * f, total * i * (1 - g * g), moved * top * (1 - o) * o]
    gates = torch.cat(parts, -1)
    return gates, total * f, gates.sum(0) if has_bias else None


def _gru_cell(
    inputs: Tensor, hidden: Tensor, hx: Tensor, bias: Tensor | None = None, bias_h: Tensor | None = None
) -> tuple[Tensor, ...]:
    """The state of a cell, whose gates stand in the order reset, update, new; and what its backward reads."""
    own = inputs.chunk(3, -1) if bias is None else (inputs + bias).chunk(3, -1)
    other = hidden.chunk(3, -1) if bias_h is None else (hidden + bias_h).chunk(3, -1)
    reset, update = (own[0] + other[0]).sigmoid(), (own[1] + other[1]).sigmoid()
    new = (own[2] + reset * other[2]).tanh()
    return new + update * (hx - new), torch.cat([reset, update, new, hx, other[2]], -1)


def _gru_cell_backward(g: Tensor, workspace: Tensor, has_bias: bool) -> tuple[Tensor | None, ...]:
    reset, update, new, hx, hidden = workspace.chunk(5, -1)
    of_new = g * (1 - update) * (1 - new * new)
    of_reset, of_update = of_new * hidden * (1 - reset) * reset, g * (hx - new) * (1 - update) * update
    inputs = torch.cat([of_reset, of_update, of_new], -1)
    states = torch.cat([of_reset, of_update, of_new * reset], -1)
    sums = (inputs.sum(0), states.sum(0)) if has_bias else (None, None)
    return inputs, states, g * update, *sums


STAND_INS: dict[str, Callable[..., Any]] = {
    "mkldnn_rnn_layer": _mkldnn_layer,
    "mkldnn_rnn_layer_backward": _mkldnn_layer_backward,
    "_cudnn_rnn": _cudnn_layers,
    "_cudnn_rnn_backward": _cudnn_layers_backward,
    "_thnn_fused_lstm_cell": _lstm_cell,
    "_thnn_fused_lstm_cell_backward_impl": _lstm_cell_backward,
    "_thnn_fused_gru_cell": _gru_cell,
    "_thnn_fused_gru_cell_backward": _gru_cell_backward,
}
