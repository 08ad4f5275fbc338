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


def bind(maker: Callable[..., Call], *args: Any) -> Maker:
    """A maker that has its further arguments."""
    return lambda draw: maker(draw, *args)


def draw_like(draw: Draw, y: Tensor) -> Tensor:
    """Normal numbers in the form of a tensor."""
    return draw(*y.shape).to(y.dtype)


def _pool(draw: Draw, forward: Any, backward: Any, x: Tensor, *args: Any) -> Call:
    """The backward of a pooling that gives its indices, or that needs none."""
    y = forward(x, *args)
    if isinstance(y, tuple):
        return call(backward, draw_like(draw, y[0]), x, *args, y[1])
    return call(backward, draw_like(draw, y), x, *args)


def _adaptive(draw: Draw, forward: Any, backward: Any, x: Tensor, size: list[int]) -> Call:
    y = forward(x, size)
    indices = y[1:] if isinstance(y, tuple) else ()
    return call(backward, draw_like(draw, y[0] if isinstance(y, tuple) else y), x, *indices)


def _resampled(draw: Draw, name: str, inner: list[int], outer: list[int], *args: Any) -> Call:
    shape = [2, 3, *inner]
    return call(getattr(aten, f"{name}_backward").default, draw(2, 3, *outer), outer, shape, *args)


def _fractional(draw: Draw) -> Call:
    x, size, samples = draw(1, 2, 6, 7), [3, 3], torch.rand(1, 2, 2, generator=torch.Generator().manual_seed(2))
    y, indices = aten.fractional_max_pool2d(x, [2, 2], size, samples.to(x.dtype))
    return call(aten.fractional_max_pool2d_backward.default, draw_like(draw, y), x, [2, 2], size, indices)


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
    return call(aten.convolution_backward.default, draw_like(draw, y), x, w, sizes, *form, mask)


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
    return call(aten._cdist_backward.default, draw_like(draw, d), x, y, p, d)


def _pdist(draw: Draw, p: float) -> Call:
    x = draw(4, 3)
    d = aten._pdist_forward(x, p)
    return call(aten._pdist_backward.default, draw_like(draw, d), x, p, d)


def _weight_norm(draw: Draw) -> Call:
    v, g = draw(4, 5), draw(4, 1)
    w, norms = aten._weight_norm_interface(v, g, 0)
    return call(aten._weight_norm_interface_backward.default, draw_like(draw, w), v, g, norms, 0)


DISTANCES: dict[str, Maker] = {
    **{f"cdist {p}": bind(_cdist, p) for p in (1.0, 1.5, 2.0, 3.0, math.inf)},
    **{f"pdist {p}": bind(_pdist, p) for p in (1.0, 2.0, 3.5, math.inf)},
    "dist": lambda draw: call(aten.dist.default, draw(3, 4), draw(3, 4), 3),
    "weight norm": _weight_norm,
}


def _log_sigmoid(draw: Draw) -> Call:
    x = draw(12)
    y, buffer = aten.log_sigmoid_forward(x)
    return call(aten.log_sigmoid_backward.default, draw_like(draw, y), x, buffer)


def _ctc(draw: Draw, backward: bool) -> Call:
    x, targets = draw(6, 2, 4).log_softmax(-1), torch.tensor([[1, 2, 2], [3, 1, 1]])
    lengths = ([6, 5], [3, 2])
    if not backward:
        return call(aten._ctc_loss.default, x, targets, *lengths, 0, False)
    loss, table = aten._ctc_loss(x, targets, *lengths, 0, False)
    return call(aten._ctc_loss_backward.default, draw(2), x, targets, *lengths, loss, table, 0, False)


def _grid(draw: Draw, mode: int, padding: int) -> Call:
    x, grid = draw(2, 2, 4, 5), draw(2, 3, 3, 2)
    return call(aten.grid_sampler_2d_backward.default, draw(2, 2, 3, 3), x, grid, mode, padding, False, [True, True])


def _shares(draw: Draw) -> list[Tensor]:
    return [torch.sigmoid(draw(40)) for _ in range(2)]


