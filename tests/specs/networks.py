"""Specs that are small networks."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch import randn as normal

from .making import Making


def _mlp(*widths: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _conv_norm(before: int, after: int, kernel: int = 3, stride: int = 1, groups: int = 1) -> nn.Sequential:
    conv = nn.Conv2d(before, after, kernel, stride, kernel // 2, groups=groups, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


def _digits() -> nn.Sequential:
    """Convolutions, poolings and linear layers, as networks of digits have them."""
    features = [nn.Conv2d(1, 4, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 6, 3), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(6 * 2 * 2, 12), nn.ReLU(), nn.Linear(12, 10))


class _Residual(nn.Module):
    """x plus a branch, with a projection where the shapes differ."""

    def __init__(self, branch: nn.Module, shortcut: nn.Module | None = None, last: nn.Module | None = None) -> None:
        super().__init__()
        self.branch, self.shortcut, self.last = branch, shortcut or nn.Identity(), last or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.last(self.branch(x) + self.shortcut(x))
        return out


def _basic_block(before: int, after: int, stride: int) -> nn.Module:
    branch = nn.Sequential(_conv_norm(before, after, 3, stride), nn.ReLU(), _conv_norm(after, after))
    return _Residual(branch, _conv_norm(before, after, 1, stride), nn.ReLU())


def _bottleneck(width: int) -> nn.Module:
    inner = width // 4
    parts = [_conv_norm(width, inner, 1), nn.ReLU(), _conv_norm(inner, inner), nn.ReLU(), _conv_norm(inner, width, 1)]
    return _Residual(nn.Sequential(*parts), last=nn.ReLU())


def _inverted(before: int, after: int) -> nn.Sequential:
    wide = 3 * before
    parts = [_conv_norm(before, wide, 1), nn.ReLU6(), _conv_norm(wide, wide, 3, 2, wide), nn.ReLU6()]
    return nn.Sequential(*parts, _conv_norm(wide, after, 1))


class _Dense(nn.Module):
    """Every layer sees what all layers before it gave."""

    def __init__(self, before: int, growth: int, layers: int) -> None:
        super().__init__()
        widths = [before + growth * i for i in range(layers)]
        self.layers = nn.ModuleList(
            nn.Sequential(nn.BatchNorm2d(n), nn.ReLU(), nn.Conv2d(n, growth, 3, padding=1)) for n in widths
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.cat([x, layer(x)], 1)
        return F.avg_pool2d(x, 2)


class _Branches(nn.Module):
    """Convolutions of several sizes side by side."""

    def __init__(self) -> None:
        super().__init__()
        pooled = nn.Sequential(nn.MaxPool2d(3, 1, 1), nn.Conv2d(4, 2, 1))
        self.branches = nn.ModuleList([nn.Conv2d(4, 3, 1), nn.Conv2d(4, 2, 3, padding=1), pooled])

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], 1)


class _Squeeze(nn.Module):
    """Channels weighed by what all positions show."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.gate = nn.Sequential(nn.Linear(channels, channels // 2), nn.ReLU(), nn.Linear(channels // 2, channels))

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(self.gate(x.mean((2, 3))))[:, :, None, None]


class _Shuffled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = _conv_norm(8, 8, 1, groups=2), _conv_norm(8, 8, 3, groups=8)

    def forward(self, x: Tensor) -> Any:
        return x + self.second(F.channel_shuffle(torch.relu(self.first(x)), 2))


