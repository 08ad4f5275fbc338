"""Calls of operations that have stand-ins: steps of optimizers, lists, recurrent layers, products and attention."""

from __future__ import annotations

import math
from typing import Any

import torch

from tests.watch.stand_in_calls import Call, Draw, Maker, Tensor, aten, bind, call, draw_like


def _optimizer(draw: Draw, name: str, lists: int, overload: str = "default", **options: Any) -> Call:
    """A step over three parameters, of which the first states after the parameter and the gradient are no means."""
    shapes = [(4, 5), (17,), ()]
    state = [[draw(*shape) if shape else draw(1).reshape(()) for shape in shapes] for _ in range(2 + lists)]
    state[3:] = [[x.abs() for x in one] for one in state[3:]]
    counts = [[torch.tensor(float(n)) for n in (1, 7, 2000)]]
    if name == "_fused_sgd_":
        counts = []
    if name == "_fused_adagrad_":
        state[2] = [x.abs() for x in state[2]]
    if name.startswith("_fused_adam") and lists == 2:
        state.append([])
    if overload == "tensor_lr":
        options["lr"] = torch.tensor(options["lr"])
    return call(getattr(getattr(aten, name), overload), *state, *counts, **options)


_ADAM: dict[str, Any] = {
    "lr": 1e-2, "beta1": 0.9, "beta2": 0.999, "weight_decay": 0.01, "eps": 1e-8, "amsgrad": False, "maximize": False,
}  # fmt: skip
_SGD: dict[str, Any] = {
    "weight_decay": 0.01, "momentum": 0.9, "lr": 0.1, "dampening": 0.0, "nesterov": True, "maximize": False,
    "is_first_step": False,
}  # fmt: skip
_ADAGRAD: dict[str, Any] = {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.1, "eps": 1e-10, "maximize": False}


def _scaled(overflow: float = 0.0) -> dict[str, Any]:
    return {"grad_scale": torch.tensor(8.5), "found_inf": torch.tensor(overflow)}


def _scale(draw: Draw, overflow: float, steps: int) -> Call:
    tensors = (torch.tensor([1000.1]), torch.tensor([steps], dtype=torch.int32), torch.tensor([overflow]))
    return call(aten._amp_update_scale_.default, *tensors, 2.1, 0.3, 5)


OPTIMIZERS: dict[str, Maker] = {
    "adam": lambda draw: _optimizer(draw, "_fused_adam_", 2, **_ADAM),
    "adamw": lambda draw: _optimizer(draw, "_fused_adamw_", 2, **_ADAM),
    "amsgrad": lambda draw: _optimizer(
        draw, "_fused_adam_", 3, "tensor_lr", **(_ADAM | {"amsgrad": True, "maximize": True, "beta1": 0.0})
    ),
    "scaled adamw": lambda draw: _optimizer(draw, "_fused_adamw_", 3, **(_ADAM | {"amsgrad": True}), **_scaled()),
    "overflow": lambda draw: _optimizer(draw, "_fused_adamw_", 2, **_ADAM, **_scaled(1.0)),
    "sgd": lambda draw: _optimizer(draw, "_fused_sgd_", 1, **_SGD),
    "first step": lambda draw: _optimizer(
        draw, "_fused_sgd_", 1, "tensor_lr",
        **(_SGD | {"is_first_step": True, "nesterov": False, "maximize": True}), **_scaled(),
    ),
    "dampened": lambda draw: _optimizer(draw, "_fused_sgd_", 1, **(_SGD | {"nesterov": False, "dampening": 0.3})),
    "adagrad": lambda draw: _optimizer(draw, "_fused_adagrad_", 1, **_ADAGRAD),
    "adagrad of tensors": lambda draw: _optimizer(draw, "_fused_adagrad_", 1, "tensor_lr", **_ADAGRAD, **_scaled()),
    "unscaled": lambda draw: call(
        aten._amp_foreach_non_finite_check_and_unscale_.default, [draw(3, 4), draw(5)], torch.zeros(1),
        torch.tensor([0.3]),
    ),
    "found": lambda draw: call(
        aten._amp_foreach_non_finite_check_and_unscale_.default, [draw(3), torch.tensor([1.0, math.inf])],
        torch.zeros(1), torch.tensor([0.5]),
    ),
    **{
        f"scale {overflow} {steps}": bind(_scale, overflow, steps)
        for overflow, steps in ((0.0, 4), (0.0, 2), (1.0, 4))
    },
}  # fmt: skip


def _lists(draw: Draw, count: int) -> list[list[Tensor]]:
    return [[draw(3, 2), draw(5)] for _ in range(count)]


def _unary(draw: Draw, name: str) -> Call:
    return call(getattr(aten, f"_foreach_{name}").default, *_lists(draw, 1))


