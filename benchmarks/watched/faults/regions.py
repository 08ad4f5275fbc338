"""The hand-written parts of a transformer, forward and backward, as a library of kernels has them.

Each is looked up by name where it is called, so that a wrong one can take its place in one call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

EPS = 1e-5
IGNORED = -1
SMOOTHING = 0.1
KEPT_SHARE = 0.9


def norm(x: Tensor, w: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """The root-mean-square norm, and the inverse of the root, for the backward."""
    r = torch.rsqrt(x.square().mean(-1, keepdim=True) + eps)
    return x * r * w, r


def norm_backward(g: Tensor, x: Tensor, w: Tensor, r: Tensor) -> tuple[Tensor, Tensor]:
    product = ((g * w) * x).sum(-1, keepdim=True)
    return g * w * r - x * product * r.pow(3) / x.shape[-1], (g * x * r).flatten(0, -2).sum(0)


def gate(a: Tensor, b: Tensor) -> Tensor:
    """SwiGLU without its products with weights."""
    return a * torch.sigmoid(a) * b


def gate_backward(g: Tensor, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    s = torch.sigmoid(a)
    return g * b * (s + a * s * (1 - s)), g * a * s


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turns the halves of a head's vectors by angles of their position."""
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def rotate_backward(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return rotate(g, cos, -sin)


def attend(q: Tensor, k: Tensor, v: Tensor, keep: Tensor) -> Tensor:
    """Causal attention; `keep` says which weights the dropout leaves."""
    scores = (q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5).masked_fill(future(q), -torch.inf)
    return torch.softmax(scores, -1) * keep / KEPT_SHARE @ v


def future(q: Tensor) -> Tensor:
    return torch.ones(q.shape[-2], q.shape[-2], dtype=torch.bool).triu(1)


def project(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return x @ w.T + b


def project_backward(g: Tensor, x: Tensor, w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = g.flatten(0, -2)
    return g @ w, rows.T @ x.flatten(0, -2), rows.sum(0)


def entropy(logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
    """The mean cross entropy with smoothed labels over the rows that are not ignored, and log sum exp of each row."""
    lse = torch.logsumexp(logits, -1)
    right = logits.gather(-1, labels.clamp(min=0)[:, None])[:, 0]
    rows = lse - (1 - SMOOTHING) * right - SMOOTHING * logits.mean(-1)
    return torch.where(labels != IGNORED, rows, 0).sum() / (labels != IGNORED).sum(), lse


def entropy_backward(g: Tensor, logits: Tensor, labels: Tensor, lse: Tensor) -> Tensor:
    aim = (1 - SMOOTHING) * F.one_hot(labels.clamp(min=0), logits.shape[-1]) + SMOOTHING / logits.shape[-1]
    rows = torch.where((labels != IGNORED)[:, None], torch.exp(logits - lse[:, None]) - aim, 0)
    return g * rows / (labels != IGNORED).sum()


def embed(table: Tensor, tokens: Tensor) -> Tensor:
    return table[tokens]


def embed_backward(g: Tensor, tokens: Tensor, rows: int) -> Tensor:
    return g.new_zeros(rows, g.shape[-1]).index_add(0, tokens.flatten(), g.flatten(0, -2))


RIGHT: dict[str, Callable[..., Any]] = {
    f.__name__: f
    for f in (
        norm,
        norm_backward,
        gate,
        gate_backward,
        rotate,
        rotate_backward,
        attend,
        project,
        project_backward,
        entropy,
        entropy_backward,
        embed,
        embed_backward,
    )
}


class Plan:
    """Which wrong part takes the place of a right one, and in which layer."""

    def __init__(self) -> None:
        self.part, self.wrong, self.layer, self.here = "", None, -1, -1

    def part_of(self, name: str, layer: int) -> Any:
        """What is called for a part in a layer."""
        return self.wrong if name == self.part and layer == self.layer else RIGHT[name]

    @contextlib.contextmanager
    def planting(self, part: str, wrong: Callable[..., Any], layer: int) -> Iterator[None]:
        self.part, self.wrong, self.layer = part, wrong, layer
        try:
            yield
        finally:
            self.part, self.wrong, self.layer = "", None, -1


PLAN = Plan()


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, eps: float) -> Tensor:
        y, r = PLAN.part_of("norm", PLAN.here)(x, w, eps)
        ctx.layer = PLAN.here
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return *PLAN.part_of("norm_backward", ctx.layer)(g, *ctx.saved_tensors), None


class Gate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor) -> Tensor:
        ctx.layer = PLAN.here
        ctx.save_for_backward(a, b)
        return PLAN.part_of("gate", PLAN.here)(a, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return PLAN.part_of("gate_backward", ctx.layer)(g, *ctx.saved_tensors)


class Project(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        ctx.layer = PLAN.here
        ctx.save_for_backward(x, w)
        return PLAN.part_of("project", PLAN.here)(x, w, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return PLAN.part_of("project_backward", ctx.layer)(g, *ctx.saved_tensors)


class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Tensor, labels: Tensor) -> Tensor:
        loss, lse = PLAN.part_of("entropy", PLAN.here)(logits, labels)
        ctx.layer = PLAN.here
        ctx.save_for_backward(logits, labels, lse)
        return loss

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return PLAN.part_of("entropy_backward", ctx.layer)(g, *ctx.saved_tensors), None


class Embed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, table: Tensor, tokens: Tensor) -> Tensor:
        ctx.layer, ctx.rows = PLAN.here, len(table)
        ctx.save_for_backward(tokens)
        return PLAN.part_of("embed", PLAN.here)(table, tokens)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        return PLAN.part_of("embed_backward", ctx.layer)(g, *ctx.saved_tensors, ctx.rows), None


class Attention(nn.Module):
    """Attention of one layer, with the mask of its dropout."""

    def __init__(self, heads: int, tokens: int) -> None:
        super().__init__()
        self.register_buffer("keep", (torch.rand(heads, tokens, tokens) < KEPT_SHARE).float())

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return PLAN.part_of("attend", PLAN.here)(q, k, v, self.keep)


@torch.library.custom_op("planted::rotate", mutates_args=())
def planted_rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return PLAN.part_of("rotate", PLAN.here)(x, cos, sin)


@torch.library.custom_op("planted::rotate_backward", mutates_args=())
def planted_rotate_backward(g: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    return PLAN.part_of("rotate_backward", PLAN.here)(g, cos, sin)


def _keep(ctx: Any, inputs: Any, output: Tensor) -> None:
    ctx.layer = PLAN.here
    ctx.save_for_backward(*inputs[1:])


def _backward(ctx: Any, g: Tensor) -> Any:
    PLAN.here = ctx.layer
    return planted_rotate_backward(g, *ctx.saved_tensors), None, None


planted_rotate.register_autograd(_backward, setup_context=_keep)
