"""Programs of physics and geometry, and generative models."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .program import ADAMW_FUSED, ADAMW_LIST, ADAMW_LOOP, SGD_FUSED, SGD_LIST, SGD_LOOP, Program, draws, dtype_of


def _layers(*widths: int, between: type[nn.Module] = nn.Tanh) -> nn.Sequential:
    layers: list[nn.Module] = []
    for inputs, outputs in itertools.pairwise(widths):
        layers += [nn.Linear(inputs, outputs), between()]
    return nn.Sequential(*layers[:-1])


def heat_equation(size: int) -> Program:
    """A physics-informed network: derivatives of first and second order in the loss."""
    points = torch.rand(16 * size, 2, generator=torch.Generator().manual_seed(1))

    def loss(module: nn.Module) -> Tensor:
        x = points.to(dtype_of(module), copy=True).requires_grad_()
        u = module(x)
        (first,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first[:, 0].sum(), x, create_graph=True)
        return (first[:, 1] - second[:, 0]).square().mean() + (u[:, 0] - torch.sin(math.pi * x[:, 0])).square().mean()

    return Program(_layers(2, 16 * size, 16 * size, 1), loss, ADAMW_LIST)


def neural_ode(size: int) -> Program:
    """Four steps of Runge and Kutta's method."""
    normal, _ = draws()
    start, end = normal(8, 4), normal(8, 4)

    def loss(module: nn.Module) -> Tensor:
        x, h = start.to(dtype_of(module)), 0.25
        for _ in range(4):
            k1 = module(x)
            k2 = module(x + h / 2 * k1)
            k3 = module(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + module(x + h * k3))
        return F.mse_loss(x, end.to(x.dtype))

    return Program(_layers(4, 16 * size, 4, between=nn.Softplus), loss, ADAMW_LOOP)


def real_nvp(size: int) -> Program:
    """A normalizing flow: affine couplings, and the logarithm of their determinants."""
    normal, _ = draws()
    points = normal(16, 4)
    couplings = nn.ModuleList(_layers(2, 16 * size, 4) for _ in range(4))

    def loss(module: Any) -> Tensor:
        x, volume = points.to(dtype_of(module)), torch.zeros(16, dtype=dtype_of(module))
        for coupling in module:
            fixed, moving = x.chunk(2, -1)
            scale, shift = coupling(fixed).chunk(2, -1)
            scale = torch.tanh(scale)
            x = torch.cat([moving * torch.exp(scale) + shift, fixed], -1)
            volume = volume + scale.sum(-1)
        return (0.5 * x.square().sum(-1) + 2 * math.log(2 * math.pi) - volume).mean()

    return Program(couplings, loss, ADAMW_FUSED)


def fourier_operator(size: int) -> Program:
    """A Fourier neural operator: low frequencies weighed, the others dropped."""
    normal, _ = draws()
    fields, aims = normal(4, 8, 32 * size), normal(4, 8, 32 * size)

    def loss(module: nn.Module) -> Tensor:
        return F.mse_loss(module(fields.to(dtype_of(module))), aims.to(dtype_of(module)))

    return Program(Spectral(8), loss, ADAMW_LIST)


