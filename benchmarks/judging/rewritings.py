"""Right rewritings: a spec, and the same function as kernels compute it, in other orders and by other formulas.

What this is for: their errors are no copies of the spec's. A rewriting has more roundings, or others, or one that a
whole row has in common; so it shows whether what is called unlikely is.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from .formulas import (
    ATTENTION,
    NORMS,
    RMS,
    attention,
    group_norm,
    group_norm_by_rows,
    group_norm_by_var_mean,
    layer_norm,
    lse_of_chunks,
    lse_online,
    rms_norm,
    softmax,
    softmax_by_lse,
    softmax_in_two_passes,
    softmax_online,
)
from .orders import PRODUCTS, SUMS, Way, in_float64, three_layers, two_layers


@dataclass(frozen=True)
class Pair:
    """A spec and its rewritings, by name.

    Attributes:
        name: of the pair. spec: a function of floating tensors. shapes: of those, which are normal numbers; from the
            second on they are divided by the square root of their length along axis -2, if they have one.
        ways: the rewritings. halves: whether they are asked in half types as well, computed in float32.
    """

    name: str
    spec: Way
    shapes: tuple[tuple[int, ...], ...]
    ways: dict[str, Way]
    halves: bool = True

    def draw(self, seed: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        """The arguments of one call."""
        generator = torch.Generator().manual_seed(1000 + seed)
        first, *others = (torch.randn(shape, generator=generator, dtype=torch.float64) for shape in self.shapes)
        scaled = (t / t.shape[-2] ** 0.5 if t.ndim > 1 else t for t in others)
        return tuple(t.to(dtype) for t in (first, *scaled))


# -------------------------------- experts, scans, convolutions, losses


def experts(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Two of four experts for each row, weighted by their gates: all of them computed, most of them times zero."""
    chances = torch.softmax(x @ gate, -1)
    best, at = chances.topk(2, -1)
    weights = torch.zeros_like(chances).scatter(-1, at, best / best.sum(-1, keepdim=True))
    return torch.einsum("te,ted->td", weights, F.silu(torch.einsum("tc,ecd->ted", x, up)))


def experts_gathered(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    best, at = torch.softmax(x @ gate, -1).topk(2, -1)
    best = best / best.sum(-1, keepdim=True)
    return sum(
        (best[:, i, None] * F.silu(torch.bmm(x[:, None], up[at[:, i]])[:, 0]) for i in range(2)), torch.zeros(())
    )


def experts_of_logits(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    """Softmax over the chosen logits alone, which is the same."""
    best, at = (x @ gate).topk(2, -1)
    best = torch.softmax(best, -1)
    return sum(
        (best[:, i, None] * F.silu(torch.bmm(x[:, None], up[at[:, i]])[:, 0]) for i in range(2)), torch.zeros(())
    )


def experts_one_hot(x: Tensor, gate: Tensor, up: Tensor) -> Tensor:
    best, at = torch.softmax(x @ gate, -1).topk(2, -1)
    weights = (F.one_hot(at, 4).to(x.dtype) * (best / best.sum(-1, keepdim=True))[..., None]).sum(1)
    return functools.reduce(torch.add, (weights[:, e, None] * F.silu(x @ up[e]) for e in range(4)))


def cumsum(x: Tensor) -> Tensor:
    return torch.cumsum(x, -1)


def cumsum_in_blocks(x: Tensor, size: int = 10) -> Tensor:
    blocks = [part.cumsum(-1) for part in x.split(size, -1)]
    before = torch.zeros_like(x[..., :1])
    out = []
    for block in blocks:
        out.append(block + before)
        before = before + block[..., -1:]
    return torch.cat(out, -1)


def cumsum_by_doubling(x: Tensor) -> Tensor:
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], -1)
        step *= 2
    return x


def cumsum_by_matrix(x: Tensor) -> Tensor:
    return x @ torch.ones(x.shape[-1], x.shape[-1], dtype=x.dtype).triu()


def recurrence(x: Tensor, decay: Tensor) -> Tensor:
    """h = sigmoid(decay) h + x, over axis 0."""
    share, h, out = torch.sigmoid(decay), torch.zeros_like(x[0]), []
    for row in x:
        h = share * h + row
        out.append(h)
    return torch.stack(out)


def recurrence_in_chunks(x: Tensor, decay: Tensor, size: int = 4) -> Tensor:
    share, h, out = torch.sigmoid(decay), torch.zeros_like(x[0]), []
    for chunk in x.split(size):
        rows = [
            sum((share ** (i - j) * chunk[j] for j in range(i + 1)), share ** (i + 1) * h) for i in range(len(chunk))
        ]
        out += rows
        h = rows[-1]
    return torch.stack(out)


