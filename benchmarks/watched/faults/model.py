"""A transformer of twelve layers whose norms, gates, rotations, attention, products and loss are written by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import regions
from .regions import EPS, PLAN, Attention, Embed, Entropy, Gate, Norm, Project, planted_rotate

WIDTH, HEADS, LAYERS, WORDS, ROWS, TOKENS = 64, 4, 12, 100, 2, 32
#: The layer whose scores are large, as those of a trained model may be: there exp needs the maximum taken off.
LARGE_SCORES = 2
#: What is not in a layer of its own: the embedding, and the loss.
OUTSIDE = -2


def angles() -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position and pair."""
    half = WIDTH // HEADS // 2
    turns = torch.arange(TOKENS)[:, None] * 10000.0 ** (-torch.arange(half) / half)
    return turns.cos(), turns.sin()


class Block(nn.Module):
    """A layer: attention and a gated layer, each behind a norm and beside a residual."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number = number
        self.scale1, self.scale2 = (nn.Parameter(1 + 0.1 * torch.randn(WIDTH)) for _ in range(2))
        self.qkv, self.mixed = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.open, self.down = (
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(WIDTH, 2 * WIDTH),
            nn.Linear(2 * WIDTH, WIDTH),
        )
        self.attention = Attention(HEADS, TOKENS)
        cos, sin = angles()
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)
        if number == LARGE_SCORES:
            with torch.no_grad():
                self.qkv.weight[: 2 * WIDTH] *= 16

    def forward(self, x: Tensor) -> Tensor:
        PLAN.here = self.number
        x = PLAN.part_of("compose", self.number)(self, x)
        PLAN.here = OUTSIDE
        return x

    def attend(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        q, k = planted_rotate(q, self.cos, self.sin), planted_rotate(k, self.cos, self.sin)
        return Project.apply(self.attention(q, k, v).transpose(1, 2).flatten(2), self.mixed.weight, self.mixed.bias)

    def feed(self, x: Tensor) -> Tensor:
        return self.down(Gate.apply(self.open(x), self.up(x)))


def compose(block: Block, x: Tensor) -> Tensor:
    """What a block is made of."""
    x = x + block.attend(Norm.apply(x, block.scale1, EPS))
    return x + block.feed(Norm.apply(x, block.scale2, EPS))


regions.RIGHT["compose"] = compose


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(WORDS, WIDTH))
        self.blocks = nn.ModuleList(Block(number) for number in range(LAYERS))
        self.scale, self.head = nn.Parameter(torch.ones(WIDTH)), nn.Linear(WIDTH, WORDS)

    def forward(self, tokens: Tensor, labels: Tensor) -> Tensor:
        PLAN.here = OUTSIDE
        x = Embed.apply(self.table, tokens)
        for block in self.blocks:
            x = block(x)
        return Entropy.apply(self.head(Norm.apply(x, self.scale, EPS)).flatten(0, 1), labels.flatten())


def build(seed: int = 0) -> tuple[Transformer, Tensor, Tensor]:
    """The model, its tokens, and its labels, of which some are ignored."""
    torch.manual_seed(seed)
    model, tokens = Transformer(), torch.randint(0, WORDS // 2, (ROWS, TOKENS))
    labels = tokens.roll(-1, 1)
    labels[0, 3] = labels[1, 10] = regions.IGNORED
    return model, tokens, labels


# ------------------------------------------------------------------------ the same in plain PyTorch, as specs


def norm_spec(x: Tensor, w: Tensor, eps: float) -> Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * w


def gate_spec(a: Tensor, b: Tensor) -> Tensor:
    return F.silu(a) * b


def entropy_spec(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits, labels, ignore_index=regions.IGNORED, label_smoothing=regions.SMOOTHING)


def embed_spec(table: Tensor, tokens: Tensor) -> Tensor:
    return F.embedding(tokens, table)


def project_spec(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return F.linear(x, w, b)


def rotate_spec(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rotate_backward_spec(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate_spec(g, cos, -sin)


def attention_spec(module: Attention, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    later = torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)
    scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf)
    return torch.softmax(scores, -1) * module.keep / regions.KEPT_SHARE @ v


def block_spec(block: Block, x: Tensor) -> Tensor:
    y = norm_spec(x, block.scale1, EPS)
    q, k, v = F.linear(y, block.qkv.weight, block.qkv.bias).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
    q, k = rotate_spec(q, block.cos, block.sin), rotate_spec(k, block.cos, block.sin)
    y = attention_spec(block.attention, q, k, v).transpose(1, 2).flatten(2)
    x = x + F.linear(y, block.mixed.weight, block.mixed.bias)
    y = norm_spec(x, block.scale2, EPS)
    y = gate_spec(F.linear(y, block.open.weight, block.open.bias), F.linear(y, block.up.weight, block.up.bias))
    return x + F.linear(y, block.down.weight, block.down.bias)


#: What is said of the hand-written parts: target -> reference.
SPECS = {
    Norm: norm_spec,
    Gate: gate_spec,
    Project: project_spec,
    Entropy: entropy_spec,
    Embed: embed_spec,
    Attention: attention_spec,
    "planted::rotate": rotate_spec,
    "planted::rotate_backward": rotate_backward_spec,
}
#: Of a whole block, for calls that are right and put together wrongly.
BLOCK_SPECS = {Block: block_spec}
