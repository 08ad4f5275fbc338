"""Steps of small models in several forms, which compute the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils.checkpoint import checkpoint

import opassay

WIDTH, WORDS = 8, 12
_SEEDED = torch.Generator().manual_seed(3)
TOKENS, LABELS = (torch.randint(0, WORDS, (2, 5), generator=_SEEDED) for _ in range(2))
ROWS = torch.randn(3, 4, 5, generator=_SEEDED)
IMAGES = torch.randn(2, 3, 8, 8, generator=_SEEDED)


class Block(nn.Module):
    """A layer of a transformer.

    Args:
        is_plain: whether attention is written out. has_residual: whether attention is added. eps: of the first norm.
    """

    def __init__(self, *, is_plain: bool = False, has_residual: bool = True, eps: float = 1e-5) -> None:
        super().__init__()
        self.is_plain, self.has_residual = is_plain, has_residual
        self.norm, self.mixed, self.last = nn.LayerNorm(WIDTH, eps), nn.Linear(WIDTH, WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.up = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, 2 * WIDTH)
        self.down = nn.Linear(2 * WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, 2, -1)).permute(2, 0, 3, 1, 4)
        if self.is_plain:
            y = torch.softmax(q * q.shape[-1] ** -0.5 @ k.transpose(-1, -2), -1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v)
        y = self.mixed(y.transpose(1, 2).flatten(2))
        x = x + y if self.has_residual else y
        z: Tensor = x + self.down(F.silu(self.up(self.last(x))))
        return z


class Transformer(nn.Module):
    """Two layers, of which the second has the options."""

    def __init__(self, *, repeats: bool = False, dtype: torch.dtype = torch.float32, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.repeats, self.table, self.head = repeats, nn.Embedding(WORDS, WIDTH), nn.Linear(WIDTH, WORDS)
        self.first, self.second = Block(), Block(**options)
        self.to(dtype)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in (self.first, self.second):
            x = checkpoint(block, x, use_reentrant=False) if self.repeats else block(x)
        y: Tensor = self.head(x)
        return y


class Folding(nn.Module):
    """A convolution with a norm, which can be folded into it."""

    def __init__(self, *, is_folded: bool) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.convolution: nn.Module = nn.Conv2d(3, 4, 3)
        self.norm: nn.Module = nn.BatchNorm2d(4)
        self.last = nn.Linear(4, 2)
        norm: Any = self.norm
        for tensor in (*norm.parameters(), norm.running_mean, norm.running_var):
            nn.init.uniform_(tensor, 0.5, 1.5)
        self.eval()
        if is_folded:
            self.convolution, self.norm = fuse_conv_bn_eval(self.convolution, self.norm), nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(F.relu(self.norm(self.convolution(x))).mean((2, 3)))
        return y


class Recurrent(nn.Module):
    """A recurrent layer, or the same step by step."""

    def __init__(self, *, by_hand: bool) -> None:
        super().__init__()
        torch.manual_seed(2)
        self.by_hand, self.layer, self.last = by_hand, nn.LSTM(5, 6, batch_first=True), nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self._run(x) if self.by_hand else self.layer(x)[0])
        return y

    def _run(self, x: Tensor) -> Tensor:
        layer: Any = self.layer
        h = c = x.new_zeros(x.shape[0], 6)
        outputs = []
        for row in x.unbind(1):
            gates = F.linear(row, layer.weight_ih_l0, layer.bias_ih_l0)
            i, f, g, o = (gates + F.linear(h, layer.weight_hh_l0, layer.bias_hh_l0)).chunk(4, -1)
            c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            h = torch.sigmoid(o) * torch.tanh(c)
            outputs.append(h)
        return torch.stack(outputs, 1)


class Perceptron(nn.Module):
    """Two layers with dropout between them."""

    def __init__(self, share: float = 0.1) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.first, self.drop, self.last = nn.Linear(5, 8), nn.Dropout(share), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.drop(torch.tanh(self.first(x))))
        return y


def watch_tokens(model: nn.Module, *, labels: Tensor = LABELS, run: Callable[[Tensor], Tensor] | None = None) -> Any:
    """A step of a transformer, or of what runs it."""
    with opassay.watch(model) as watcher:
        F.cross_entropy((model if run is None else run)(TOKENS).float().flatten(0, 1), labels.flatten()).backward()
    return watcher


def watch_rows(model: nn.Module, optimizer: Callable[[Any], torch.optim.Optimizer] | None = None) -> Any:
    """A step of a model of rows, or two with an optimizer."""
    steps = None if optimizer is None else optimizer(model.parameters())
    with opassay.watch(model) as watcher:
        for number in range(1 if steps is None else 2):
            torch.manual_seed(number)
            model(ROWS).square().mean().backward()
            if steps is not None:
                steps.step()
                steps.zero_grad()
    return watcher


def watch_images(model: nn.Module) -> Any:
    """A forward pass of a model of images."""
    with opassay.watch(model) as watcher, torch.no_grad():
        model(IMAGES)
    return watcher
