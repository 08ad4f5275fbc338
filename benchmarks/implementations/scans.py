"""Scans, linear attention, and steps of optimizers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch import rand as uniform
from torch import randn as normal

from .problem import Problem
from .ways import added, away, bf, but_last, truncated


def _onward(x: Tensor) -> Tensor:
    sums = [x[..., 0]]
    for term in x.unbind(-1)[1:]:
        sums.append(sums[-1] + term)
    return torch.stack(sums, -1)


def _doubling(x: Tensor) -> Tensor:
    """Hillis and Steele's scan."""
    step = 1
    while step < x.shape[-1]:
        x = torch.cat([x[..., :step], x[..., step:] + x[..., :-step]], -1)
        step *= 2
    return x


def _chunks(x: Tensor, size: int = 8) -> Tensor:
    """A scan of each chunk, on top of the sum of those before it."""
    parts, carry = [], torch.zeros_like(x[..., :1])
    for chunk in x.split(size, -1):
        parts.append(torch.cumsum(chunk, -1) + carry)
        carry = carry + chunk.sum(-1, keepdim=True)
    return torch.cat(parts, -1)


cumsum = Problem("cumsum", lambda x: torch.cumsum(x, -1), lambda: (normal(5, 67),))
cumsum.right("one by one", _onward)
cumsum.right("Hillis and Steele", _doubling)
cumsum.right("chunks", _chunks)
cumsum.right("prefixes", lambda x: torch.stack([x[..., : i + 1].sum(-1) for i in range(x.shape[-1])], -1))
cumsum.wrong("exclusive", lambda x: torch.cumsum(x, -1) - x)
cumsum.wrong("carry lost at 32", lambda x: torch.cat([torch.cumsum(part, -1) for part in x.split(32, -1)], -1))
cumsum.wrong("carry in bfloat16", lambda x: _carried(x, bf))
cumsum.wrong("last column lost", lambda x: but_last(torch.cumsum(x, -1)))
cumsum.wrong("reversed", lambda x: torch.cumsum(x.flip(-1), -1).flip(-1))
cumsum.wrong("off by 2^-10", lambda x: torch.cumsum(x, -1) * (1 + 2.0**-10))


def _carried(x: Tensor, through: Any) -> Tensor:
    parts, carry = [], torch.zeros_like(x[..., :1])
    for chunk in x.split(8, -1):
        parts.append(torch.cumsum(chunk, -1) + carry)
        carry = through(carry + chunk.sum(-1, keepdim=True))
    return torch.cat(parts, -1)


exclusive = Problem("exclusive cumsum", lambda x: torch.cumsum(x, -1) - x, lambda: (normal(5, 37),))
exclusive.right(
    "shifted",
    lambda x: torch.cat([torch.zeros_like(x[..., :1]), torch.cumsum(x, -1)[..., :-1]], -1),
    why="the spec takes away what it added, which leaves NaN of an infinity",
)
exclusive.wrong("inclusive", lambda x: torch.cumsum(x, -1))
exclusive.wrong("begins with the first", lambda x: torch.cat([x[..., :1], torch.cumsum(x, -1)[..., :-1]], -1))


def _recurrence(a: Tensor, b: Tensor, first: float = 1.0, through: Any = lambda h: h) -> Tensor:
    h, states = first * b[0], [first * b[0]]
    for i in range(1, b.shape[0]):
        h = through(a[i] * h + b[i])
        states.append(h)
    return torch.stack(states)


def _parallel(a: Tensor, b: Tensor) -> Tensor:
    step = 1
    while step < b.shape[0]:
        b = torch.cat([b[:step], b[step:] + a[step:] * b[:-step]])
        a = torch.cat([a[:step], a[step:] * a[:-step]])
        step *= 2
    return b


def _chunked(a: Tensor, b: Tensor, size: int = 4) -> Tensor:
    """Each chunk from zero on, and then what the state before it adds."""
    states, h = [], torch.zeros_like(b[0])
    for c, d in zip(a.split(size), b.split(size), strict=True):
        inner = torch.zeros_like(h)
        product = torch.ones_like(h)
        for one, two in zip(c, d, strict=True):
            inner, product = one * inner + two, product * one
            states.append(inner + product * h)
        h = states[-1]
    return torch.stack(states)


