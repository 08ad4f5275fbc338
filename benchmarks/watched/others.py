"""Programs over graphs, tables and sparse matrices, and manners of training."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from .program import ADAMW_FUSED, ADAMW_LIST, ADAMW_LOOP, SGD_FUSED, SGD_LIST, SGD_LOOP, Program, draws, dtype_of


def graph_network(size: int) -> Program:
    """Messages along edges: their sum, mean and maximum, and attention over neighbours."""
    normal, below = draws()
    nodes, start, end = normal(10 * size, 8), below(10 * size, 30 * size), below(10 * size, 30 * size)

    def loss(module: nn.Module) -> Tensor:
        return module(nodes.to(dtype_of(module)), start, end)

    return Program(Graph(16 * size), loss, ADAMW_LIST)


class Graph(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second, self.head = nn.Linear(8, width), nn.Linear(2 * width, width), nn.Linear(width, 1)

    def forward(self, nodes: Tensor, start: Tensor, end: Tensor) -> Tensor:
        x = F.elu(self.first(nodes))
        message, empty, number = x[start], torch.zeros_like(x), x.new_zeros(len(x))
        total = empty.index_add(0, end, message)
        greatest = empty.scatter_reduce(0, end[:, None].expand_as(message), message, "amax", include_self=False)
        degree = number.scatter_add(0, end, x.new_ones(len(end)))
        weight = torch.exp(F.leaky_relu(message.mean(-1)))
        weight = weight / number.index_add(0, end, weight)[end]
        x = self.second(torch.cat([total / degree.clamp(min=1)[:, None], greatest], -1))
        x = x + empty.index_add(0, end, x[start] * weight[:, None])
        return self.head(F.relu(x)).square().mean()


def click_rates(size: int) -> Program:
    """DLRM: bags of embeddings by sum, mean and maximum, and their products."""
    normal, below = draws()
    numbers, words, starts = normal(4, 6), below(40 * size, 12), torch.tensor([0, 3, 5, 9])
    clicks = torch.tensor([0.0, 1.0, 1.0, 0.0])

    def loss(module: nn.Module) -> Tensor:
        dtype = dtype_of(module)
        return F.binary_cross_entropy_with_logits(module(numbers.to(dtype), words, starts), clicks.to(dtype))

    return Program(Clicks(40 * size), loss, SGD_FUSED)


class Clicks(nn.Module):
    def __init__(self, words: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(words, 8, mode=mode) for mode in ("sum", "mean", "max"))
        self.below = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 8))
        self.above = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 1))

    def forward(self, numbers: Tensor, words: Tensor, starts: Tensor) -> Tensor:
        dense = self.below(numbers)
        all_of = torch.stack([dense, *(table(words, starts) for table in self.tables)], 1)
        row, column = torch.tril_indices(4, 4, -1)
        products = torch.bmm(all_of, all_of.transpose(1, 2))[:, row, column]
        return self.above(torch.cat([dense, products], 1)).squeeze(1)


def sparse(size: int) -> Program:
    """Products with constant sparse matrices, in two layouts, as of a graph's neighbours."""
    normal, _ = draws()
    matrix = normal(12 * size, 12 * size) * (normal(12 * size, 12 * size) > 0.5)
    features = normal(12 * size, 8)

    def loss(module: nn.Module) -> Tensor:
        # Sparse products are of float32 at least.
        x = module(features.to(dtype_of(module)))
        x = x.to(torch.promote_types(x.dtype, torch.float32))
        dense = matrix.to(x.dtype)
        with torch.autocast("cpu", enabled=False):
            return (F.relu(dense.to_sparse_csr() @ x) + torch.sparse.mm(dense.to_sparse_coo(), x)).square().mean()

    return Program(nn.Linear(8, 8), loss, SGD_LIST)


def lora(size: int) -> Program:
    """A fixed weight and a product of two small ones beside it; the mask of the dropout is given."""
    normal, _ = draws()
    width = 32 * size
    x0, mask = normal(8, width), (normal(8, width) > -1.3) / 0.9
    module = nn.ModuleDict(
        {"fixed": nn.Linear(width, width).requires_grad_(False), "norm": nn.RMSNorm(width, eps=1e-6)}
    )
    module.update({"down": nn.Linear(width, 4, bias=False), "up": nn.Linear(4, width, bias=False)})

    def loss(module: Any) -> Tensor:
        x = x0.to(dtype_of(module))
        return (
            module["norm"](module["fixed"](x) + module["up"](module["down"](x * mask.to(x.dtype))) * 2.0).pow(4).mean()
        )

    return Program(module, loss, ADAMW_FUSED)


