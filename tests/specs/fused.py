"""Specs that chain operations: a product or a convolution, then norms, activations, poolings, scalings, residuals."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import randn as normal

from .making import Making


class _Chain(nn.Module):
    """A layer, and what follows it; `more` are parameters that the function takes by name."""

    def __init__(self, layer: nn.Module, rest: Callable[..., Any], **more: Tensor) -> None:
        super().__init__()
        self.layer = layer
        self.rest = rest
        for name, value in more.items():
            self.register_parameter(name, nn.Parameter(value))
        self.names = list(more)

    def forward(self, x: Tensor, *others: Tensor) -> Any:
        return self.rest(self.layer(x), *others, **{name: getattr(self, name) for name in self.names})


def _linear() -> nn.Module:
    return nn.Linear(24, 18)


def _conv() -> nn.Module:
    return nn.Conv2d(3, 8, 3)


def _image() -> Tensor:
    return normal(2, 3, 9, 10)


def _rows() -> Tensor:
    return normal(7, 24)


def _chained(layer: Callable[[], nn.Module], rest: Callable[..., Any], x: Callable[[], Tensor]) -> tuple[Any, ...]:
    return _Chain(layer(), rest), x()


_AFTER_LINEAR: dict[str, Callable[..., Any]] = {
    "relu_scale": lambda y: torch.relu(y) * 0.5,
    "swish_divide_clamp_tanh": lambda y: torch.tanh(torch.clamp(F.silu(y) / 2.0, min=-1.0, max=1.0)),
    "gelu_softmax": lambda y: torch.softmax(F.gelu(y), dim=1),
    "sigmoid_sum": lambda y: torch.sigmoid(y).sum(dim=1, keepdim=True),
    "max_subtract_mean_gelu": lambda y: F.gelu(y.max(dim=1, keepdim=True).values - y.mean(dim=1, keepdim=True)),
    "logsumexp_leaky": lambda y: F.leaky_relu(F.leaky_relu(torch.logsumexp(y, 1, keepdim=True), 0.01), 0.2),
    "mish_twice": lambda y: F.mish(F.mish(y)),
    "residual_clamp": lambda y: (y + y).clamp(-2.0, 2.0) * y,
    "layer_norm_gelu": lambda y: F.gelu(F.layer_norm(y, (18,))),
    "group_norm_hardtanh": lambda y: F.hardtanh(F.group_norm(y, 3), -0.5, 1.5),
    "group_norm_min_bias": lambda y: F.group_norm(y, 6).min(dim=1, keepdim=True)[0] + 0.25,
    "instance_norm_add_multiply": lambda y: F.instance_norm(y[None])[0] + y * y,
    "pool_abs_scale": lambda y: 3.0 * F.avg_pool1d(y.unsqueeze(1), 3).squeeze(1).abs().amax(1),
    "cosine_of_halves": lambda y: F.cosine_similarity(y[:, :9], y[:, 9:]),
    "normalise_and_scale": lambda y: F.normalize(y, dim=1) * y.shape[1] ** 0.5,
    "log_softmax_nll": lambda y: -F.log_softmax(y, 1)[:, 3].mean(),
}

_AFTER_CONV: dict[str, Callable[..., Any]] = {
    "relu_hardswish": lambda y: F.hardswish(torch.relu(y)),
    "pool_sigmoid_sum": lambda y: torch.sigmoid(F.avg_pool2d(y, 2)).sum(dim=(1, 2, 3)),
    "min_tanh_tanh": lambda y: torch.tanh(torch.tanh(torch.min(y, dim=1, keepdim=True)[0])),
    "group_norm_max_clamp": lambda y: torch.clamp(F.max_pool2d(F.group_norm(y, 4), 2), 0.0, 1.0),
    "instance_norm_divide": lambda y: F.instance_norm(y) / 2.0,
    "global_pool_logsumexp": lambda y: torch.logsumexp(y.mean(dim=(2, 3)), dim=1) * 10.0,
    "softplus_tanh_by_hand": lambda y: y * torch.tanh(F.softplus(y)),
    "layer_norm_of_channels": lambda y: F.layer_norm(y.permute(0, 2, 3, 1), (8,)).permute(0, 3, 1, 2),
    "max_pool_softmax": lambda y: torch.softmax(F.max_pool2d(y, 2), dim=1).mean(dim=1),
    "rms_of_channels": lambda y: y * torch.rsqrt(y.square().mean(1, keepdim=True) + 1e-6),
    "upsample_concatenate": lambda y: torch.cat(
        [F.interpolate(F.avg_pool2d(y, 2)[..., :3, :4], size=y.shape[2:]), y], 1
    ),
}


def _gated(y: Tensor, gate: Tensor) -> Tensor:
    return y * torch.sigmoid(gate) + gate.mean()


def _without_gradients(x: Tensor, w: Tensor) -> Tensor:
    with torch.no_grad():
        centre = (x @ w).mean()
    return torch.relu(x @ w - centre) * x.detach().amax()


class _InPlace(nn.Module):
    """Writes into what it has made, and keeps a count."""

    steps: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 10)
        self.register_buffer("steps", torch.zeros(()))

    def forward(self, x: Tensor) -> Any:
        self.steps += 1
        y = self.layer(x)
        y[:, 0] = 0.0
        y[:, 1:3].mul_(2.0).add_(y[:, 3:5])
        y.tanh_()
        return (y * 2.0).clamp_(max=1.5) / self.steps


class _Autocast(nn.Module):
    """A product under autocast, and what follows outside."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(24, 10)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = torch.relu(self.layer(x))
        return y.float().softmax(1)


