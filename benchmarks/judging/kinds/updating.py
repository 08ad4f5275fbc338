"""Steps of optimisers, and matrices that are made orthogonal or doubly stochastic."""

from __future__ import annotations

import torch
from torch import Tensor

from .kind import HALVES, Draw, Kind, mistakes, normal, normals

_F32 = (torch.float32, torch.float64)
Tensors = tuple[Tensor, ...]


def adam(
    p: Tensor,
    g: Tensor,
    m: Tensor,
    v: Tensor,
    *,
    corrects: bool = True,
    eps: float = 1e-8,
    second: float = 0.999,
    decay: float = 0.0,
) -> Tensors:
    """The third step of Adam."""
    g = g + decay * p if decay else g
    m, v = 0.9 * m + (1 - 0.9) * g, second * v + (1 - second) * g * g
    first, other = (1 - 0.9**3, 1 - 0.999**3) if corrects else (1.0, 1.0)
    return p - 1e-2 * (m / first) / (torch.sqrt(v / other) + eps), m, v


def adam_fused(p: Tensor, g: Tensor, m: Tensor, v: Tensor) -> Tensors:
    m, v = torch.lerp(m, g, 1 - 0.9), v * 0.999 + g * (g * (1 - 0.999))
    root = (1 - 0.999**3) ** 0.5
    return p - (1e-2 * root / (1 - 0.9**3)) * (m / (v.sqrt() + 1e-8 * root)), m, v


def lion(p: Tensor, g: Tensor, m: Tensor, *, swaps: bool = False, decay: float = 0.1, signs: bool = True) -> Tensors:
    a, b = (0.99, 0.9) if swaps else (0.9, 0.99)
    step = a * m + (1 - a) * g
    return p * (1 - 1e-2 * decay) - 1e-2 * (torch.sign(step) if signs else step), b * m + (1 - b) * g


def lion_by_where(p: Tensor, g: Tensor, m: Tensor) -> Tensors:
    step = g * (1 - 0.9) + m * 0.9
    sign = torch.where(step > 0, 1e-2, torch.where(step < 0, -1e-2, step * 0))
    return (p - 1e-3 * p) - sign, m * 0.99 + g * (1 - 0.99)


def factored(
    p: Tensor, g: Tensor, row: Tensor, column: Tensor, *, eps: float = 1e-6, keep: float = 0.9, clips: bool = True
) -> Tensors:
    """Adafactor: second moments of rows and of columns."""
    squares = g.square() + eps
    row, column = keep * row.square() + 0.1 * squares.mean(1), keep * column.square() + 0.1 * squares.mean(0)
    step = g * torch.rsqrt(row / row.mean())[:, None] * torch.rsqrt(column)
    size = torch.sqrt(step.square().mean())
    return p - 1e-2 * (step / torch.clamp_min(size, 1.0) if clips else step), row, column


def factored_by_products(p: Tensor, g: Tensor, row: Tensor, column: Tensor) -> Tensors:
    squares = g * g + 1e-6
    row = 0.9 * (row * row) + squares.sum(1) * (0.1 / g.shape[1])
    column = 0.9 * (column * column) + squares.sum(0) * (0.1 / g.shape[0])
    step = g / torch.sqrt(torch.outer(row, column) / (row.sum() / len(row)))
    size = torch.linalg.vector_norm(step) / step.numel() ** 0.5
    return p - step * (1e-2 / torch.clamp_min(size, 1.0)), row, column


def clipped(a: Tensor, b: Tensor, c: Tensor, *, most: float = 1.0, each: bool = False, always: bool = False) -> Tensors:
    """Gradients of one length together."""

    def scale(length: Tensor) -> Tensor:
        return most / length if always else torch.clamp_max(most / (length + 1e-6), 1.0)

    if each:
        a, b, c = (t * scale(torch.sqrt(t.square().sum())) for t in (a, b, c))
        return a, b, c
    factor = scale(torch.sqrt(a.square().sum() + b.square().sum() + c.square().sum()))
    return a * factor, b * factor, c * factor