class Spectral(nn.Module):
    """Two layers: a product in frequencies, and one of each place."""

    def __init__(self, width: int, modes: int = 5) -> None:
        super().__init__()
        self.modes = modes
        self.weights = nn.Parameter(torch.randn(2, width, width, modes, 2) / width)
        self.places = nn.ModuleList(nn.Conv1d(width, width, 1) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for weight, place in zip(self.weights, self.places, strict=True):
            # Complex numbers of half types have no transforms: those of float32, as programs do.
            wide = torch.promote_types(x.dtype, torch.float32)
            low = torch.fft.rfft(x.to(wide))[..., : self.modes]
            low = torch.einsum("bim,iom->bom", low, torch.view_as_complex(weight.to(wide)))
            x = F.gelu(torch.fft.irfft(low, n=x.shape[-1]).to(x.dtype) + place(x), approximate="tanh")
        return x


def fourier_mixer(size: int) -> Program:
    """FNet: tokens are mixed by the real part of a transform in two dimensions."""
    normal, below = draws()
    tokens, labels = normal(2, 16, 16 * size), below(4, 2)
    module = nn.ModuleDict(
        {"norm": nn.LayerNorm(16 * size), "inner": _layers(16 * size, 32, 16 * size, between=nn.GELU)}
    )
    module["head"] = nn.Linear(16 * size, 4)

    def loss(module: Any) -> Tensor:
        x = tokens.to(dtype_of(module))
        mixed = torch.fft.fft2(x.to(torch.promote_types(x.dtype, torch.float32))).real.to(x.dtype)
        x = module["norm"](x + mixed)
        return F.nll_loss(torch.log_softmax(module["head"]((x + module["inner"](x)).mean(1)), -1), labels)

    return Program(module, loss, SGD_LIST)


def nerf(size: int) -> Program:
    """Colours along rays: sines of positions, densities, and what is seen through what lies before."""
    generator = torch.Generator().manual_seed(1)
    positions = torch.rand(8, 12, 3, generator=generator)
    colours = torch.rand(8, 3, generator=generator)

    def loss(module: nn.Module) -> Tensor:
        x = positions.to(dtype_of(module))
        angles = (x[..., None] * (2.0 ** torch.arange(4, dtype=x.dtype) * math.pi)).flatten(-2)
        out = module(torch.cat([x, angles.sin(), angles.cos()], -1))
        opacity = 1 - torch.exp(-F.softplus(out[..., 0]) / 12)
        passed = torch.cumprod(1 - opacity + 1e-6, -1)
        weights = opacity * F.pad(passed[..., :-1], (1, 0), value=1.0)
        return F.mse_loss((weights[..., None] * torch.sigmoid(out[..., 1:])).sum(1), colours.to(x.dtype))

    return Program(_layers(27, 32 * size, 32 * size, 4, between=nn.ReLU), loss, ADAMW_FUSED)


class Sine(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.sin(30 * x)


def siren(size: int) -> Program:
    """A picture as a function of its place, by sines; its gradient counts too."""
    grid = torch.stack(torch.meshgrid(torch.linspace(-1, 1, 8), torch.linspace(-1, 1, 8), indexing="ij"), -1).flatten(
        0, 1
    )
    module = _layers(2, 24 * size, 24 * size, 1, between=Sine)
    with torch.no_grad():
        for layer in module[::2]:
            layer.weight.uniform_(-1, 1).mul_(math.sqrt(6 / layer.in_features) / 30)

    def loss(module: nn.Module) -> Tensor:
        x = grid.to(dtype_of(module), copy=True).requires_grad_()
        u = module(x)
        (slope,) = torch.autograd.grad(u.sum(), x, create_graph=True)
        return (u[:, 0] - torch.cos(3 * x[:, 0])).square().mean() + 0.01 * (slope - x).square().mean()

    return Program(module, loss, SGD_LOOP)


def deep_sets(size: int) -> Program:
    """Sums, means and maxima over sets of different sizes."""
    normal, _ = draws()
    points, there = normal(4, 10, 6), torch.arange(10) < torch.tensor([[10], [7], [4], [9]])
    module = nn.ModuleDict({"each": _layers(6, 16 * size, 16), "whole": _layers(48, 16, 1, between=nn.SELU)})

    def loss(module: Any) -> Tensor:
        x = module["each"](points.to(dtype_of(module)))
        total = torch.where(there[..., None], x, 0).sum(1)
        greatest = x.masked_fill(~there[..., None], -torch.inf).amax(1)
        y = module["whole"](torch.cat([total, total / there.sum(1, keepdim=True), greatest], -1))
        return F.huber_loss(y[:, 0], torch.arange(4, dtype=y.dtype))

    return Program(module, loss, ADAMW_LIST)


def vae(size: int) -> Program:
    """With the noise of each sample given."""
    normal, _ = draws()
    data, noise = torch.sigmoid(normal(8, 20)), normal(8, 4)
    module = nn.ModuleDict(
        {"inner": _layers(20, 16 * size, 8, between=nn.Softplus), "outer": _layers(4, 16 * size, 20)}
    )

    def loss(module: Any) -> Tensor:
        x = data.to(dtype_of(module))
        mean, logarithm = module["inner"](x).chunk(2, -1)
        y = module["outer"](mean + noise.to(x.dtype) * torch.exp(0.5 * logarithm))
        reach = -0.5 * torch.sum(1 + logarithm - mean.pow(2) - logarithm.exp())
        return F.binary_cross_entropy_with_logits(y, x, reduction="sum") + reach

    return Program(module, loss, ADAMW_LOOP)


class Adversaries(nn.ModuleDict):
    def parts(self) -> list[nn.Module]:
        return [self["judge"], self["maker"]]


def gan(size: int) -> Program:
    """Two networks with an optimizer each; the norm of the first one's layer is held at 1 by a power iteration."""
    normal, _ = draws()
    real, noise = normal(8, 6), normal(8, 4)
    judge = _layers(6, 16 * size, 1, between=nn.ReLU)
    nn.utils.parametrizations.spectral_norm(judge[0])
    module = Adversaries({"judge": judge, "maker": _layers(4, 16 * size, 6, between=nn.ReLU)})

    def first(module: Any) -> Tensor:
        fake = module["maker"](noise.to(dtype_of(module))).detach()
        return F.relu(1 - module["judge"](real.to(fake.dtype))).mean() + F.relu(1 + module["judge"](fake)).mean()

    def second(module: Any) -> Tensor:
        return -module["judge"](module["maker"](noise.to(dtype_of(module)))).mean()

    return Program(module, first, SGD_LOOP, second=second)


def score_matching(size: int) -> Program:
    """The trace of a derivative by products with given signs."""
    normal, _ = draws()
    points, signs = normal(12, 4), normal(12, 4).sign()

    def loss(module: nn.Module) -> Tensor:
        x = points.to(dtype_of(module), copy=True).requires_grad_()
        score, sign = module(x), signs.to(x.dtype)
        (slope,) = torch.autograd.grad((score * sign).sum(), x, create_graph=True)
        return ((slope * sign).sum(-1) + 0.5 * score.square().sum(-1)).mean()

    return Program(_layers(4, 16 * size, 16, 4, between=nn.SiLU), loss, ADAMW_FUSED)


def mixture_density(size: int) -> Program:
    """The logarithm of a mixture of normal densities."""
    normal, _ = draws()
    x0, y0 = normal(16, 3), normal(16, 1)

    def loss(module: nn.Module) -> Tensor:
        y = y0.to(dtype_of(module))
        logits, mean, logarithm = module(x0.to(y.dtype)).chunk(3, -1)
        density = -0.5 * ((y - mean) * torch.exp(-logarithm)).square() - logarithm - 0.5 * math.log(2 * math.pi)
        return -torch.logsumexp(torch.log_softmax(logits, -1) + density, -1).mean()

    return Program(_layers(3, 16 * size, 15), loss, SGD_FUSED)


def gaussian_process(size: int) -> Program:
    """The likelihood of a Gaussian process, by Cholesky's factor; in float32 at least."""
    normal, _ = draws()
    points, values = normal(12, 2), normal(12, 1)
    module = nn.ParameterDict({"scale": nn.Parameter(torch.zeros(2)), "noise": nn.Parameter(torch.tensor([-1.0]))})

    def loss(module: Any) -> Tensor:
        dtype = torch.promote_types(module["scale"].dtype, torch.float32)
        x = points.to(dtype) * torch.exp(module["scale"].to(dtype))
        square = (x[:, None] - x).square().sum(-1)
        kernel = torch.exp(-0.5 * square) + torch.diag_embed(torch.exp(module["noise"].to(dtype)).expand(12))
        factor = torch.linalg.cholesky(kernel)
        y = torch.linalg.solve_triangular(factor, values.to(dtype), upper=False)
        return 0.5 * y.square().sum() + factor.diagonal().log().sum()

    return Program(module, loss, ADAMW_LIST)