recurrence = Problem("linear recurrence", _recurrence, lambda: (torch.sigmoid(normal(16, 20)), normal(16, 20)))
recurrence.right("in parallel", _parallel)
recurrence.right("chunks of 4", _chunked)
recurrence.wrong("decay one late", lambda a, b: _recurrence(torch.cat([a[:1], a[:-1]]), b))
recurrence.wrong("state in bfloat16", lambda a, b: _recurrence(a, b, through=bf))
recurrence.wrong(
    "state lost at 8", lambda a, b: torch.cat([_recurrence(c, d) for c, d in zip(a.split(8), b.split(8), strict=True)])
)
recurrence.wrong("begins with zero", lambda a, b: _recurrence(a, b, 0.0))
recurrence.wrong("1 - a", lambda a, b: _recurrence(1 - a, b))

gated = Problem(
    "exponential moving average", lambda x: _recurrence(torch.full_like(x, 0.9), 0.1 * x), lambda: (normal(16, 9),)
)
gated.right("in parallel", lambda x: _parallel(torch.full_like(x, 0.9), 0.1 * x))
gated.right("chunks of 4", lambda x: _chunked(torch.full_like(x, 0.9), 0.1 * x))
gated.wrong("0.1 + 0.9 turned", lambda x: _recurrence(torch.full_like(x, 0.1), 0.9 * x))
gated.wrong("begins with x", lambda x: torch.cat([x[:1], _recurrence(torch.full_like(x, 0.9), 0.1 * x)[1:]]))
gated.wrong("decay in bfloat16", lambda x: _recurrence(torch.full_like(x, 0.8984375), 0.1 * x))


def _linear_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.tril(q @ k.transpose(-1, -2)) @ v


def _states(q: Tensor, k: Tensor, v: Tensor, through: Any = lambda s: s, late: bool = False) -> Tensor:
    """One state k v for each token, which the query multiplies."""
    state, rows = torch.zeros_like(k[..., 0, :, None] * v[..., 0, None, :]), []
    for i in range(q.shape[-2]):
        before = state
        state = through(state + k[..., i, :, None] * v[..., i, None, :])
        rows.append(q[..., i, None, :] @ (before if late else state))
    return torch.cat(rows, -2)


def _pieces(q: Tensor, k: Tensor, v: Tensor, size: int = 5) -> Tensor:
    """Chunks of tokens: inside by the masked product, and from the chunks before by their state."""
    state, parts = 0.0, []
    for a, b, c in zip(q.split(size, -2), k.split(size, -2), v.split(size, -2), strict=True):
        parts.append(_linear_attention(a, b, c) + a @ state if parts else _linear_attention(a, b, c))
        state = state + b.transpose(-1, -2) @ c
    return torch.cat(parts, -2)


linear_attention = Problem(
    "linear attention", _linear_attention, lambda: (normal(2, 13, 8), normal(2, 13, 8), normal(2, 13, 6))
)
linear_attention.right(
    "states", _states, why="adds over keys first, over features then: sums in another order than the products"
)
linear_attention.right("chunks", _pieces, why="as states")
linear_attention.right(
    "values split", lambda q, k, v: torch.cat([_linear_attention(q, k, part) for part in v.split(2, -1)], -1)
)
linear_attention.wrong("strictly below", lambda q, k, v: torch.tril(q @ k.transpose(-1, -2), -1) @ v)
linear_attention.wrong("no mask", lambda q, k, v: q @ k.transpose(-1, -2) @ v)
linear_attention.wrong("state in bfloat16", lambda q, k, v: _states(q, k, v, bf))
linear_attention.wrong("state one late", lambda q, k, v: _states(q, k, v, late=True))
linear_attention.wrong("scores in bfloat16", lambda q, k, v: torch.tril(bf(q @ k.transpose(-1, -2))) @ v)