def clipped_of_lengths(a: Tensor, b: Tensor, c: Tensor) -> Tensors:
    lengths = torch.stack([torch.linalg.vector_norm(t) for t in (a, b, c)])
    factor = 1 / torch.clamp_min(torch.linalg.vector_norm(lengths) + 1e-6, 1.0)
    return a * factor, b * factor, c * factor


def momentum(
    p: Tensor, g: Tensor, m: Tensor, *, nesterov: bool = True, damp: float = 0.0, decay: float = 0.1
) -> Tensors:
    g = g + decay * p
    m = 0.9 * m + (1 - damp) * g
    return p - 1e-2 * (g + 0.9 * m if nesterov else m), m


def momentum_unrolled(p: Tensor, g: Tensor, m: Tensor) -> Tensors:
    g = torch.add(g, p, alpha=0.1)
    m = torch.add(g, m, alpha=0.9)
    return p - (m * 9e-3 + g * 1e-2), m


def adam_of_bytes(
    p: Tensor,
    g: Tensor,
    codes: Tensor,
    scales: Tensor,
    v: Tensor,
    *,
    zero: int = 0,
    turned: bool = False,
    keep: float = 0.9,
) -> Tensors:
    """Adam whose first moment is stored in int8, with a scale for each block of 8."""
    scales = scales.abs()
    m = (codes.to(p.dtype) - zero) * (scales.flip(0) if turned else scales)[:, None] / 127
    m = keep * m + (1 - 0.9) * g
    v = 0.999 * v.abs() + (1 - 0.999) * g * g
    most = m.abs().amax(1)
    stored = torch.round(m / most[:, None] * 127).to(torch.int8)
    return p - 1e-2 * m / (torch.sqrt(v) + 1e-8), stored, most, v


def adam_of_bytes_fused(p: Tensor, g: Tensor, codes: Tensor, scales: Tensor, v: Tensor) -> Tensors:
    m = codes.to(p.dtype) * (scales.abs() * (0.9 / 127))[:, None] + (1 - 0.9) * g
    v = v.abs() * 0.999 + g.square() * (1 - 0.999)
    most = torch.maximum(m.amax(1), -m.amin(1))
    return p - m / (v.sqrt() + 1e-8) * 1e-2, torch.round(m * (127 / most)[:, None]).to(torch.int8), most, v


def _bytes(dtype: torch.dtype) -> Tensors:
    p, g, scales, v = normals((3, 8), (3, 8), (3,), (3, 8))(dtype)
    return p, g, (40 * normal(3, 8, seed=9)).round().clamp(-127, 127).to(torch.int8), scales, v


#: Steps of Muon and rounds of Sinkhorn: of those that are usual, 5 and 8, the bound is too wide to refuse a mistake.
STEPS, ROUNDS = 2, 2


def muon(g: Tensor, m: Tensor, *, steps: int = STEPS, third: float = 2.0315, nesterov: bool = True) -> Tensor:
    """Momentum, then steps of Newton and Schulz."""
    m = 0.95 * m + g
    x = g + 0.95 * m if nesterov else m
    x = x / (torch.sqrt((x * x).sum()) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + third * (a @ a)) @ x
    return x


def muon_by_columns(g: Tensor, m: Tensor) -> Tensor:
    """Gram matrices of the other side."""
    m = m * 0.95 + g
    x = (g + 0.95 * m).mT
    x = x * (1 / (torch.linalg.vector_norm(x) + 1e-7))
    for _ in range(STEPS):
        a = x.mT @ x
        x = x @ (2.0315 * (a @ a) - 4.7750 * a) + x * 3.4445
    return x.mT


def balanced(x: Tensor, *, rounds: int = ROUNDS, rows: bool = True, temperature: float = 1.0) -> Tensor:
    """Sinkhorn: rows and columns in turn brought to a sum of 1."""
    p = torch.exp(x / temperature)
    for _ in range(rounds):
        p = p / p.sum(-1 if rows else -2, keepdim=True)
        p = p / p.sum(-2 if rows else -1, keepdim=True)
    return p


def balanced_by_factors(x: Tensor) -> Tensor:
    """Factors of rows and of columns, by which the matrix is multiplied last."""
    p = torch.exp(x)
    column = torch.ones_like(p[..., :1, :])
    for _ in range(ROUNDS):
        row = 1 / (p * column).sum(-1, keepdim=True)
        column = 1 / (p * row).sum(-2, keepdim=True)
    return row * p * column