def conv(x: Tensor, weight: Tensor) -> Tensor:
    return F.conv2d(x, weight, padding=1)


def conv_by_columns(x: Tensor, weight: Tensor) -> Tensor:
    columns = F.unfold(x, 3, padding=1)
    return (weight.reshape(len(weight), -1) @ columns).reshape(len(x), len(weight), *x.shape[2:])


def conv_by_taps(x: Tensor, weight: Tensor) -> Tensor:
    padded, (h, w) = F.pad(x, (1, 1, 1, 1)), x.shape[2:]
    taps = (
        torch.einsum("nchw,oc->nohw", padded[:, :, i : i + h, j : j + w], weight[:, :, i, j])
        for i in range(3)
        for j in range(3)
    )
    return functools.reduce(torch.add, taps)


def log_loss(x: Tensor) -> Tensor:
    return F.cross_entropy(x, torch.arange(len(x)) % x.shape[-1], reduction="none")


def _picked(x: Tensor) -> Tensor:
    return x.gather(-1, (torch.arange(len(x)) % x.shape[-1])[:, None])[:, 0]


PAIRS: tuple[Pair, ...] = (
    Pair("sum", lambda x: x.sum(-1), ((8, 500),), SUMS),
    Pair("product", torch.matmul, ((8, 128), (128, 12)), PRODUCTS),
    Pair(
        "two layers",
        two_layers,
        ((8, 48), (48, 64), (64, 24)),
        {n: functools.partial(two_layers, product=p) for n, p in PRODUCTS.items()},
    ),
    Pair(
        "three layers",
        three_layers,
        ((8, 32), (32, 32), (32, 32), (32, 32)),
        {n: functools.partial(three_layers, product=p) for n, p in PRODUCTS.items()},
    ),
    Pair(
        "softmax",
        softmax,
        ((8, 65),),
        {
            "by lse": softmax_by_lse,
            "two passes": softmax_in_two_passes,
            "online": softmax_online,
            "online in chunks": functools.partial(softmax_online, size=16),
            "in float64": in_float64(softmax),
        },
    ),
    Pair(
        "log softmax",
        lambda x: torch.log_softmax(x, -1),
        ((8, 65),),
        {
            "less lse": lambda x: x - torch.logsumexp(x, -1, keepdim=True),
            "less lse of chunks": lambda x: x - lse_of_chunks(x)[..., None],
        },
    ),
    Pair(
        "logsumexp", lambda x: torch.logsumexp(x, -1), ((16, 65),), {"of chunks": lse_of_chunks, "online": lse_online}
    ),
    Pair("attention", attention, ((2, 12, 16), (2, 40, 16), (2, 40, 8)), ATTENTION),
    Pair("layer norm", layer_norm, ((16, 48), (48,), (48,)), NORMS),
    Pair("rms norm", rms_norm, ((16, 48), (48,)), RMS),
    Pair(
        "group norm", group_norm, ((4, 8, 5, 5),), {"by rows": group_norm_by_rows, "var_mean": group_norm_by_var_mean}
    ),
    Pair(
        "experts",
        experts,
        ((24, 16), (16, 4), (4, 16, 24)),
        {"gathered": experts_gathered, "softmax of two": experts_of_logits, "one hot": experts_one_hot},
        halves=False,
    ),
    Pair(
        "cumsum",
        cumsum,
        ((6, 64),),
        {"in blocks": cumsum_in_blocks, "by doubling": cumsum_by_doubling, "by a matrix": cumsum_by_matrix},
    ),
    Pair(
        "recurrence",
        recurrence,
        ((24, 12), (12,)),
        {"in chunks": recurrence_in_chunks, "chunks of 8": functools.partial(recurrence_in_chunks, size=8)},
    ),
    Pair("convolution", conv, ((2, 6, 7, 7), (5, 6, 3, 3)), {"by columns": conv_by_columns, "by taps": conv_by_taps}),
    Pair(
        "cross entropy",
        log_loss,
        ((24, 33),),
        {
            "lse less the logit": lambda x: torch.logsumexp(x, -1) - _picked(x),
            "lse of chunks": lambda x: lse_of_chunks(x) - _picked(x),
        },
    ),
    Pair(
        "silu",
        F.silu,
        ((32, 32),),
        {"quotient": lambda x: x / (1 + torch.exp(-x)), "by tanh": lambda x: 0.5 * x * (1 + torch.tanh(0.5 * x))},
    ),
    Pair(
        "unit length",
        lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True),
        ((16, 33),),
        {
            "rsqrt": lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True)),
            "scaled": lambda x: F.normalize(x / x.abs().amax(-1, keepdim=True), dim=-1),
        },
    ),
)