class _Levels(nn.Module):
    """Down, across and up again, with what was there before beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.across = nn.Conv2d(2, 4, 3, padding=1), nn.Conv2d(4, 8, 3, padding=1)
        self.up, self.out = nn.ConvTranspose2d(8, 4, 2, stride=2), nn.Conv2d(8, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        state = torch.relu(self.down(x))
        deep = torch.relu(self.across(F.max_pool2d(state, 2)))
        return self.out(torch.cat([self.up(deep), state], 1))


class _Attention(nn.Module):
    """Self attention of several heads, causal, written out."""

    mask: Tensor

    def __init__(self, width: int, heads: int, length: int) -> None:
        super().__init__()
        self.heads, self.mixed, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.register_buffer("mask", torch.tril(torch.ones(length, length)))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.mixed(x).split(width, 2)
        )
        scores = query @ key.transpose(-2, -1) / math.sqrt(width // self.heads)
        scores = scores.masked_fill(self.mask[:length, :length] == 0, float("-inf"))
        mixed = scores.softmax(-1) @ value
        out: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return out


class _RectifiedAttention(_Attention):
    """Scores that are rectified in place of a softmax."""

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.mixed(x).chunk(3, dim=-1)
        scores = torch.relu((query @ key.mT) * query.shape[-1] ** -0.5) * self.mask
        return self.out(scores @ value)  # type: ignore[no-any-return]


def _block(width: int, heads: int, length: int) -> nn.Sequential:
    attention = nn.Sequential(nn.LayerNorm(width), _Attention(width, heads, length))
    wide = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
    return nn.Sequential(_Residual(attention), _Residual(wide))


class _Generator(nn.Module):
    """Tokens in, scores of the next ones out, with the embedding's own weights."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(13, 16), nn.Embedding(9, 16)
        self.blocks, self.norm = nn.Sequential(_block(16, 2, 9), _block(16, 4, 9)), nn.LayerNorm(16)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return F.linear(self.norm(self.blocks(x)), self.tokens.weight)


class _Patches(nn.Module):
    """An image as a sequence of patches, with a token of its own in front."""

    def __init__(self) -> None:
        super().__init__()
        self.patches, self.token = nn.Conv2d(3, 16, 4, 4), nn.Parameter(normal(1, 1, 16))
        self.places = nn.Parameter(normal(1, 10, 16))
        self.encoder = nn.TransformerEncoderLayer(16, 2, 24, dropout=0.0, batch_first=True, norm_first=True)
        self.head = nn.Linear(16, 5)

    def forward(self, x: Tensor) -> Tensor:
        rows = self.patches(x).flatten(2).transpose(1, 2)
        rows = torch.cat([self.token.expand(len(x), -1, -1), rows], 1) + self.places
        return self.head(self.encoder(rows)[:, 0])  # type: ignore[no-any-return]


class _Rotated(nn.Module):
    """Attention with positions as rotations, keys shared among heads, root mean square norm and a gated layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.query, self.key = nn.RMSNorm(16), nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
        self.gate, self.up, self.down = (nn.Linear(*n, bias=False) for n in ((16, 20), (16, 20), (20, 16)))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        query, key = (
            self._turned(part.unflatten(-1, (-1, 8)).transpose(1, 2)) for part in (self.query(y), self.key(y)[..., :8])
        )
        key = key.repeat_interleave(2, dim=1)
        x = x + F.scaled_dot_product_attention(query, key, key, is_causal=True).transpose(1, 2).flatten(2)
        return x + self.down(F.silu(self.gate(x)) * self.up(x))  # type: ignore[no-any-return]

    @staticmethod
    def _turned(x: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        frequencies = 10000.0 ** (-torch.arange(0, half, dtype=x.dtype) / half)
        angles = torch.arange(x.shape[-2], dtype=x.dtype)[:, None] * frequencies
        cosine, sine = angles.cos(), angles.sin()
        left, right = x[..., :half], x[..., half:]
        return torch.cat([left * cosine - right * sine, left * sine + right * cosine], -1)


class _Selective(nn.Module):
    """A state that every step decays and adds to by what it sees, step after step."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.step, self.gates = nn.Linear(width, width), nn.Linear(width, 2 * states)
        self.decay, self.skip = nn.Parameter(torch.log(torch.arange(1.0, states + 1))), nn.Parameter(normal(width))

    def forward(self, x: Tensor) -> Tensor:
        steps = F.softplus(self.step(x))
        into, out = self.gates(x).chunk(2, -1)
        state = x.new_zeros(x.shape[0], x.shape[2], self.decay.shape[0])
        outputs = []
        for t in range(x.shape[1]):
            decay = torch.exp(-steps[:, t, :, None] * torch.exp(self.decay))
            state = decay * state + (steps[:, t] * x[:, t])[..., None] * into[:, t, None, :]
            outputs.append((state * out[:, t, None, :]).sum(-1))
        return torch.stack(outputs, 1) + x * self.skip


class _Recurrent(nn.Module):
    """A recurrent layer, and a linear one on its last step."""

    def __init__(self, layer: nn.RNNBase) -> None:
        super().__init__()
        self.layer, self.out = layer, nn.Linear(layer.hidden_size * (1 + layer.bidirectional), 3)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        steps, last = self.layer(x)
        return self.out(steps[:, -1]), last[0] if isinstance(last, tuple) else last


