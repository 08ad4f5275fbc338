"""One call of every function of torch.nn.functional, by the name of the function."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import rand as uniform
from torch import randn as normal

from .making import Making

#: What torch.nn.functional has beside functions of tensors.
_HELPERS = {
    "assert_int_or_pair", "boolean_dispatch", "has_torch_function", "has_torch_function_unary",
    "has_torch_function_variadic", "handle_torch_function",
}  # fmt: skip
#: Sequences, images and volumes: (N, C, *lengths).
_SEQUENCE, _IMAGE, _VOLUME = (2, 3, 8), (2, 3, 6, 6), (1, 2, 4, 4, 4)


def functions() -> list[str]:
    """The names of the functions of torch.nn.functional, in order."""
    results = []
    for name in dir(F):
        function = getattr(F, name)
        ours = str(getattr(function, "__module__", None) or "torch").startswith("torch")
        if callable(function) and not inspect.isclass(function) and not name.startswith("_") and ours:
            results.append(name)
    return sorted(set(results) - _HELPERS)


def _of(name: str, shape: tuple[int, ...], *args: Any, **kwargs: Any) -> Making:
    """A call with a tensor and constants."""

    def making() -> tuple[Any, ...]:
        function = getattr(F, name)
        return lambda x: function(x, *args, **kwargs), normal(shape)

    return making


def _of_tensors(name: str, *shapes: tuple[int, ...], **kwargs: Any) -> Making:
    return lambda: (partial(getattr(F, name), **kwargs), *(normal(shape) for shape in shapes))


def _in_place(name: str, *args: Any) -> Making:
    return lambda: (lambda x: getattr(F, name)(x.clone(), *args), normal(3, 4))


def _unpooled(axes: int, shape: tuple[int, ...]) -> Making:
    pool, unpool = getattr(F, f"max_pool{axes}d"), getattr(F, f"max_unpool{axes}d")
    return lambda: (lambda x: unpool(*pool(x, 2, return_indices=True), 2), normal(shape))


def _fractional(name: str, shape: tuple[int, ...]) -> Making:
    axes = len(shape) - 2
    samples = torch.full((*shape[:2], axes), 0.3)
    return lambda: (lambda x: getattr(F, name)(x, 2, (2,) * axes, _random_samples=samples), normal(shape))


def _on_grid(x: Tensor, grid: Tensor) -> Any:
    return F.grid_sample(x, grid, align_corners=False)


def _attention() -> tuple[Any, ...]:
    return nn.MultiheadAttention(8, 2).eval(), normal(3, 2, 8), normal(3, 2, 8), normal(3, 2, 8)


def _unaligned() -> tuple[Any, ...]:
    labels, steps, lengths = torch.tensor([[1, 2, 2], [3, 1, 1]]), torch.tensor([7, 6]), torch.tensor([3, 2])
    return lambda x: F.ctc_loss(x.log_softmax(-1), labels, steps, lengths), normal(7, 2, 5)


def _grouped() -> tuple[Any, ...]:
    ends = torch.tensor([4, 8], dtype=torch.int32)
    return lambda a, b: F.grouped_mm(a.bfloat16(), b.bfloat16(), offs=ends), normal(8, 16), normal(2, 16, 8)


def _scaled() -> tuple[Any, ...]:
    """torch has no backward of this operation, so the casts to eight bits take the derivatives away."""
    rows, eight = F.ScalingType.RowWise, torch.float8_e4m3fn

    def product(a: Tensor, b: Tensor, s: Tensor) -> Tensor:
        left, right = a.detach().to(eight), b.detach().to(eight)
        t = torch.linspace(0.5, 2.0, 16)[None]
        return F.scaled_mm(left, right.t(), s.abs(), rows, t, rows, output_dtype=torch.float32) + 0 * a.sum()

    return product, normal(16, 32), normal(16, 32), normal(16, 1)


_ROWS, _CLASSES = (3, 4), torch.tensor([1, 0, 3])
_PAIR, _TRIPLE = (_ROWS, _ROWS), (_ROWS, _ROWS, _ROWS)

#: Functions of one tensor of any shape, called with it alone.
_PLAIN = """
celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish normalize pdist relu relu6 rrelu
selu sigmoid silu softplus softshrink softsign tanh tanhshrink gumbel_softmax
"""
_PAIRS = "cosine_similarity huber_loss l1_loss mse_loss pairwise_distance smooth_l1_loss"
_TRIPLES = "triplet_margin_loss triplet_margin_with_distance_loss"

CALLS: dict[str, Making] = {
    **{name: _of(name, _ROWS) for name in _PLAIN.split()},
    **{name: _in_place(name) for name in ("celu_", "elu_", "hardtanh_", "leaky_relu_", "relu_", "rrelu_", "selu_")},
    **{name: _of_tensors(name, *_PAIR) for name in _PAIRS.split()},
    **{name: _of_tensors(name, *_TRIPLE) for name in _TRIPLES.split()},
    **{name: _of(name, _ROWS, -1) for name in ("softmax", "softmin", "log_softmax")},
    **{f"dropout{axes}": _of(f"dropout{axes}", _IMAGE, training=False) for axes in ("", "2d")},
    "dropout1d": _of("dropout1d", _SEQUENCE, training=False),
    "dropout3d": _of("dropout3d", _VOLUME, training=False),
    "alpha_dropout": _of("alpha_dropout", _ROWS, training=False),
    "feature_alpha_dropout": _of("feature_alpha_dropout", _IMAGE, training=False),
    "threshold": _of("threshold", _ROWS, 0.1, 2.0),
    "threshold_": _in_place("threshold_", 0.1, 2.0),
    "prelu": _of_tensors("prelu", _ROWS, (4,)),
    # Norms
    "batch_norm": _of("batch_norm", _IMAGE, None, None, training=True),
    "group_norm": _of("group_norm", _IMAGE, 3),
    "instance_norm": _of("instance_norm", _IMAGE),
    "layer_norm": _of("layer_norm", _ROWS, (4,)),
    "rms_norm": _of("rms_norm", _ROWS, (4,)),
    "local_response_norm": _of("local_response_norm", _IMAGE, 3),
    # Products
    "linear": _of_tensors("linear", _ROWS, (5, 4), (5,)),
    "bilinear": _of_tensors("bilinear", (3, 4), (3, 5), (2, 4, 5), (2,)),
    "conv1d": _of_tensors("conv1d", _SEQUENCE, (4, 3, 3)),
    "conv2d": _of_tensors("conv2d", _IMAGE, (4, 3, 3, 3), padding=1),
    "conv3d": _of_tensors("conv3d", _VOLUME, (3, 2, 2, 2, 2)),
    "conv_tbc": _of_tensors("conv_tbc", (8, 2, 3), (3, 3, 4), (4,)),
    "conv_transpose1d": _of_tensors("conv_transpose1d", _SEQUENCE, (3, 4, 3)),
    "conv_transpose2d": _of_tensors("conv_transpose2d", _IMAGE, (3, 4, 3, 3)),
    "conv_transpose3d": _of_tensors("conv_transpose3d", _VOLUME, (2, 3, 2, 2, 2)),
    "grouped_mm": _grouped,
    "scaled_mm": _scaled,
    "scaled_dot_product_attention": _of_tensors("scaled_dot_product_attention", *(((1, 2, 4, 8),) * 3)),
    "multi_head_attention_forward": _attention,
    # Pools and windows
    **{
        f"{kind}{axes}d": _of(f"{kind}{axes}d", shape, 2)
        for kind in ("avg_pool", "max_pool", "adaptive_avg_pool", "adaptive_max_pool")
        for axes, shape in ((1, _SEQUENCE), (2, _IMAGE), (3, _VOLUME))
    },
    **{
        f"{kind}{axes}d_with_indices": _of(f"{kind}{axes}d_with_indices", shape, 2)
        for kind in ("max_pool", "adaptive_max_pool")
        for axes, shape in ((1, _SEQUENCE), (2, _IMAGE), (3, _VOLUME))
    },
    **{f"lp_pool{axes}d": _of(f"lp_pool{axes}d", s, 2, 2) for axes, s in ((1, _SEQUENCE), (2, _IMAGE), (3, _VOLUME))},
    **{f"max_unpool{axes}d": _unpooled(axes, s) for axes, s in ((1, _SEQUENCE), (2, _IMAGE), (3, _VOLUME))},
    **{
        f"fractional_max_pool{axes}d{more}": _fractional(f"fractional_max_pool{axes}d{more}", shape)
        for axes, shape in ((2, _IMAGE), (3, _VOLUME))
        for more in ("", "_with_indices")
    },
    "fold": _of("fold", (2, 12, 9), (4, 4), 2),
    "unfold": _of("unfold", _IMAGE, 2),
    "pad": _of("pad", _SEQUENCE, (1, 1), mode="reflect"),
    # Images
    "affine_grid": _of("affine_grid", (2, 2, 3), [2, 3, 4, 5], align_corners=False),
    "grid_sample": lambda: (_on_grid, normal(_IMAGE), 2.4 * uniform(2, 4, 5, 2) - 1.2),
    "interpolate": _of("interpolate", _IMAGE, size=4, mode="bicubic", antialias=True),
    "upsample": _of("upsample", _IMAGE, scale_factor=2),
    "upsample_bilinear": _of("upsample_bilinear", _IMAGE, scale_factor=2),
    "upsample_nearest": _of("upsample_nearest", _IMAGE, scale_factor=2),
    "channel_shuffle": _of("channel_shuffle", (1, 4, 3, 3), 2),
    "native_channel_shuffle": _of("native_channel_shuffle", (1, 4, 3, 3), 2),
    "pixel_shuffle": _of("pixel_shuffle", (1, 4, 2, 2), 2),
    "pixel_unshuffle": _of("pixel_unshuffle", _IMAGE, 2),
    # Losses
    "binary_cross_entropy": lambda: (F.binary_cross_entropy, uniform(3, 4), uniform(3, 4)),
    "binary_cross_entropy_with_logits": lambda: (F.binary_cross_entropy_with_logits, normal(3, 4), uniform(3, 4)),
    "cosine_embedding_loss": lambda: (
        lambda a, b: F.cosine_embedding_loss(a, b, torch.tensor([1, -1, 1])), normal(3, 4), normal(3, 4),
    ),
    "cross_entropy": _of("cross_entropy", _ROWS, _CLASSES),
    "linear_cross_entropy": lambda: (
        lambda x, w: F.linear_cross_entropy(x, w, _CLASSES), normal(3, 4), normal(5, 4),
    ),
    "ctc_loss": _unaligned,
    "gaussian_nll_loss": lambda: (F.gaussian_nll_loss, normal(3, 4), normal(3, 4), uniform(3, 4)),
    "hinge_embedding_loss": _of("hinge_embedding_loss", _ROWS, torch.tensor([[1, -1, 1, 1]])),
    "kl_div": lambda: (lambda a, b: F.kl_div(a.log_softmax(-1), b), normal(3, 4), uniform(3, 4)),
    "margin_ranking_loss": lambda: (
        lambda a, b: F.margin_ranking_loss(a, b, torch.ones(3, 4)), normal(3, 4), normal(3, 4),
    ),
    "multi_margin_loss": _of("multi_margin_loss", _ROWS, _CLASSES),
    "multilabel_margin_loss": _of("multilabel_margin_loss", _ROWS, torch.tensor([[1, 0, -1, 0]] * 3)),
    "multilabel_soft_margin_loss": _of("multilabel_soft_margin_loss", _ROWS, torch.ones(3, 4)),
    "nll_loss": _of("nll_loss", _ROWS, _CLASSES),
    "poisson_nll_loss": lambda: (F.poisson_nll_loss, normal(3, 4), uniform(3, 4)),
    "soft_margin_loss": _of("soft_margin_loss", _ROWS, torch.ones(3, 4)),
    # Tables
    "embedding": lambda: (lambda table: F.embedding(torch.tensor([0, 2]), table), normal(3, 4)),
    "embedding_bag": lambda: (lambda table: F.embedding_bag(torch.tensor([[0, 2]]), table), normal(3, 4)),
    "one_hot": lambda: (lambda x: F.one_hot(_CLASSES, 4) * x, normal(3, 4)),
}  # fmt: skip

#: Functions of which no call can be made. Not every version of torch has all of them.
NOT_CALLED = {
    "gumbel_softmax": "it draws numbers that have no bound",
    "scaled_addmm": "torch has no kernel of it for CPUs",
    "scaled_addmm_": "torch has no kernel of it for CPUs",
    "scaled_grouped_mm": "torch has no kernel of it for CPUs",
}