returns = Problem(
    "discounted returns", lambda r: _recurrence(torch.full_like(r, 0.95), r.flip(0)).flip(0), lambda: (normal(14, 6),)
)
returns.right(
    "weights",
    lambda r: torch.stack([added(0.95**j * r[i + j] for j in range(r.shape[0] - i)) for i in range(r.shape[0])]),
    why="powers of the factor round once, and not step by step",
)
returns.right("in parallel", lambda r: _parallel(torch.full_like(r, 0.95), r.flip(0)).flip(0))
returns.wrong("forwards", lambda r: _recurrence(torch.full_like(r, 0.95), r))
returns.wrong("0.99", lambda r: _recurrence(torch.full_like(r, 0.99), r.flip(0)).flip(0))

# -------------------------------- steps of optimizers

_RATE, _DECAY, _B1, _B2 = 1e-2, 0.1, 0.9, 0.95


def _adamw(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    step: int = 10,
    decay: float = _DECAY,
    eps_inside: bool = False,
    b2: float = _B2,
) -> tuple[Tensor, Tensor, Tensor]:
    m, v = _B1 * m + (1 - _B1) * g, b2 * v + (1 - b2) * g * g
    a, b = m / (1 - _B1**step), v / (1 - b2**step)
    root = torch.sqrt(b + 1e-8) if eps_inside else torch.sqrt(b) + 1e-8
    return p * (1 - _RATE * decay) - _RATE * a / root, m, v


def _moments() -> tuple[Tensor, ...]:
    return normal(9, 7), normal(9, 7), 0.1 * normal(9, 7), 0.1 * uniform(9, 7)


adamw = Problem("AdamW step", _adamw, _moments)
adamw.right(
    "decay as a subtraction",
    lambda p, g, m, v: (
        p
        - _RATE * _DECAY * p
        - _RATE * (_adamw(p, g, m, v)[1] / (1 - _B1**10)) / (torch.sqrt(_adamw(p, g, m, v)[2] / (1 - _B2**10)) + 1e-8),
        *_adamw(p, g, m, v)[1:],
    ),
)
adamw.right(
    "g (g (1 - b2))", lambda p, g, m, v: (_adamw(p, g, m, v)[0], _B1 * m + (1 - _B1) * g, v * _B2 + g * (g * (1 - _B2)))
)
adamw.wrong("step 9", lambda p, g, m, v: _adamw(p, g, m, v, 9))
adamw.wrong("no decay", lambda p, g, m, v: _adamw(p, g, m, v, decay=0.0))
adamw.wrong("eps inside the root", lambda p, g, m, v: _adamw(p, g, m, v, eps_inside=True))
adamw.wrong("moments not written", lambda p, g, m, v: (_adamw(p, g, m, v)[0], m * 1.0, v * 1.0))
adamw.wrong("beta of 0.999", lambda p, g, m, v: _adamw(p, g, m, v, b2=0.999))
adamw.wrong("Adam's decay", lambda p, g, m, v: _adamw(p, g + _DECAY * p, m, v, decay=0.0))
adamw.wrong(
    "p cut to bfloat16",
    lambda p, g, m, v: (truncated(_adamw(p, g, m, v)[0]), *_adamw(p, g, m, v)[1:]),
    dtypes=("bfloat16",),
)

sgd = Problem(
    "SGD with momentum",
    lambda p, g, m: (p - 0.1 * (0.9 * m + g), 0.9 * m + g),
    lambda: tuple(normal(9, 7) for _ in range(3)),
)
sgd.right("one after the other", lambda p, g, m: (p - 0.1 * (g + m * 0.9), g + m * 0.9))
sgd.wrong("Nesterov", lambda p, g, m: (p - 0.1 * (0.9 * (0.9 * m + g) + g), 0.9 * m + g))
sgd.wrong("dampened", lambda p, g, m: (p - 0.1 * (0.9 * m + 0.1 * g), 0.9 * m + 0.1 * g))
sgd.wrong("momentum returned as it was", lambda p, g, m: (p - 0.1 * (0.9 * m + g), m * 1.0))
sgd.wrong("update stored in bfloat16", lambda p, g, m: (p - 0.1 * bf(0.9 * m + g), 0.9 * m + g))