def streams(
    x: Tensor, inner: Tensor, pre: Tensor, post: Tensor, *, acts: bool = True, turned: bool = False, twice: bool = True
) -> Tensor:
    """Hyper-connections: streams mixed by a matrix of rows that sum to 1, and one output given to all of them."""
    mix = torch.softmax(inner, -2 if turned else -1)
    weights = torch.sigmoid(pre) if acts else pre
    y = torch.tanh(torch.einsum("s,stc->tc", weights, x))
    return torch.einsum("rs,stc->rtc", mix, x) + (2.0 if twice else 1.0) * torch.sigmoid(post)[:, None, None] * y


def streams_as_product(x: Tensor, inner: Tensor, pre: Tensor, post: Tensor) -> Tensor:
    flat = x.flatten(1)
    y = torch.tanh(torch.sigmoid(pre) @ flat)
    powers = torch.exp(inner - inner.amax(-1, keepdim=True))
    mixed = (powers @ flat) / powers.sum(-1, keepdim=True)
    return (mixed + (2 / (1 + torch.exp(-post)))[:, None] * y).unflatten(1, x.shape[1:])


def averaged(p: Tensor, q: Tensor, *, keep: float = 0.999, swaps: bool = False, twice: bool = False) -> Tensor:
    """A running mean of weights."""
    p, q = (q, p) if swaps else (p, q)
    p = keep * p + (1 - keep) * q
    return keep * p + (1 - keep) * q if twice else p


def averaged_of_shares(p: Tensor, q: Tensor) -> Tensor:
    return torch.add(q * (1 - 0.999), p, alpha=0.999)


def _steps(*shapes: tuple[int, ...]) -> Draw:
    """The last tensor is a second moment, which is not negative."""

    def draw(dtype: torch.dtype) -> Tensors:
        *others, last = normals(*shapes)(dtype)
        return (*others, last.square())

    return draw


KINDS = (
    Kind("Adam", adam, _steps(*[(4, 5)] * 4), {"fused": adam_fused},
         mistakes(adam, corrects=False, eps=1e-3, second=0.99, decay=0.1), _F32, ("FWD:signs",)),
    Kind("Lion", lion, normals(*[(4, 5)] * 3), {"by comparison": lion_by_where},
         mistakes(lion, swaps=True, decay=0.0, signs=False), _F32),
    Kind("Adafactor", factored, normals((4, 5), (4, 5), (4,), (5,)), {"by products": factored_by_products},
         mistakes(factored, eps=1e-2, keep=0.91, clips=False), _F32),
    Kind("length of gradients", clipped, normals((3, 4), (5,), (2, 2)), {"of lengths": clipped_of_lengths},
         mistakes(clipped, most=2.0, each=True, always=True), _F32),
    Kind("momentum", momentum, normals(*[(4, 5)] * 3), {"unrolled": momentum_unrolled},
         mistakes(momentum, nesterov=False, damp=0.9, decay=0.0), _F32),
    Kind("8-bit Adam", adam_of_bytes, _bytes, {"fused": adam_of_bytes_fused},
         mistakes(adam_of_bytes, zero=1, turned=True, keep=0.91), (torch.float32,)),
    Kind("Muon", muon, normals((4, 6), (4, 6)), {"by columns": muon_by_columns},
         mistakes(muon, steps=STEPS - 1, third=2.03, nesterov=False), (torch.float32,)),
    Kind("Sinkhorn", balanced, normals((2, 4, 4)), {"by factors": balanced_by_factors},
         mistakes(balanced, rounds=ROUNDS - 1, rows=False, temperature=1.01)),
    Kind("hyper-connections", streams, normals((3, 2, 5), (3, 3), (3,), (3,)), {"as a product": streams_as_product},
         mistakes(streams, acts=False, turned=True, twice=False), (torch.float32, *HALVES)),
    Kind("running mean of weights", averaged, normals((4, 5), (4, 5)), {"of shares": averaged_of_shares},
         mistakes(averaged, keep=0.998, swaps=True, twice=True), _F32),
)  # fmt: skip