LISTS: dict[str, Maker] = {
    **{name: bind(_unary, name) for name in ["neg", "exp_", "sigmoid", "tanh_", "max", "clone", "reciprocal", "frac"]},
    "add": lambda draw: call(aten._foreach_add.List, *_lists(draw, 2), alpha=-0.5),
    "add in place": lambda draw: call(aten._foreach_add_.Scalar, *_lists(draw, 1), 1.5),
    "multiply by a tensor": lambda draw: call(aten._foreach_mul_.Tensor, *_lists(draw, 1), draw(1).reshape(())),
    "divide": lambda draw: call(aten._foreach_div.ScalarList, *_lists(draw, 1), [3.0, 7.0]),
    "addcmul": lambda draw: call(aten._foreach_addcmul_.Scalar, *_lists(draw, 3), 0.5),
    "addcdiv": lambda draw: call(aten._foreach_addcdiv_.ScalarList, *_lists(draw, 3), [0.5, 2.0]),
    "addcdiv by a tensor": lambda draw: call(aten._foreach_addcdiv_.Tensor, *_lists(draw, 3), draw(2)),
    "lerp": lambda draw: call(aten._foreach_lerp_.Scalar, *_lists(draw, 2), 0.25),
    "lerp by lists": lambda draw: call(aten._foreach_lerp.List, *_lists(draw, 3)),
    "power of a number": lambda draw: call(aten._foreach_pow.ScalarAndTensor, 1.5, *_lists(draw, 1)),
    "powers": lambda draw: call(aten._foreach_pow.ScalarList, *_lists(draw, 1), [2.0, 3.0]),
    "norm": lambda draw: call(aten._foreach_norm.Scalar, *_lists(draw, 1), 2),
    "norm in float32": lambda draw: call(aten._foreach_norm.Scalar, *_lists(draw, 1), 1, torch.float32),
    "clamp": lambda draw: call(aten._foreach_clamp_min_.Scalar, *_lists(draw, 1), 0.1),
    "maximum": lambda draw: call(aten._foreach_maximum_.List, *_lists(draw, 2)),
    "minimum": lambda draw: call(aten._foreach_minimum.ScalarList, *_lists(draw, 1), [0.1, 0.2]),
    "copy": lambda draw: call(aten._foreach_copy_.default, *_lists(draw, 2)),
}


def _lstm_args(draw: Draw, reverse: bool) -> tuple[Any, ...]:
    weights = [draw(12, 4), draw(12, 3), draw(12), draw(12)]
    return (draw(4, 2, 4), *weights, draw(2, 3), draw(2, 3), reverse, [], 2, 3, 1, True, False, False, True)


def _lstm_backward(draw: Draw, reverse: bool) -> Call:
    args = _lstm_args(draw, reverse)
    y, h, c, workspace = aten.mkldnn_rnn_layer(*args)
    gradients = (draw_like(draw, y), draw_like(draw, h), draw_like(draw, c))
    operands, (reverse, sizes, mode, hidden, layers, biases, both, first, train) = args[:7], args[7:]
    form = (reverse, mode, hidden, layers, biases, train, both, sizes, first)
    return call(aten.mkldnn_rnn_layer_backward.default, *operands, y, h, c, *gradients, *form, workspace)


RECURRENT: dict[str, Maker] = {
    "lstm": lambda draw: call(aten.mkldnn_rnn_layer.default, *_lstm_args(draw, False)),
    "reversed lstm": lambda draw: call(aten.mkldnn_rnn_layer.default, *_lstm_args(draw, True)),
    "lstm backward": lambda draw: _lstm_backward(draw, False),
    "reversed lstm backward": lambda draw: _lstm_backward(draw, True),
}


def _grouped(draw: Draw, left: list[int], right: list[int]) -> Call:
    ends = torch.tensor([2, 2, 8], dtype=torch.int32)
    return call(aten._grouped_mm.default, draw(*left), draw(*right), ends)


PRODUCTS: dict[str, Maker] = {
    "rows": lambda draw: _grouped(draw, [8, 8], [3, 8, 16]),
    "columns": lambda draw: _grouped(draw, [3, 16, 8], [8, 8]),
    "summed": lambda draw: _grouped(draw, [16, 8], [8, 16]),
}


def _attention(draw: Draw, heads: int, mask: Tensor | None, **options: Any) -> Call:
    q, k, v = draw(2, 4, 6, 8), draw(2, heads, 6, 8), draw(2, heads, 6, 8)
    return call(aten._scaled_dot_product_flash_attention_for_cpu.default, q, k, v, attn_mask=mask, **options)


def _attention_backward(draw: Draw, heads: int, mask: Tensor | None, scale: float | None, causal: bool) -> Call:
    op, (q, k, v), _ = _attention(draw, heads, None)
    out, sums = op(q, k, v, 0.0, causal, attn_mask=mask, scale=scale)
    backward = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    return call(backward, draw(*out.shape), q, k, v, out, sums, 0.0, causal, attn_mask=mask, scale=scale)


def _bias(draw: Draw) -> Tensor:
    bias = draw(2, 1, 6, 6)
    bias[0, 0, 2] = -math.inf
    bias[1, 0, 1, 4:] = -math.inf
    return bias


ATTENTION: dict[str, Maker] = {
    "plain": lambda draw: _attention(draw, 4, None, scale=0.7),
    "causal": lambda draw: _attention(draw, 2, None, is_causal=True),
    "masked": lambda draw: _attention(draw, 4, _bias(draw)),
    "backward": lambda draw: _attention_backward(draw, 4, None, None, True),
    "shared heads": lambda draw: _attention_backward(draw, 1, None, 0.4, False),
    "masked backward": lambda draw: _attention_backward(draw, 2, _bias(draw), None, False),
}