def quantized(size: int) -> Program:
    """Layers whose products are of 8-bit integers, with a trained head above."""
    normal, _ = draws()
    x0, labels = normal(8, 16), torch.arange(8) % 4
    below = nn.Sequential(nn.Linear(16, 32 * size), nn.ReLU(), nn.Linear(32 * size, 8))
    below = torch.ao.quantization.quantize_dynamic(below, {nn.Linear}, dtype=torch.qint8)
    module = nn.ModuleDict({"head": nn.Linear(8, 4), "below": below})

    def loss(module: Any) -> Tensor:
        features = module["below"](x0.float()).to(dtype_of(module))
        return F.cross_entropy(module["head"](features), labels)

    return Program(module, loss, SGD_LOOP)


def int8_weights(size: int) -> Program:
    """A weight of 8-bit integers with a trained scale for each row, and a head that is trained as if quantised."""
    normal, below = draws()
    width = 32 * size
    weight, x0 = (below(255, width, width) - 127).to(torch.int8), normal(8, width)
    module = nn.ModuleDict({"scale": nn.Linear(width, 1, bias=False), "head": nn.Linear(width, 4)})

    def loss(module: Any) -> Tensor:
        x = x0.to(dtype_of(module))
        y = x @ (weight.to(x.dtype) * (module["scale"].weight.T / 127)).T
        rounded = torch.fake_quantize_per_tensor_affine(module["head"].weight.float(), 0.01, 0, -128, 127).to(x.dtype)
        return F.gaussian_nll_loss(F.linear(F.silu(y), rounded)[:, 0], x[:, 0], F.softplus(y[:, 1]) + 0.1)

    return Program(module, loss, ADAMW_LOOP)