def _convolve_by_transforms(x: Any, k: Any) -> Any:
    """A long convolution, of half types in float32."""
    n = 2 * x.shape[-1]
    product = torch.fft.rfft(x.float(), n=n) * torch.fft.rfft(k.float(), n=n)
    return torch.fft.irfft(product, n=n)[..., : x.shape[-1]].to(x.dtype)


FUSED: dict[str, Making] = {
    "long_convolution": lambda: (_convolve_by_transforms, normal(2, 3, 20), normal(3, 20)),
    **{f"linear_{name}": partial(_chained, _linear, rest, _rows) for name, rest in _AFTER_LINEAR.items()},
    **{f"conv_{name}": partial(_chained, _conv, rest, _image) for name, rest in _AFTER_CONV.items()},
    "linear_gate": lambda: (_Chain(_linear(), _gated, gate=normal(18)), _rows()),
    "linear_bias_scale_residual": lambda: (
        _Chain(_linear(), lambda y, x, scale, bias: (y + bias) * scale + x[:, :18], scale=normal(18), bias=normal(1)),
        _rows(), _rows(),
    ),
    "linear_batch_norm_swish": lambda: (
        _Chain(nn.Sequential(_linear(), nn.BatchNorm1d(18)), lambda y, bias: F.silu((y + bias) / 1.5), bias=normal(1)),
        _rows(),
    ),
    "linear_weight_norm": lambda: (
        _Chain(nn.utils.parametrizations.weight_norm(nn.Linear(24, 6)), torch.relu), _rows(),
    ),
    "conv_batch_norm_scale": lambda: (
        _Chain(nn.Sequential(_conv(), nn.BatchNorm2d(8).eval()), lambda y: F.relu(y) * 2.0), _image(),
    ),
    "conv_batch_norm_training_pool": lambda: (
        _Chain(nn.Sequential(_conv(), nn.BatchNorm2d(8)), lambda y: F.avg_pool2d(F.elu(y), 2)), _image(),
    ),
    "conv_bias_scale_sigmoid_group_norm": lambda: (
        _Chain(nn.Sequential(_conv(), nn.Sigmoid(), nn.GroupNorm(2, 8)), lambda y, bias, scale: (y + bias) * scale,
               bias=normal(8, 1, 1), scale=normal(8, 1, 1)),
        _image(),
    ),
    "conv_transpose_clamp_scale": lambda: (
        _Chain(nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1),
               lambda y, bias: torch.clamp((y + bias).clamp(0.0, 1.0) * 2.0, 0.0, 1.0) / 2.0, bias=normal(4, 1, 1)),
        _image(),
    ),
    "conv_transpose_softmax_pool": lambda: (
        _Chain(nn.ConvTranspose2d(3, 4, 4), lambda y: torch.sigmoid(F.max_pool2d(torch.softmax(y, 1), 2))), _image(),
    ),
    "conv3d_norm_mean": lambda: (
        _Chain(nn.Conv3d(2, 4, 2), lambda y: F.group_norm(y, 2).mean(dim=(1, 2, 3, 4))), normal(2, 2, 4, 5, 4),
    ),
    "conv1d_glu": lambda: (_Chain(nn.Conv1d(4, 12, 3), lambda y: F.glu(y, 1)), normal(2, 4, 11)),
    "bmm_norm_residual": lambda: (
        lambda x, w, r: (F.instance_norm(torch.bmm(x, w)) + r) * r, normal(2, 5, 6), normal(2, 6, 7), normal(2, 5, 7),
    ),
    "softmax_cross_entropy_by_hand": lambda: (
        lambda x, t: (torch.logsumexp(x, 1) - x.gather(1, t[:, None])[:, 0]).mean(), 3 * normal(9, 7),
        torch.randint(7, (9,)),
    ),
    "in_place": lambda: (_InPlace(), _rows()),
    "autocast": lambda: (_Autocast(), _rows()),
    "without_gradients": lambda: (
        _without_gradients, normal(5, 6), normal(6, 4),
    ),
}  # fmt: skip