LOSSES: dict[str, Maker] = {
    "multi margin": lambda draw: call(
        aten.multi_margin_loss_backward.default, draw(()), draw(4, 5), torch.tensor([1, 0, 4, 2]), 2, 1.0, draw(5).abs()
    ),
    "multilabel margin": lambda draw: call(
        aten.multilabel_margin_loss_backward.default, draw(()), draw(2, 4),
        torch.tensor([[1, 3, -1, 0], [2, -1, 0, 1]]), 1, torch.tensor([[0.0, 1, 0, 1], [0, 0, 1, 0]]).to(draw(1).dtype),
    ),
    "unreduced": lambda draw: call(
        aten.nll_loss_forward.default, draw(3, 4).abs(), torch.tensor([1, 0, 3]), draw(4).abs(), 0, -100
    ),
    "reduced": lambda draw: call(
        aten.nll_loss_forward.default, draw(3, 4).abs(), torch.tensor([1, 0, 3]), draw(4).abs(), 1, 0
    ),
    "slopes drawn": lambda draw: call(
        aten.rrelu_with_noise_backward.default, draw(9), draw(9), draw(9).abs(), 0.1, 0.9, True, False
    ),
    "slopes meant": lambda draw: call(
        aten.rrelu_with_noise_backward.default, draw(9), draw(9), draw(9).abs(), 0.1, 0.9, False, False
    ),
    "log sigmoid": lambda draw: call(aten.log_sigmoid_forward.default, draw(12)),
    "log sigmoid backward": _log_sigmoid,
    "cross entropy": lambda draw: call(aten.binary_cross_entropy.default, *_shares(draw), None, 0),
    "cross entropy backward": lambda draw: call(
        aten.binary_cross_entropy_backward.default, draw(()), *_shares(draw), draw(40).abs(), 1
    ),
    "soft backward": lambda draw: call(aten.soft_margin_loss_backward.default, draw(()), draw(40), draw(40), 1),
    "logit": lambda draw: call(aten.logit_backward.default, draw(40), _shares(draw)[0]),
    "logit of clamped": lambda draw: call(aten.logit_backward.default, draw(40), draw(40) * 0.7 + 0.5, 0.1),
    "alignments": lambda draw: _ctc(draw, False),
    "alignments backward": lambda draw: _ctc(draw, True),
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
        aten._embedding_bag_backward.default, draw_like(draw, y), *saved, 5, frequencies, mode, False, own, padding
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
    return call(aten.batch_norm_backward.default, draw_like(draw, y), *args)


def _segments(draw: Draw, reduce: str, backward: bool = False) -> Call:
    data, own = draw(7, 2), {"lengths": torch.tensor([2, 0, 4, 1]), "axis": 0, "initial": 1.5}
    y = aten.segment_reduce(data, reduce, unsafe=False, **own)
    if not backward:
        return call(aten.segment_reduce.default, data, reduce, unsafe=False, **own)
    return call(aten._segment_reduce_backward.default, draw_like(draw, y), y, data, reduce, **own)


def _quantized(draw: Draw, name: str, *form: Any) -> Call:
    return call(getattr(aten, name).default, draw(4, 6), *form)


_SCALES, _ZEROS = torch.tensor([0.1, 0.2, 0.03, 0.5]), torch.tensor([0, 3, -1, 2], dtype=torch.int32)
ROUNDING: dict[str, Maker] = {
    "of a tensor": bind(_quantized, "fake_quantize_per_tensor_affine_cachemask", 0.1, 3, -8, 7),
    "by tensors": bind(
        _quantized, "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", _SCALES[:1], _ZEROS[1:2],
        torch.tensor([1], dtype=torch.int32), -8, 7,
    ),
    "of channels": bind(_quantized, "fake_quantize_per_channel_affine_cachemask", _SCALES, _ZEROS, 0, -8, 7),
}  # fmt: skip


MOVING: dict[str, Maker] = {
    "batch norm": _norm,
    "unbind": lambda draw: call(aten.unbind_copy.int, draw(3, 4), 1),
    "selected": lambda draw: call(aten.select_backward.default, draw(3, 4), [3, 5, 4], -2, 3),
    "sliced": lambda draw: call(aten.slice_backward.default, draw(3, 2), [3, 6], 1, 2, 4, 1),
    "sliced from the end": lambda draw: call(aten.slice_backward.default, draw(4, 2), [6, 2], 0, -4, 99, 1),
    "sliced in steps": lambda draw: call(aten.slice_backward.default, draw(3, 3), [3, 6], -1, 0, 6, 2),
    "narrow": lambda draw: call(aten.narrow_copy.default, draw(3, 6), 1, 2, 3),
    "angle": lambda draw: call(aten.angle.default, draw(9)),
    "scattered": lambda draw: call(
        aten.masked_scatter_backward.default, draw(3, 4), torch.arange(12).reshape(3, 4) % 3 == 0, [5]
    ),
    "packed": lambda draw: call(aten._pack_padded_sequence.default, draw(3, 4, 2), torch.tensor([4, 2, 1]), True),
    **{f"segments {name}": bind(_segments, name) for name in ("sum", "mean", "max", "min", "prod")},
    **{f"segments {name} back": bind(_segments, name, True) for name in ("sum", "mean", "max")},
}