class Encoder(nn.Module):
    """torch's encoder layers, with dropout in training, the second one computed again for the backward if asked for."""

    def __init__(self, width: int, *, again: bool = False, dropout: float = 0.1) -> None:
        super().__init__()
        self.again, self.embedding, self.head = again, nn.Embedding(50, width), nn.Linear(width, 50)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 2 * width, dropout=dropout, batch_first=True, norm_first=again)
            for _ in range(2)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embedding(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.again else layer(x)
        return self.head(x)


def _encoded(module: nn.Module) -> Program:
    _, below = draws()
    tokens = below(50, 2, 12)

    def loss(module: nn.Module) -> Tensor:
        return F.cross_entropy(module(tokens).float().flatten(0, 1), tokens.flatten(), ignore_index=3)

    return Program(module, loss, ADAMW_FUSED)


def dropout(size: int) -> Program:
    """The draws differ in float64, so the loss is not compared."""
    return _encoded(Encoder(32 * size).train())


def checkpointed(size: int) -> Program:
    return _encoded(Encoder(32 * size, again=True, dropout=0.0).train())


def triplets(size: int) -> Program:
    """Points, near ones and far ones; and each against all others, by cosines."""
    normal, _ = draws()
    first, near, far = normal(6, 10), normal(6, 10), normal(6, 10)

    def loss(module: nn.Module) -> Tensor:
        a, b, c = (module(x.to(dtype_of(module))) for x in (first, near, far))
        cosines = F.normalize(a, dim=-1) @ F.normalize(b, dim=-1).T / 0.1
        return (
            F.triplet_margin_loss(a, b, c)
            + F.cross_entropy(cosines, torch.arange(6))
            + F.cosine_similarity(a, c).mean()
        )

    return Program(nn.Sequential(nn.Linear(10, 16 * size), nn.Softsign(), nn.Linear(16 * size, 8)), loss, SGD_LIST)


def policy_gradient(size: int) -> Program:
    """Proximal policy optimization: ratios of probabilities, clipped, values, and the entropy."""
    normal, below = draws()
    states, actions, gains, before = normal(16, 6), below(3, 16), normal(16), -normal(16).abs() - 0.5
    module = nn.ModuleDict({"policy": nn.Linear(16 * size, 3), "value": nn.Linear(16 * size, 1)})
    module["below"] = nn.Sequential(nn.Linear(6, 16 * size), nn.Tanh())

    def loss(module: Any) -> Tensor:
        x = module["below"](states.to(dtype_of(module)))
        chances = torch.distributions.Categorical(logits=module["policy"](x).float())
        ratio = torch.exp(chances.log_prob(actions) - before.to(x.dtype))
        gain = gains.to(x.dtype)
        policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        return (
            policy + 0.5 * F.mse_loss(module["value"](x)[:, 0].float(), gain.float()) - 0.01 * chances.entropy().mean()
        )

    return Program(module, loss, ADAMW_LIST)


def meta_learning(size: int) -> Program:
    """A step of the inner training is differentiated (MAML)."""
    normal, _ = draws()
    x0, y0 = normal(12, 3), normal(12, 1)

    def loss(module: nn.Module) -> Tensor:
        x, y = x0.to(dtype_of(module)), y0.to(dtype_of(module))
        named = dict(module.named_parameters())
        inner = F.mse_loss(torch.func.functional_call(module, named, (x[:6],)), y[:6])
        slopes = torch.autograd.grad(inner, list(named.values()), create_graph=True)
        moved = {name: p - 0.1 * slope for (name, p), slope in zip(named.items(), slopes, strict=True)}
        return F.mse_loss(torch.func.functional_call(module, moved, (x[6:],)), y[6:])

    return Program(nn.Sequential(nn.Linear(3, 16 * size), nn.Tanh(), nn.Linear(16 * size, 1)), loss, ADAMW_FUSED)


def distillation(size: int) -> Program:
    """A small model held to the softened logits of a larger one, and the focal loss."""
    normal, below = draws()
    x0, labels = normal(12, 8), below(5, 12)
    small, large = nn.Linear(8, 5), nn.Sequential(nn.Linear(8, 32 * size), nn.ReLU6(), nn.Linear(32 * size, 5))
    module = nn.ModuleDict({"small": small, "large": large.requires_grad_(False)})

    def loss(module: Any) -> Tensor:
        x = x0.to(dtype_of(module))
        aim, logits = torch.softmax(module["large"](x) / 2, -1), module["small"](x)
        chance = torch.softmax(logits, -1).gather(1, labels[:, None])
        focal = -((1 - chance).square() * torch.log(chance)).mean()
        return 4 * F.kl_div(torch.log_softmax(logits / 2, -1), aim, reduction="batchmean") + focal

    return Program(module, loss, SGD_LOOP)


def group_normed_video(size: int) -> Program:
    """Convolutions in three dimensions, averaged, with weights standardized."""
    normal, _ = draws()
    films, labels = normal(2, 2, 4, 8, 8), torch.tensor([0, 2])
    conv = nn.Conv3d(2, 8 * size, 3, padding=1)
    module = nn.ModuleDict({"conv": conv, "norm": nn.GroupNorm(2, 8 * size), "head": nn.Linear(8 * size, 3)})

    def loss(module: Any) -> Tensor:
        x, weight = films.to(dtype_of(module)), module["conv"].weight
        mean, spread = weight.mean((1, 2, 3, 4), keepdim=True), weight.std((1, 2, 3, 4), keepdim=True)
        x = F.conv3d(x, (weight - mean) / (spread + 1e-5), module["conv"].bias, padding=1)
        x = F.avg_pool3d(F.silu(module["norm"](x)).to(torch.promote_types(x.dtype, torch.float32)), 2).to(x.dtype)
        logits = module["head"](x.mean((2, 3, 4)))
        return F.multi_margin_loss(logits.to(torch.promote_types(x.dtype, torch.float32)), labels)

    return Program(module, loss, ADAMW_LIST)


def hopfield(size: int) -> Program:
    """Attention that is iterated, with sigmoid gates, rotary positions and a sink, all written out."""
    normal, _ = draws()
    width, tokens = 16 * size, normal(2, 12, 16 * size)
    module = nn.ModuleDict({"qkv": nn.Linear(width, 3 * width), "gate": nn.Linear(width, width)})
    half = width // 2
    angles = torch.arange(12)[:, None] * torch.exp(-torch.arange(half) * math.log(100) / half)

    def turn(x: Tensor) -> Tensor:
        cos, sin, (a, b) = angles.cos().to(x.dtype), angles.sin().to(x.dtype), x.chunk(2, -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)

    def loss(module: Any) -> Tensor:
        x = tokens.to(dtype_of(module))
        for _ in range(2):
            q, k, v = module["qkv"](x).chunk(3, -1)
            scores = turn(q) @ turn(k).transpose(-1, -2) / math.sqrt(width)
            scores = torch.cat([scores, scores.new_zeros(2, 12, 1)], -1)
            x = x + torch.sigmoid(module["gate"](x)) * (torch.softmax(scores, -1)[..., :-1] @ v)
        return torch.log(torch.cosh(x - tokens.to(x.dtype).roll(1, 1))).mean()

    return Program(module, loss, SGD_FUSED)
