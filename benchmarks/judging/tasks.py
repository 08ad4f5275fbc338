"""The tasks: small specs in plain PyTorch with the shapes of their arguments, of kinds that kernels are written for.

All operands are arguments, weights among them, so that a candidate is a function of the same tensors. Sizes are small
because every candidate is called some fifty times; a few tasks have long sums or many layers, where bounds are wide.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

Spec = Callable[..., Tensor]


@dataclass(frozen=True)
class Task:
    """A spec and its arguments.

    Attributes:
        name: of the task. spec: a function of tensors.
        shapes: of the arguments, which are normal numbers; a weight (two axes and more, after the first argument) is
            divided by the square root of what one output sums.
    """

    name: str
    spec: Spec
    shapes: tuple[tuple[int, ...], ...]

    def draw(self, seed: int) -> tuple[Tensor, ...]:
        """The arguments of one call, of a seed and of the name alone."""
        generator = torch.Generator().manual_seed(zlib.crc32(self.name.encode()) + seed)
        first, *others = (torch.randn(shape, generator=generator) for shape in self.shapes)
        return (first, *(t / (t.numel() / t.shape[-1]) ** 0.5 if t.ndim > 1 else t for t in others))


def linear(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.linear(x, weight, bias)


def linear_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.linear(x, weight, bias))


def linear_divided(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.leaky_relu((F.linear(x, weight, bias) - 0.5) / 2.5, 0.1)


def product(a: Tensor, b: Tensor) -> Tensor:
    return torch.matmul(a, b)


def product_of_batches(a: Tensor, b: Tensor) -> Tensor:
    return torch.bmm(a, b)


def two_layers(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return torch.matmul(F.silu(torch.matmul(x, up)), down)


def gated(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(torch.matmul(x, gate)) * torch.matmul(x, up)


def residual(x: Tensor, up: Tensor, down: Tensor) -> Tensor:
    return x + torch.matmul(torch.relu(torch.matmul(x, up)), down)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def logsumexp(x: Tensor) -> Tensor:
    return torch.logsumexp(x, -1)


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.matmul(torch.softmax(torch.matmul(q, k.transpose(-1, -2)) * 0.25, -1), v)


def pooled_by_attention(x: Tensor, query: Tensor) -> Tensor:
    return torch.sum(torch.softmax(torch.matmul(x, query), 1) * x, 1)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    centred = x - torch.mean(x, -1, keepdim=True)
    variance = torch.mean(torch.square(centred), -1, keepdim=True)
    return centred * torch.rsqrt(variance + 1e-5) * weight + bias


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return x * torch.rsqrt(torch.mean(torch.square(x), -1, keepdim=True) + 1e-6) * weight


def instance_norm(x: Tensor) -> Tensor:
    centred = x - torch.mean(x, (2, 3), keepdim=True)
    return centred / torch.sqrt(torch.mean(torch.square(centred), (2, 3), keepdim=True) + 1e-5)


def group_norm(x: Tensor, weight: Tensor) -> Tensor:
    grouped = torch.reshape(x, (x.shape[0], 2, -1))
    centred = grouped - torch.mean(grouped, -1, keepdim=True)
    normed = centred * torch.rsqrt(torch.mean(torch.square(centred), -1, keepdim=True) + 1e-5)
    return torch.reshape(normed, x.shape) * torch.reshape(weight, (1, -1, 1))


def batch_norm(x: Tensor, mean: Tensor, deviation: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return (x - mean) * torch.rsqrt(torch.square(deviation) + 1e-5) * weight + bias


def standardized(x: Tensor) -> Tensor:
    centred = x - torch.mean(x, -1, keepdim=True)
    return centred / torch.sqrt(torch.sum(torch.square(centred), -1, keepdim=True) / (x.shape[-1] - 1) + 1e-6)


def normalized(x: Tensor) -> Tensor:
    return x / torch.sqrt(torch.sum(torch.square(x), -1, keepdim=True) + 1e-12)


def cosine(a: Tensor, b: Tensor) -> Tensor:
    lengths = torch.sum(torch.square(a), -1) * torch.sum(torch.square(b), -1)
    return torch.sum(a * b, -1) * torch.rsqrt(lengths + 1e-8)


def distance(a: Tensor, b: Tensor) -> Tensor:
    return torch.sqrt(torch.sum(torch.square(a - b + 1e-6), -1))


def mean_squared(x: Tensor, target: Tensor) -> Tensor:
    return torch.mean(torch.square(x - target))


def huber(x: Tensor, target: Tensor) -> Tensor:
    off = torch.abs(x - target)
    return torch.mean(torch.where(off < 1.0, torch.square(off) * 0.5, off - 0.5))


def hinge(x: Tensor, target: Tensor) -> Tensor:
    return torch.mean(torch.clamp_min(1.0 - x * target, 0.0))


def cross_entropy(x: Tensor, target: Tensor) -> Tensor:
    return -torch.mean(torch.sum(torch.log_softmax(x, -1) * torch.softmax(target, -1), -1))


def divergence(x: Tensor, target: Tensor) -> Tensor:
    right = torch.log_softmax(target, -1)
    return torch.sum(torch.exp(right) * (right - torch.log_softmax(x, -1)), -1)


def triplet(x: Tensor, near: Tensor, far: Tensor) -> Tensor:
    closer = torch.sum(torch.square(x - near), -1)
    return torch.mean(torch.relu(closer - torch.sum(torch.square(x - far), -1) + 1.0))


def mish(x: Tensor) -> Tensor:
    return x * torch.tanh(F.softplus(x))


def gelu_tanh(x: Tensor) -> Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def elu_scaled(x: Tensor) -> Tensor:
    return F.elu(x, 1.5) * 1.0507


def clipped(x: Tensor, scale: Tensor) -> Tensor:
    return torch.clamp(x * scale, -1.0, 1.0) * 0.125 + 0.25


def rotated(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    half = x.shape[-1] // 2
    left, right = x[..., :half], x[..., half:]
    return torch.cat([left * cosines - right * sines, right * cosines + left * sines], -1)


def conv_relu(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return torch.relu(F.conv2d(x, weight, bias, padding=1))


def conv_strided(x: Tensor, weight: Tensor, scale: Tensor) -> Tensor:
    return torch.tanh(F.conv2d(x, weight, stride=2)) * scale


def conv_of_each_channel(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.conv1d(x, weight, bias, groups=x.shape[1])


def conv_transposed(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    return F.hardtanh(F.conv_transpose2d(x, weight, bias, stride=2))


def bilinear(a: Tensor, weight: Tensor, b: Tensor) -> Tensor:
    return torch.sum(torch.matmul(a, weight) * b, -1)


def largest_less_mean(x: Tensor, weight: Tensor) -> Tensor:
    y = torch.matmul(x, weight)
    return torch.amax(y, -1) - torch.mean(y, -1)


def long_sum(x: Tensor) -> Tensor:
    return torch.sum(x, -1)


def long_mean(x: Tensor) -> Tensor:
    return torch.mean(torch.exp(x), -1)


def six_layers(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = torch.relu(torch.matmul(x, weight)) * 1.25
    return x


def six_residuals(x: Tensor, *weights: Tensor) -> Tensor:
    for weight in weights:
        x = x + F.silu(torch.matmul(x * torch.rsqrt(torch.mean(torch.square(x), -1, keepdim=True) + 1e-6), weight))
    return x


_ROWS, _WIDE = (8, 32), (6, 100)
_SHAPES: dict[Spec, tuple[tuple[int, ...], ...]] = {
    linear: (_ROWS, (24, 32), (24,)),
    linear_relu: (_ROWS, (24, 32), (24,)),
    linear_divided: (_ROWS, (24, 32), (24,)),
    product: ((16, 48), (48, 24)),
    product_of_batches: ((3, 8, 40), (3, 40, 12)),
    two_layers: (_ROWS, (32, 48), (48, 32)),
    gated: (_ROWS, (32, 24), (32, 24)),
    residual: (_ROWS, (32, 48), (48, 32)),
    softmax: (_WIDE,),
    log_softmax: (_WIDE,),
    logsumexp: (_WIDE,),
    attention: ((2, 10, 16), (2, 12, 16), (2, 12, 16)),
    pooled_by_attention: ((4, 10, 16), (16, 1)),
    layer_norm: (_ROWS, (32,), (32,)),
    rms_norm: (_ROWS, (32,)),
    instance_norm: ((2, 3, 6, 7),),
    group_norm: ((3, 6, 9), (6,)),
    batch_norm: (_ROWS, (32,), (32,), (32,), (32,)),
    standardized: (_WIDE,),
    normalized: (_ROWS,),
    cosine: ((12, 32), (12, 32)),
    distance: ((12, 32), (12, 32)),
    mean_squared: (_ROWS, _ROWS),
    huber: (_ROWS, _ROWS),
    hinge: (_ROWS, _ROWS),
    cross_entropy: ((8, 20), (8, 20)),
    divergence: ((8, 20), (8, 20)),
    triplet: ((8, 20), (8, 20), (8, 20)),
    mish: (_ROWS,),
    gelu_tanh: (_ROWS,),
    elu_scaled: (_ROWS,),
    clipped: (_ROWS, (32,)),
    rotated: ((4, 6, 16), (6, 8), (6, 8)),
    conv_relu: ((2, 3, 8, 9), (4, 3, 3, 3), (4,)),
    conv_strided: ((2, 3, 9, 9), (4, 3, 3, 3), (4, 1, 1)),
    conv_of_each_channel: ((2, 4, 20), (4, 1, 5), (4,)),
    conv_transposed: ((2, 3, 5, 6), (3, 4, 3, 3), (4,)),
    bilinear: (_ROWS, (32, 24), (8, 24)),
    largest_less_mean: (_ROWS, (32, 24)),
    long_sum: ((3, 6000),),
    long_mean: ((3, 6000),),
    six_layers: (_ROWS, *[(32, 32)] * 6),
    six_residuals: (_ROWS, *[(32, 32)] * 6),
}

#: name -> task.
TASKS: dict[str, Task] = {spec.__name__: Task(spec.__name__, spec, shapes) for spec, shapes in _SHAPES.items()}
