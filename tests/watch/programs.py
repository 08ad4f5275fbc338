"""Small programs of many kinds, each with its own draws: (name, program), which gives the tensors that it made."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

Tensor = torch.Tensor
Program = Callable[[], list[Tensor]]
PROGRAMS: dict[str, Program] = {}


def program(run: Program) -> Program:
    """Enter a program in the table, under its name."""
    PROGRAMS[run.__name__] = run
    return run


def trained(model: nn.Module, loss_of: Callable[[nn.Module], Tensor], make: Any = None) -> list[Tensor]:
    """Losses, gradients and parameters of two steps."""
    optimizer = (make or (lambda parameters: torch.optim.SGD(parameters, 0.1)))(model.parameters())
    losses = []
    for _ in range(2):
        optimizer.zero_grad()
        loss = loss_of(model)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        losses.append(loss.detach())
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    return [*losses, *gradients, *(p.detach() for p in model.parameters()), *model.buffers()]


def _mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 3))


def _squares(model: nn.Module) -> Tensor:
    y: Tensor = model(torch.randn(5, 6)).pow(2).mean()
    return y


@program
def mlp() -> list[Tensor]:
    return trained(_mlp(), _squares)


@program
def mlp_in_bfloat16() -> list[Tensor]:
    return trained(_mlp().bfloat16(), lambda m: m(torch.randn(5, 6).bfloat16()).pow(2).mean())


@program
def adamw_by_loop() -> list[Tensor]:
    return trained(_mlp(), _squares, lambda p: torch.optim.AdamW(p, 0.01, foreach=False))


@program
def adamw_by_lists() -> list[Tensor]:
    return trained(_mlp(), _squares, lambda p: torch.optim.AdamW(p, 0.01, foreach=True, amsgrad=True))


@program
def adamw_fused() -> list[Tensor]:
    return trained(_mlp(), _squares, lambda p: torch.optim.AdamW(p, 0.01, fused=True))


@program
def momentum_by_lists() -> list[Tensor]:
    return trained(_mlp(), _squares, lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, foreach=True))


@program
def convolutions_in_place() -> list[Tensor]:
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.Flatten(),
        nn.Linear(64, 2),
    )  # fmt: skip
    return trained(model, lambda m: F.cross_entropy(m(torch.randn(4, 3, 8, 8)), torch.tensor([0, 1, 0, 1])))


@program
def encoder_with_dropout() -> list[Tensor]:
    layer = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.2, batch_first=True)
    return trained(layer, lambda m: m(torch.randn(2, 5, 16)).pow(2).mean())


@program
def checkpoints() -> list[Tensor]:
    model = _mlp()

    def loss(module: nn.Module) -> Tensor:
        x = torch.randn(5, 6, requires_grad=True)
        one: Any = checkpoint(module, x, use_reentrant=False)
        two: Any = checkpoint(module, x, use_reentrant=True)
        product: Tensor = (one * two).mean()
        return product

    return trained(model, loss)


@program
def autocast() -> list[Tensor]:
    def loss(module: nn.Module) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            y = module(torch.randn(5, 6))
        loss: Tensor = y.float().pow(2).mean()
        return loss

    return trained(_mlp(), loss)


@program
def recurrent() -> list[Tensor]:
    return trained(nn.LSTM(4, 6, num_layers=2), lambda m: m(torch.randn(3, 2, 4))[0].pow(2).mean())


@program
def gated_recurrent() -> list[Tensor]:
    return trained(nn.GRU(4, 6, bidirectional=True), lambda m: m(torch.randn(3, 2, 4))[0].pow(2).mean())


@program
def second_derivatives() -> list[Tensor]:
    model = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))

    def loss(module: nn.Module) -> Tensor:
        x = torch.rand(6, 2, requires_grad=True)
        (slope,) = torch.autograd.grad(module(x).sum(), x, create_graph=True)
        (bend,) = torch.autograd.grad(slope[:, 0].sum(), x, create_graph=True)
        return (slope[:, 1] - bend[:, 0]).pow(2).mean()

    return trained(model, loss)


@program
def fourier() -> list[Tensor]:
    weight = torch.randn(5, dtype=torch.complex64, requires_grad=True)
    y = torch.fft.irfft(torch.fft.rfft(torch.randn(3, 8)) * weight, n=8)
    y.square().sum().backward()
    assert weight.grad is not None
    return [y.detach(), torch.view_as_real(weight.grad)]


@program
def embeddings() -> list[Tensor]:
    bag = nn.EmbeddingBag(10, 4, mode="mean")
    return trained(bag, lambda m: m(torch.tensor([1, 2, 4, 9]), torch.tensor([0, 2])).pow(2).sum())


@program
def written_views() -> list[Tensor]:
    x = torch.randn(4, 5, requires_grad=True)
    y = x * 2
    y[1].mul_(3)
    y.t()[2].add_(x[:, 2])
    y[:, 3:] = x[:, :2]
    y.sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad]


@program
def inference() -> list[Tensor]:
    with torch.inference_mode():
        return [_mlp()(torch.randn(5, 6)).clone()]


@program
def accumulated_losses() -> list[Tensor]:
    model = _mlp()
    for _ in range(3):
        (_squares(model) / 3).backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


@program
def functional_gradients() -> list[Tensor]:
    x = torch.randn(4, 3)
    jacobian = torch.func.jacrev(lambda v: torch.tanh(v).cumsum(0))(x[0])
    return [jacobian, torch.vmap(torch.func.grad(lambda v: v.exp().sum()))(x)]


@program
def threads() -> list[Tensor]:
    model, results = _mlp(), [torch.empty(0)] * 2
    inputs = torch.randn(2, 5, 6)

    def work(i: int) -> None:
        results[i] = model(inputs[i]).detach()

    workers = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return results


class Doubled(torch.autograd.Function):
    """A function with a backward of its own."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.mul(2).exp()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * 2 * torch.exp(2 * x)


@program
def custom_function() -> list[Tensor]:
    apply: Any = Doubled.apply
    return trained(_mlp(), lambda m: apply(m(torch.randn(5, 6))).mean())


@program
def random_numbers() -> list[Tensor]:
    x = torch.randn(6, 4, requires_grad=True)
    y = F.dropout(x, 0.3) + torch.rand_like(x) * torch.bernoulli(torch.full_like(x, 0.5))
    y.sum().backward()
    assert x.grad is not None
    return [y.detach(), x.grad, torch.multinomial(torch.rand(5), 3)]
