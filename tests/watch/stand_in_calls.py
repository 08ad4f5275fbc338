"""Calls of operations that have stand-ins, by family: what is called, and with what.

Each call is made for a dtype by `make`, with its own seed. What is saved by a forward for its backward comes from the
forward itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

aten = torch.ops.aten
Tensor = torch.Tensor


class Call(NamedTuple):
    """An operation and its arguments."""

    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


Draw = Callable[..., Tensor]
Maker = Callable[[Draw], Call]


def make(maker: Maker, dtype: torch.dtype, seed: int = 0) -> Call:
    """A call whose tensors of normal numbers have a dtype."""
    generator = torch.Generator().manual_seed(seed)
    return maker(lambda *shape: torch.randn(*shape, generator=generator).to(dtype))


def call(op: Any, *args: Any, **kwargs: Any) -> Call:
    """A call as it is written."""
    return Call(op, args, kwargs)


def _with(maker: Callable[..., Call], *args: Any) -> Maker:
    return lambda draw: maker(draw, *args)


def _normal_like(draw: Draw, y: Tensor) -> Tensor:
    return draw(*y.shape).to(y.dtype)


def _pool(draw: Draw, forward: Any, backward: Any, x: Tensor, *args: Any) -> Call:
    """The backward of a pooling that gives its indices, or that needs none."""
    y = forward(x, *args)
    if isinstance(y, tuple):
        return call(backward, _normal_like(draw, y[0]), x, *args, y[1])
    return call(backward, _normal_like(draw, y), x, *args)


def _adaptive(draw: Draw, forward: Any, backward: Any, x: Tensor, size: list[int]) -> Call:
    y = forward(x, size)
    indices = y[1:] if isinstance(y, tuple) else ()
    return call(backward, _normal_like(draw, y[0] if isinstance(y, tuple) else y), x, *indices)


def _resampled(draw: Draw, name: str, inner: list[int], outer: list[int], *args: Any) -> Call:
    shape = [2, 3, *inner]
    return call(getattr(aten, f"{name}_backward").default, draw(2, 3, *outer), outer, shape, *args)


def _fractional(draw: Draw) -> Call:
    x, size, samples = draw(1, 2, 6, 7), [3, 3], torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(2))
    y, indices = aten.fractional_max_pool2d(x, [2, 2], size, samples.to(x.dtype))
    return call(aten.fractional_max_pool2d_backward.default, _normal_like(draw, y), x, [2, 2], size, indices)


POOLING: dict[str, Maker] = {
    "avg_pool2d": lambda draw: _pool(
        draw, aten.avg_pool2d, aten.avg_pool2d_backward.default, draw(2, 2, 6, 7), [3, 2], [3, 2], [1, 0],
        True, False, None,
    ),
    "avg_pool3d": lambda draw: _pool(
        draw, aten.avg_pool3d, aten.avg_pool3d_backward.default, draw(2, 2, 4, 4, 4), [2, 2, 2], [2, 2, 2],
        [0, 0, 0], False, True, 3,
    ),
    "adaptive average": lambda draw: _adaptive(
        draw, aten._adaptive_avg_pool2d, aten._adaptive_avg_pool2d_backward.default, draw(2, 2, 6, 4), [3, 2]
    ),
    "adaptive largest": lambda draw: _adaptive(
        draw, aten.adaptive_max_pool2d, aten.adaptive_max_pool2d_backward.default, draw(2, 2, 5, 7), [3, 2]
    ),
    "max_pool2d": lambda draw: _pool(
        draw, aten.max_pool2d_with_indices, aten.max_pool2d_with_indices_backward.default, draw(2, 2, 7, 6),
        [3, 3], [2, 2], [1, 1], [1, 1], False,
    ),
    "max_pool3d": lambda draw: _pool(
        draw, aten.max_pool3d_with_indices, aten.max_pool3d_with_indices_backward.default, draw(1, 2, 4, 4, 5),
        [2, 2, 2], [2, 2, 2], [0, 0, 0], [1, 1, 1], False,
    ),
    "fractional": _fractional,
    "nearest": lambda draw: _resampled(draw, "upsample_nearest2d", [3, 4], [7, 8]),
    "exact": lambda draw: _resampled(draw, "_upsample_nearest_exact2d", [3, 4], [7, 8]),
    "linear": lambda draw: _resampled(draw, "upsample_linear1d", [5], [8], False, 1.6),
    "bilinear": lambda draw: _resampled(draw, "upsample_bilinear2d", [3, 4], [6, 7], True),
    "trilinear": lambda draw: _resampled(draw, "upsample_trilinear3d", [2, 2, 3], [3, 4, 4], False),
    "bicubic": lambda draw: _resampled(draw, "upsample_bicubic2d", [4, 4], [6, 5], False),
    "antialiased": lambda draw: _resampled(draw, "_upsample_bilinear2d_aa", [7, 8], [3, 4], False),
    "replication": lambda draw: call(
        aten.replication_pad2d_backward.default, draw(2, 2, 6, 9), draw(2, 2, 3, 4), [2, 3, 1, 2]
    ),
}  # fmt: skip


def _convolution(draw: Draw, shape: list[int], weight: list[int], bias: int | None, *form: Any, mask: Any) -> Call:
    x, w = draw(*shape), draw(*weight)
    y = aten.convolution(x, w, None, *form)
    sizes = None if bias is None else [bias]
    return call(aten.convolution_backward.default, _normal_like(draw, y), x, w, sizes, *form, mask)


CONVOLUTIONS: dict[str, Maker] = {
    "groups": lambda draw: _convolution(
        draw, [2, 4, 7, 6], [6, 2, 3, 2], 6, [2, 1], [1, 0], [1, 2], False, [0, 0], 2, mask=[True] * 3
    ),
    "transposed": lambda draw: _convolution(
        draw, [2, 4, 5], [4, 3, 3], 6, [2], [1], [1], True, [1], 2, mask=[True] * 3
    ),
    "weights alone": lambda draw: _convolution(
        draw, [1, 2, 4, 4, 3], [3, 2, 2, 2, 2], None, [1] * 3, [0] * 3, [1] * 3, False, [0] * 3, 1,
        mask=[False, True, False],
    ),
}  # fmt: skip


def _cdist(draw: Draw, p: float) -> Call:
    x, y = draw(4, 3), draw(5, 3)
    d = aten._cdist_forward(x, y, p, 2)
    return call(aten._cdist_backward.default, _normal_like(draw, d), x, y, p, d)


def _pdist(draw: Draw, p: float) -> Call:
    x = draw(4, 3)
    d = aten._pdist_forward(x, p)
    return call(aten._pdist_backward.default, _normal_like(draw, d), x, p, d)


def _weight_norm(draw: Draw) -> Call:
    v, g = draw(4, 5), draw(4, 1)
    w, norms = aten._weight_norm_interface(v, g, 0)
    return call(aten._weight_norm_interface_backward.default, _normal_like(draw, w), v, g, norms, 0)


DISTANCES: dict[str, Maker] = {
    **{f"cdist {p}": _with(_cdist, p) for p in (1.0, 1.5, 2.0, 3.0, math.inf)},
    **{f"pdist {p}": _with(_pdist, p) for p in (1.0, 2.0, 3.5, math.inf)},
    "dist": lambda draw: call(aten.dist.default, draw(3, 4), draw(3, 4), 3),
    "weight norm": _weight_norm,
}


def _log_sigmoid(draw: Draw) -> Call:
    x = draw(12)
    y, buffer = aten.log_sigmoid_forward(x)
    return call(aten.log_sigmoid_backward.default, _normal_like(draw, y), x, buffer)


def _ctc(draw: Draw) -> Call:
    x, targets = draw(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 1]])
    lengths = ([6, 5], [3, 2])
    loss, table = aten._ctc_loss(x, targets, *lengths, 0, False)
    return call(aten._ctc_loss_backward.default, draw(2), x, targets, *lengths, loss, table, 0, False)


def _grid(draw: Draw, mode: int, padding: int) -> Call:
    x, grid = draw(2, 2, 4, 5), draw(2, 3, 3, 2)
    return call(aten.grid_sampler_2d_backward.default, draw(2, 2, 3, 3), x, grid, mode, padding, False, [True, True])


LOSSES: dict[str, Maker] = {
    "multi margin": lambda draw: call(
        aten.multi_margin_loss_backward.default, draw(()), draw(4, 5), torch.tensor([1, 0, 4, 2]), 2, 1.0, draw(5).abs()
    ),
    "multilabel margin": lambda draw: call(
        aten.multilabel_margin_loss_backward.default, draw(()), draw(2, 4),
        torch.tensor([[1, 3, -1, 0], [2, -1, 0, 1]]), 1, torch.tensor([[0.0, 1, 0, 1], [0, 0, 1, 0]]).to(draw(1).dtype),
    ),
    "log sigmoid": lambda draw: call(aten.log_sigmoid_forward.default, draw(12)),
    "log sigmoid backward": _log_sigmoid,
    "grid": lambda draw: _grid(draw, 0, 1),
    "grid of cubes": lambda draw: _grid(draw, 2, 0),
}  # fmt: skip


_INDICES, _OFFSETS = torch.tensor([1, 4, 2, 4, 0, 3, 4]), torch.tensor([0, 3, 5])


def _bags(draw: Draw, mode: int, weights: bool, frequencies: bool, padding: int = -1) -> Call:
    table, own = draw(5, 4), draw(7) if weights else None
    y, bags, sizes, largest = aten._embedding_bag(
        table, _INDICES, _OFFSETS, frequencies, mode, False, own, False, padding
    )
    saved = (_INDICES, _OFFSETS, bags, sizes, largest)
    return call(
        aten._embedding_bag_backward.default, _normal_like(draw, y), *saved, 5, frequencies, mode, False, own, padding
    )


def _bag_weights(draw: Draw) -> Call:
    bags = torch.tensor([0, 0, 0, 1, 1, 2, 2])
    args = (draw(3, 4), draw(5, 4), _INDICES, _OFFSETS, bags, 0, 3)
    return call(aten._embedding_bag_per_sample_weights_backward.default, *args)


EMBEDDINGS: dict[str, Maker] = {
    "bags": lambda draw: call(aten._embedding_bag.default, draw(5, 4), _INDICES, _OFFSETS, False, 1),
    "sums": lambda draw: _bags(draw, 0, True, False, 2),
    "sums by frequency": lambda draw: _bags(draw, 0, False, True),
    "means": lambda draw: _bags(draw, 1, False, False),
    "largest": lambda draw: _bags(draw, 2, False, False),
    "weights of bags": _bag_weights,
}


def _norm(draw: Draw) -> Call:
    x, weight = draw(3, 4, 5), draw(4)
    mean, var = draw(4), draw(4).abs()
    y, *saved, reserve = aten._batch_norm_with_update(x, weight, draw(4), mean, var, 0.1, 1e-5)
    args = (x, weight, mean, var, *saved, True, 1e-5, [True] * 3, reserve)
    return call(aten.batch_norm_backward.default, _normal_like(draw, y), *args)


def _segments(draw: Draw, reduce: str, backward: bool = False) -> Call:
    data, own = draw(7, 2), {"lengths": torch.tensor([2, 0, 4, 1]), "axis": 0, "initial": 1.5}
    y = aten.segment_reduce(data, reduce, unsafe=False, **own)
    if not backward:
        return call(aten.segment_reduce.default, data, reduce, unsafe=False, **own)
    return call(aten._segment_reduce_backward.default, _normal_like(draw, y), y, data, reduce, **own)


MOVING: dict[str, Maker] = {
    "batch norm": _norm,
    "unbind": lambda draw: call(aten.unbind_copy.int, draw(3, 4), 1),
    "narrow": lambda draw: call(aten.narrow_copy.default, draw(3, 6), 1, 2, 3),
    "angle": lambda draw: call(aten.angle.default, draw(9)),
    "scattered": lambda draw: call(
        aten.masked_scatter_backward.default, draw(3, 4), torch.arange(12).reshape(3, 4) % 3 == 0, [5]
    ),
    "packed": lambda draw: call(aten._pack_padded_sequence.default, draw(3, 4, 2), torch.tensor([4, 2, 1]), True),
    **{f"segments {name}": _with(_segments, name) for name in ("sum", "mean", "max", "min", "prod")},
    **{f"segments {name} back": _with(_segments, name, True) for name in ("sum", "mean", "max")},
}


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
        f"scale {overflow} {steps}": _with(_scale, overflow, steps)
        for overflow, steps in ((0.0, 4), (0.0, 2), (1.0, 4))
    },
}  # fmt: skip


def _lists(draw: Draw, count: int) -> list[list[Tensor]]:
    return [[draw(3, 2), draw(5)] for _ in range(count)]


def _unary(draw: Draw, name: str) -> Call:
    return call(getattr(aten, f"_foreach_{name}").default, *_lists(draw, 1))


LISTS: dict[str, Maker] = {
    **{name: _with(_unary, name) for name in ["neg", "exp_", "sigmoid", "tanh_", "max", "clone", "reciprocal", "frac"]},
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
    gradients = (_normal_like(draw, y), _normal_like(draw, h), _normal_like(draw, c))
    operands, (reverse, sizes, mode, hidden, layers, biases, both, first, train) = args[:7], args[7:]
    form = (reverse, mode, hidden, layers, biases, train, both, sizes, first)
    return call(aten.mkldnn_rnn_layer_backward.default, *operands, y, h, c, *gradients, *form, workspace)


RECURRENT: dict[str, Maker] = {
    "lstm": lambda draw: call(aten.mkldnn_rnn_layer.default, *_lstm_args(draw, False)),
    "reversed lstm": lambda draw: call(aten.mkldnn_rnn_layer.default, *_lstm_args(draw, True)),
    "lstm backward": lambda draw: _lstm_backward(draw, False),
    "reversed lstm backward": lambda draw: _lstm_backward(draw, True),
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