lion = Problem(
    "Lion step",
    lambda p, g, m: (p - 0.1 * torch.sign(0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g),
    lambda: tuple(normal(9, 7) for _ in range(3)),
)
lion.right("by a choice", lambda p, g, m: (p - 0.1 * torch.sign(0.1 * g + 0.9 * m), 0.01 * g + 0.99 * m))
lion.wrong("factors turned", lambda p, g, m: (p - 0.1 * torch.sign(0.99 * m + 0.01 * g), 0.9 * m + 0.1 * g))
lion.wrong("no sign", lambda p, g, m: (p - 0.1 * (0.9 * m + 0.1 * g), 0.99 * m + 0.01 * g))

clip = Problem(
    "clipping by the norm",
    lambda g: g * torch.clamp(1.0 / (torch.linalg.vector_norm(g) + 1e-6), max=1.0),
    lambda: (normal(9, 7),),
)
clip.right(
    "minimum", lambda g: g * torch.minimum(1.0 / (torch.linalg.vector_norm(g) + 1e-6), torch.ones((), dtype=g.dtype))
)
clip.wrong(
    "no eps, and by rows",
    lambda g: g * torch.clamp(1.0 / (torch.linalg.vector_norm(g, dim=-1, keepdim=True) + 1e-6), max=1.0),
)
clip.wrong("always", lambda g: g * torch.clamp(2.0 / (torch.linalg.vector_norm(g) + 1e-6), max=1.0))
clip.wrong("squared norm", lambda g: g * torch.clamp(1.0 / ((g * g).sum() + 1e-6), max=1.0))

quantize = Problem(
    "int8 quantization",
    lambda x: (torch.clamp(torch.round(x * 24.0), -128, 127).to(torch.int8), x.abs().amax(-1)),
    lambda: (normal(7, 33),),
)
quantize.right(
    "bounds after", lambda x: (torch.round(torch.clamp(x * 24.0, -128, 127)).to(torch.int8), x.abs().amax(-1))
)
quantize.right(
    "largest of both signs",
    lambda x: (torch.clamp(torch.round(x * 24.0), -128, 127).to(torch.int8), torch.maximum(x.amax(-1), -x.amin(-1))),
)
quantize.wrong("truncated", lambda x: (torch.clamp(x * 24.0, -128, 127).to(torch.int8), x.abs().amax(-1)))
quantize.wrong("bounds of 64", lambda x: (torch.clamp(torch.round(x * 24.0), -64, 63).to(torch.int8), x.abs().amax(-1)))
quantize.wrong("floor", lambda x: (torch.clamp(torch.floor(x * 24.0), -128, 127).to(torch.int8), x.abs().amax(-1)))
quantize.wrong(
    "largest without signs", lambda x: (torch.clamp(torch.round(x * 24.0), -128, 127).to(torch.int8), x.amax(-1))
)
quantize.wrong(
    "one more", lambda x: (torch.clamp(torch.round(x * 24.0) + 1, -128, 127).to(torch.int8), x.abs().amax(-1))
)

fake = Problem(
    "fake quantization",
    lambda x: torch.clamp(torch.round(x / 0.125), -128, 127) * 0.125,
    lambda: (torch.round(normal(7, 33) * 16) / 16,),
)
fake.right("times 8", lambda x: torch.clamp(torch.round(x * 8), -128, 127) / 8)
fake.wrong("halves away from zero", lambda x: torch.clamp(away(x * 8), -128, 127) / 8)
fake.wrong("truncated", lambda x: torch.clamp(torch.trunc(x * 8), -128, 127) / 8)
fake.wrong("scale of 0.126", lambda x: torch.clamp(torch.round(x / 0.126), -128, 127) * 0.126)

PROBLEMS = [
    cumsum, exclusive, recurrence, gated, linear_attention, returns, adamw, sgd, lion, clip, quantize, fake,
]  # fmt: skip