class _Cells(nn.Module):
    """Cells that are called step by step."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.gated, self.long = nn.RNNCell(5, 6), nn.GRUCell(6, 6), nn.LSTMCell(6, 4)

    def forward(self, x: Tensor) -> Any:
        first, second = (x.new_zeros(x.shape[1], 6) for _ in range(2))
        state = None
        for step in x:
            first = self.plain(step, first)
            second = self.gated(first, second)
            state = self.long(second, state)
        assert state is not None
        return state[0] + state[1]


class _Mixed(nn.Module):
    """Rows and columns mixed in turn."""

    def __init__(self) -> None:
        super().__init__()
        self.rows, self.columns, self.norm = _mlp(6, 9, 6), _mlp(8, 10, 8), nn.LayerNorm(8)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.rows(self.norm(x).mT).mT
        return x + self.columns(self.norm(x))  # type: ignore[no-any-return]


class _Clusters(nn.Module):
    """Rows gathered around centres, weighed by how near they are."""

    def __init__(self) -> None:
        super().__init__()
        self.centres, self.norm = nn.Parameter(normal(4, 6)), nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        near = self.norm((x @ self.centres.T).flatten(0, 1)).softmax(1).view(*x.shape[:2], 4)
        gathered = near.mT @ x - near.sum(1)[..., None] * self.centres
        return F.normalize(F.normalize(gathered, dim=-1).flatten(1))


NETWORKS: dict[str, Making] = {
    "mlp": lambda: (_mlp(20, 16, 12, 5), normal(6, 20)),
    "mlp_deep_narrow": lambda: (_mlp(8, *[6] * 8, 3), normal(5, 8)),
    "digits": lambda: (_digits(), normal(2, 1, 16, 16)),
    "basic_block": lambda: (_basic_block(4, 6, 2), normal(2, 4, 8, 8)),
    "basic_block_evaluation": lambda: (_basic_block(4, 6, 2).eval(), normal(2, 4, 8, 8)),
    "bottleneck": lambda: (_bottleneck(8).eval(), normal(2, 8, 6, 6)),
    "inverted_residual": lambda: (_inverted(4, 6).eval(), normal(2, 4, 8, 8)),
    "dense_block": lambda: (_Dense(3, 2, 3).eval(), normal(2, 3, 6, 6)),
    "branches": lambda: (_Branches(), normal(1, 4, 6, 7)),
    "squeeze_excite": lambda: (_Squeeze(6), normal(2, 6, 4, 5)),
    "shuffled_groups": lambda: (_Shuffled().eval(), normal(1, 8, 5, 5)),
    "levels": lambda: (_Levels(), normal(1, 2, 8, 8)),
    "transformer_block": lambda: (_block(12, 3, 7), normal(2, 7, 12)),
    "rectified_attention": lambda: (_RectifiedAttention(8, 2, 6), normal(2, 6, 8)),
    "token_generator": lambda: (_Generator(), torch.randint(13, (2, 9))),
    "patches": lambda: (_Patches(), normal(2, 3, 12, 12)),
    "patches_evaluation": lambda: (_Patches().eval(), normal(2, 3, 12, 12)),
    "rotated_attention": lambda: (_Rotated(), normal(1, 6, 16)),
    "multihead_attention": lambda: (nn.MultiheadAttention(8, 2, batch_first=True), *[normal(2, 5, 8)] * 3),
    "selective_scan": lambda: (_Selective(5, 3), normal(2, 6, 5)),
    "lstm": lambda: (_Recurrent(nn.LSTM(6, 5, num_layers=2, batch_first=True)), normal(2, 4, 6)),
    "lstm_both_ways": lambda: (_Recurrent(nn.LSTM(6, 4, bidirectional=True, batch_first=True)), normal(2, 4, 6)),
    "gru": lambda: (_Recurrent(nn.GRU(6, 5, num_layers=2, batch_first=True)), normal(2, 4, 6)),
    "rnn": lambda: (_Recurrent(nn.RNN(6, 5, nonlinearity="relu", batch_first=True)), normal(2, 4, 6)),
    "cells": lambda: (_Cells(), normal(3, 2, 5)),
    "mixed_rows_and_columns": lambda: (_Mixed(), normal(2, 6, 8)),
    "clusters": lambda: (_Clusters(), normal(2, 5, 6)),
}  # fmt: skip
