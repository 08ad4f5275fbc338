"""Specs of one operation each."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import rand as uniform
from torch import randn as normal

from .making import Making


def _classes(below: int, *shape: int) -> Tensor:
    return torch.randint(below, shape)


def _signs(*shape: int) -> Tensor:
    return 2.0 * torch.randint(2, shape) - 1.0


def _trained(norm: Any) -> Any:
    """A norm whose parameters and statistics are not those it begins with."""
    for name, t in [*norm.named_parameters(), *norm.named_buffers()]:
        if t.is_floating_point():
            t.data = uniform(t.shape) + 0.5 if "var" in name or name == "weight" else normal(t.shape)
    return norm


_PRODUCTS: dict[str, Making] = {
    "matmul": lambda: (torch.matmul, normal(17, 33), normal(33, 9)),
    "matmul_batched": lambda: (torch.matmul, normal(3, 7, 12), normal(3, 12, 5)),
    "matmul_broadcast": lambda: (torch.matmul, normal(2, 1, 5, 6), normal(3, 6, 4)),
    "matmul_transposed": lambda: (lambda a, b: a.T @ b.T, normal(21, 6), normal(10, 21)),
    "matmul_vector": lambda: (torch.mv, normal(9, 65), normal(65)),
    "matmul_triangular": lambda: (lambda a, b: torch.tril(a @ b), normal(11, 11).tril(), normal(11, 11).tril()),
    "matmul_diagonal": lambda: (lambda d, b: torch.diag(d) @ b, normal(8), normal(8, 5)),
    "linear": lambda: (F.linear, normal(4, 3, 20), normal(7, 20), normal(7)),
    "einsum": lambda: (partial(torch.einsum, "bijl,lk->bijk"), normal(2, 3, 4, 5), normal(5, 6)),
    "outer": lambda: (torch.outer, normal(7), normal(5)),
    "conv1d": lambda: (nn.Conv1d(4, 6, 3, stride=2, padding=1, dilation=2), normal(2, 4, 19)),
    "conv2d": lambda: (nn.Conv2d(3, 5, 3, padding=1), normal(2, 3, 9, 8)),
    "conv2d_depthwise": lambda: (nn.Conv2d(6, 6, (3, 5), groups=6, bias=False), normal(2, 6, 9, 10)),
    "conv3d": lambda: (nn.Conv3d(2, 3, 3), normal(1, 2, 5, 6, 7)),
    "conv_transpose2d": lambda: (
        nn.ConvTranspose2d(4, 3, 3, stride=2, padding=1, output_padding=1),
        normal(2, 4, 5, 6),
    ),
}

_NORMS: dict[str, Making] = {
    "layer_norm": lambda: (_trained(nn.LayerNorm(33)), 3 * normal(5, 4, 33) + 1),
    "layer_norm_two_dims": lambda: (nn.LayerNorm((6, 5), elementwise_affine=False), normal(3, 6, 5)),
    "group_norm": lambda: (_trained(nn.GroupNorm(3, 12)), normal(2, 12, 5, 4)),
    "instance_norm": lambda: (_trained(nn.InstanceNorm2d(4, affine=True)), normal(2, 4, 6, 5)),
    "batch_norm_training": lambda: (_trained(nn.BatchNorm2d(5)), 2 * normal(4, 5, 6, 3) + 1),
    "batch_norm_evaluation": lambda: (_trained(nn.BatchNorm2d(5)).eval(), normal(4, 5, 6, 3)),
    "batch_norm_1d": lambda: (_trained(nn.BatchNorm1d(7, momentum=None)), normal(12, 7)),
    "rms_norm": lambda: (_trained(nn.RMSNorm(24)), normal(6, 24)),
    "local_response_norm": lambda: (nn.LocalResponseNorm(3, k=2.0), normal(2, 7, 4, 4)),
    "l1_norm_by_hand": lambda: (lambda x: x / x.abs().mean(dim=1, keepdim=True), normal(5, 40)),
    "frobenius_norm_by_hand": lambda: (lambda x: x / torch.norm(x), normal(4, 5, 6)),
    "normalize": lambda: (F.normalize, normal(6, 30)),
    "vector_norms": lambda: (
        lambda x: [torch.linalg.vector_norm(x, order, dim=1) for order in (0, 0.5, 1, 2, 3, torch.inf, -torch.inf)],
        normal(4, 9),
    ),
    "cosine_similarity": lambda: (F.cosine_similarity, normal(6, 20), normal(6, 20)),
    "pairwise_distance": lambda: (F.pairwise_distance, normal(6, 20), normal(6, 20)),
    "distances": lambda: (
        lambda x, y: (torch.cdist(x, y), torch.cdist(x, y, p=1.0), F.pdist(x)),
        normal(27, 6),
        normal(4, 6),
    ),
    "moments": lambda: (
        lambda x: (x.var(), x.std(1), torch.var_mean(x, 0, correction=0), x.std(dim=(0, 2), unbiased=False)),
        normal(4, 5, 6) + 2,
    ),
}

_LOSSES: dict[str, Making] = {
    "mse_loss": lambda: (F.mse_loss, normal(9, 7), normal(9, 7)),
    "l1_loss": lambda: (F.l1_loss, normal(9, 7), normal(9, 7)),
    "smooth_l1_loss": lambda: (partial(F.smooth_l1_loss, beta=0.5), normal(9, 7), normal(9, 7)),
    "huber_loss": lambda: (partial(F.huber_loss, delta=0.7), normal(9, 7), normal(9, 7)),
    "cross_entropy": lambda: (F.cross_entropy, normal(12, 10), _classes(10, 12)),
    "cross_entropy_full": lambda: (
        partial(F.cross_entropy, ignore_index=2, label_smoothing=0.1), normal(6, 5, 4), _classes(5, 6, 4), uniform(5),
    ),
    "cross_entropy_probabilities": lambda: (
        partial(F.cross_entropy, label_smoothing=0.1), normal(6, 5), normal(6, 5).softmax(1), uniform(5),
    ),
    "nll_loss": lambda: (
        partial(F.nll_loss, reduction="sum"), normal(6, 5).log_softmax(1), _classes(5, 6), uniform(5),
    ),
    "binary_cross_entropy": lambda: (F.binary_cross_entropy, normal(20).sigmoid(), uniform(20)),
    "binary_cross_entropy_with_logits": lambda: (
        lambda x, t, w: F.binary_cross_entropy_with_logits(x, t, pos_weight=w), 5 * normal(6, 4), uniform(6, 4),
        uniform(4),
    ),
    "kl_div": lambda: (
        partial(F.kl_div, reduction="batchmean"), normal(6, 5).log_softmax(1), normal(6, 5).softmax(1),
    ),
    "kl_div_of_logarithms": lambda: (
        partial(F.kl_div, log_target=True, reduction="sum"), normal(6, 5).log_softmax(1), normal(6, 5).log_softmax(1),
    ),
    "hinge_loss_by_hand": lambda: (lambda x, t: torch.mean(torch.clamp(1 - x * t, min=0)), normal(30), _signs(30)),
    "hinge_embedding_loss": lambda: (F.hinge_embedding_loss, normal(30), _signs(30)),
    "margin_ranking_loss": lambda: (partial(F.margin_ranking_loss, margin=0.3), normal(9), normal(9), _signs(9)),
    "multi_margin_loss": lambda: (F.multi_margin_loss, normal(6, 5), _classes(5, 6)),
    "multilabel_margin_loss": lambda: (
        F.multilabel_margin_loss, normal(2, 4), torch.tensor([[3, 0, -1, 1], [1, -1, 0, 2]]),
    ),
    "multilabel_soft_margin_loss": lambda: (F.multilabel_soft_margin_loss, normal(6, 5), _classes(2, 6, 5) * 1.0),
    "soft_margin_loss": lambda: (F.soft_margin_loss, normal(30), _signs(30)),
    "triplet_margin_loss": lambda: (
        partial(F.triplet_margin_loss, margin=1.0, swap=True), normal(6, 10), normal(6, 10), normal(6, 10),
    ),
    "cosine_embedding_loss": lambda: (
        partial(F.cosine_embedding_loss, margin=0.2), normal(6, 10), normal(6, 10), _signs(6),
    ),
    "poisson_nll_loss": lambda: (partial(F.poisson_nll_loss, full=True), normal(20), 5 * uniform(20)),
    "gaussian_nll_loss": lambda: (partial(F.gaussian_nll_loss, full=True), normal(9), normal(9), uniform(9) + 0.1),
}  # fmt: skip

_POSITIONS: dict[str, Making] = {
    "embedding": lambda: (nn.Embedding(11, 6, padding_idx=0), _classes(11, 4, 5)),
    "embedding_bag": lambda: (nn.EmbeddingBag(11, 6, mode="mean"), _classes(11, 4, 5)),
    "embedding_bag_offsets": lambda: (
        lambda i, w, table, starts: F.embedding_bag(i, table, starts, mode="sum", per_sample_weights=w),
        _classes(11, 9), uniform(9), normal(11, 6), torch.tensor([0, 3, 3, 7]),
    ),
    "gather_and_scatter": lambda: (
        lambda x, i: (x.gather(1, i), torch.zeros_like(x).scatter_add(1, i, x), x.scatter(1, i, 2.0)),
        normal(4, 6), torch.stack([torch.randperm(6) for _ in range(4)]),
    ),
    "scatter_reduce": lambda: (
        lambda x, i: [torch.ones_like(x).scatter_reduce(0, i, x, how) for how in ("sum", "mean", "amax", "amin")],
        normal(6, 4), _classes(6, 6, 4),
    ),
    "index_put_and_add": lambda: (
        lambda x, i, v: (x.index_put((i,), v, accumulate=True), x.index_add(0, i, v, alpha=0.5), x[i, 1:]),
        normal(6, 4), torch.tensor([5, 0, 5]), normal(3, 4),
    ),
    "index_copy_fill": lambda: (
        lambda x, i, v: (x.index_copy(0, i, v), x.index_fill(1, i, 0.3), x.index_select(1, i)),
        normal(6, 4), torch.tensor([3, 0]), normal(2, 4),
    ),
    "masks": lambda: (
        lambda x, m: (x.masked_fill(m, -1.0), torch.where(m, x, x * 0.1), x.tril(1), x.triu(-1)), normal(5, 6),
        _classes(2, 5, 6).bool(),
    ),
    "put_and_masked_scatter": lambda: (
        lambda x, i, v, m: (x.put(i, v), x.put(i, v, accumulate=True), x.masked_scatter(m, v)), normal(3, 4),
        torch.tensor([5, 0, 7, 1, 2]), normal(5), torch.eye(3, 4).bool(),
    ),
    "take_along_dim": lambda: (
        lambda x, i: (torch.take_along_dim(x, i, 1), torch.take(x, i)), normal(4, 6), _classes(6, 4, 3),
    ),
    "one_hot": lambda: (lambda x, i: F.one_hot(i, 6) * x, normal(4, 6), _classes(6, 4)),
    "roll_flip_repeat": lambda: (
        lambda x: (x.roll((1, -2), (0, 1)), x.flip(1), x.repeat(2, 1, 1), x.repeat_interleave(2, 1), x.tile(2),
                   x.rot90()),
        normal(3, 5),
    ),
    "split_chunk_unbind": lambda: (
        lambda x: [*x.split([2, 3], 1), *x.chunk(3), *x.unbind(1), *torch.meshgrid(x[0], x[:, 0], indexing="ij")],
        normal(4, 5),
    ),
    "windows": lambda: (
        lambda x: (x.unfold(2, 3, 2), F.unfold(x, 3, padding=1, stride=2), x.diagonal(0, 2, 3), x.transpose(1, 3)),
        normal(2, 3, 6, 6),
    ),
    "fold": lambda: (lambda x: F.fold(x, (5, 6), (2, 3), stride=1, padding=(0, 1)), normal(2, 12, 24)),
    "shuffles": lambda: (
        lambda x: (F.pixel_shuffle(x, 2), F.pixel_unshuffle(x, 2), F.channel_shuffle(x, 4)), normal(1, 8, 4, 6),
    ),
    "pads": lambda: (
        lambda x: [F.pad(x, (1, 2, 0, 1), mode=how) for how in ("constant", "reflect", "replicate", "circular")],
        normal(2, 3, 4, 5),
    ),
    "pads_1d_3d": lambda: (
        lambda x: [F.pad(x[0, 0], (2, 1), mode="reflect"), F.pad(x, (1, 1, 1, 0, 2, 1), mode="replicate"),
                   F.pad(x, (-1, 1), value=0.3)],
        normal(1, 3, 4, 5)[None],
    ),
    "strided": lambda: (lambda x: x.as_strided((3, 3), (2, 5), 1) * 2, normal(5, 5)),
    "constants": lambda: (
        lambda x: x * torch.linspace(0, 1, 7) + torch.arange(0.0, 0.7, 0.1) + torch.full((7,), 0.1)
        + torch.tensor([0.3] * 7) + torch.logspace(0, 1, 7) / torch.arange(1, 8),
        normal(3, 7),
    ),
    "empty_and_scalar": lambda: (
        lambda x, y: (x + y, x.sum(), torch.cat([x, y.expand(1, 3)]), x.amax(1) if x.shape[1] else x, y * 2),
        normal(0, 3), normal(()),
    ),
}  # fmt: skip

_SIZES: dict[str, Making] = {
    "interpolate_nearest": lambda: (
        lambda x: [F.interpolate(x, scale_factor=2.5), F.interpolate(x, size=(5, 9), mode="nearest-exact")],
        normal(2, 3, 6, 7),
    ),
    "interpolate_linear": lambda: (
        lambda x: [F.interpolate(x, size=n, mode="linear", align_corners=a) for n in (4, 13) for a in (True, False)],
        normal(2, 3, 7),
    ),
    "interpolate_bilinear": lambda: (
        lambda x: [
            F.interpolate(x, scale_factor=2, mode="bilinear"),
            F.interpolate(x, size=(4, 11), mode="bilinear", align_corners=True),
        ],
        normal(2, 3, 6, 7),
    ),
    "interpolate_trilinear": lambda: (
        partial(F.interpolate, scale_factor=1.5, mode="trilinear"), normal(1, 2, 4, 3, 2),
    ),
    "interpolate_bicubic": lambda: (
        lambda x: [F.interpolate(x, size=(9, 5), mode="bicubic", align_corners=a) for a in (True, False)],
        normal(2, 3, 6, 7),
    ),
    "interpolate_area": lambda: (partial(F.interpolate, size=(3, 4), mode="area"), normal(2, 3, 6, 8)),
    "max_pool": lambda: (nn.MaxPool2d(3, stride=2, padding=1), normal(2, 3, 9, 8)),
    "max_pool_1d_3d": lambda: (
        lambda x: (F.max_pool3d(x, 2), F.max_pool1d(x[0, 0], 3, dilation=2)), normal(1, 2, 4, 5, 8),
    ),
    "avg_pool": lambda: (nn.AvgPool2d(3, stride=2, padding=1), normal(2, 3, 9, 8)),
    "avg_pool_1d_3d": lambda: (
        lambda x: (F.avg_pool3d(x, 2), F.avg_pool1d(x[0, 0], 4, 2)), normal(1, 2, 4, 5, 8),
    ),
    "adaptive_pools": lambda: (
        lambda x: (F.adaptive_avg_pool2d(x, (3, 2)), F.adaptive_max_pool2d(x, 3)), normal(2, 3, 7, 8),
    ),
}  # fmt: skip

_ALONG: dict[str, Making] = {
    "softmax": lambda: (partial(torch.softmax, dim=1), 3 * normal(6, 50)),
    "log_softmax": lambda: (partial(torch.log_softmax, dim=0), 3 * normal(20, 6)),
    "logsumexp": lambda: (partial(torch.logsumexp, dim=(0, 2)), 3 * normal(4, 5, 6)),
    "reductions": lambda: (
        lambda x: (x.sum((0, 2)), x.mean(1), x.amax((1, 2)), x.amin(0), x.max(1)[0], x.prod(2)), normal(3, 4, 5),
    ),
    "arg_reductions": lambda: (lambda x: (x.argmax(1), x.argmin(0), x.max(2)[1]), normal(3, 4, 5)),
    "scans": lambda: (lambda x: (x.cumsum(1), x.cumprod(1), x.flip(1).cumsum(1).flip(1)), normal(4, 15)),
    "masked_cumsum": lambda: (lambda x, m: torch.cumsum(x * m, dim=1), normal(4, 15), _classes(2, 4, 15).bool()),
    "sort_and_topk": lambda: (lambda x: (x.sort(1)[0], x.topk(3, 1)[0], x.median(1)[0]), normal(4, 9)),
    "attention": lambda: (
        F.scaled_dot_product_attention, normal(2, 3, 7, 8), normal(2, 3, 9, 8), normal(2, 3, 9, 8),
    ),
    "attention_causal": lambda: (
        partial(F.scaled_dot_product_attention, is_causal=True), normal(1, 2, 9, 4), normal(1, 2, 9, 4),
        normal(1, 2, 9, 4),
    ),
    "attention_masked": lambda: (
        lambda q, k, v, m: [F.scaled_dot_product_attention(q, k, v, mask) for mask in (m, m.to(q.dtype))],
        normal(1, 2, 5, 4), normal(1, 2, 6, 4), normal(1, 2, 6, 4), torch.ones(5, 6).tril(1).bool(),
    ),
    "activations": lambda: (
        lambda x: [f(x) for f in (F.relu, F.leaky_relu, F.sigmoid, F.tanh, F.silu, F.gelu, F.selu, F.hardsigmoid,
                                  F.softplus, F.softsign, F.elu, F.hardtanh, F.mish, F.hardswish, F.logsigmoid)],
        3 * normal(8, 9),
    ),
    "gelu_by_hand": lambda: (
        lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x.pow(3)))), normal(6, 9),
    ),
    "glu": lambda: (F.glu, normal(4, 10)),
    "dropout_in_evaluation": lambda: (nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5)).eval(), normal(3, 6)),
}  # fmt: skip

SINGLE: dict[str, Making] = {**_PRODUCTS, **_NORMS, **_LOSSES, **_POSITIONS, **_SIZES, **_ALONG}
