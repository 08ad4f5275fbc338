"""Products of matrices and convolutions, with what is fused to them."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch import randn as normal

from .problem import Problem, by_hand
from .ways import PRODUCTS, added, bf, but_last, shifted, split, split_last_first, term_by_term, tf32

matmul = Problem("matmul", torch.matmul, lambda: (normal(17, 65), normal(65, 24)))
for title, way in PRODUCTS.items():
    matmul.right(title, way)
matmul.right("backward by hand", by_hand(lambda a, b: (a @ b, (a, b)), lambda s, g: (g @ s[1].T, s[0].T @ g)))
matmul.wrong("factors in TF32", lambda a, b: tf32(a) @ tf32(b), dtypes=("float32",))
matmul.wrong("factors in bfloat16", lambda a, b: bf(a) @ bf(b), dtypes=("float32",))
matmul.wrong("partial sums in bfloat16", lambda a, b: added_in_bfloat16(a, b))
matmul.wrong("K rounded down to 16", lambda a, b: a[:, : a.shape[1] // 16 * 16] @ b[: a.shape[1] // 16 * 16])
matmul.wrong("last column lost", lambda a, b: but_last(a @ b))
matmul.wrong("row before", lambda a, b: shifted(a @ b))
matmul.wrong("off by 2^-10", lambda a, b: a @ b * (1 + 2.0**-10))
matmul.wrong("off by 1e-5", lambda a, b: a @ b * (1 + 1e-5), dtypes=("float32",))
matmul.wrong("one tile twice", lambda a, b: a @ b + a[:, :1] @ b[:1])
matmul.wrong(
    "gradient of b not transposed", by_hand(lambda a, b: (a @ b, (a, b)), lambda s, g: (g @ s[1].T, s[0].T @ g.flip(0)))
)
matmul.wrong("truncated at the end", lambda a, b: _cut(a @ b), dtypes=("bfloat16",))
matmul.wrong("rounded twice", lambda a, b: (a @ b).half().to(a.dtype), dtypes=("bfloat16",))


def added_in_bfloat16(a: Tensor, b: Tensor, start: Any = 0.0) -> Tensor:
    total = start
    for p, q in zip(a.split(8, -1), b.split(8, -2), strict=True):
        total = bf(total + p @ q)
    return torch.as_tensor(total)


def _cut(y: Tensor) -> Tensor:
    return (y.detach().float().view(torch.int32) & -65536).view(torch.float32)


linear = Problem(
    "linear, bias, gelu",
    lambda x, w, b: F.gelu(F.linear(x, w, b)),
    lambda: (normal(9, 40), normal(12, 40) * 0.3, normal(12)),
)
linear.right("bias first", lambda x, w, b: F.gelu(split(x, w.T, b.expand(x.shape[0], -1))))
linear.right("bias last", lambda x, w, b: F.gelu(split_last_first(x, w.T) + b))
linear.right("term by term from the bias on", lambda x, w, b: F.gelu(term_by_term(x, w.T, b.expand(x.shape[0], -1))))
linear.right("addmm", lambda x, w, b: F.gelu(torch.addmm(b, x, w.T)))
linear.wrong("no bias", lambda x, w, b: F.gelu(x @ w.T))
linear.wrong("bias after", lambda x, w, b: F.gelu(x @ w.T) + b)
linear.wrong("gelu by tanh", lambda x, w, b: F.gelu(F.linear(x, w, b), approximate="tanh"))
linear.wrong("stored in bfloat16 before gelu", lambda x, w, b: F.gelu(bf(F.linear(x, w, b))))
linear.wrong("accumulators in bfloat16", lambda x, w, b: F.gelu(added_in_bfloat16(x, w.T, b)))
linear.wrong(
    "bias added with every tile",
    lambda x, w, b: F.gelu(added(p @ q.T + b for p, q in zip(x.split(20, -1), w.split(20, -1), strict=True))),
)

onto = Problem(
    "addmm onto C", lambda c, a, b: torch.addmm(c, a, b), lambda: (normal(9, 11), normal(9, 48), normal(48, 11))
)
onto.right("from C on", lambda c, a, b: split(a, b, c))
onto.right("C last", lambda c, a, b: split(a, b) + c)
onto.right("term by term from C on", lambda c, a, b: term_by_term(a, b, c))
onto.right(
    "by halves of C",
    lambda c, a, b: torch.cat([torch.addmm(p, q, b) for p, q in zip(c.split(4), a.split(4), strict=True)]),
)
onto.wrong("C rounded", lambda c, a, b: torch.addmm(bf(c), a, b), dtypes=("float32",))
onto.wrong("no C", lambda c, a, b: a @ b)
onto.wrong("C twice", lambda c, a, b: torch.addmm(c, a, b, beta=2))
onto.wrong("accumulators in bfloat16", lambda c, a, b: added_in_bfloat16(a, b, c))

scaled = Problem(
    "alpha a b + beta c",
    lambda c, a, b: 0.5 * (a @ b) + 0.3 * c,
    lambda: (normal(9, 11), normal(9, 48), normal(48, 11)),
)
scaled.right("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.3, alpha=0.5))
scaled.right("alpha on a", lambda c, a, b: (0.5 * a) @ b + 0.3 * c)
scaled.right("from beta c on", lambda c, a, b: split(0.5 * a, b, 0.3 * c))
scaled.wrong("factors turned", lambda c, a, b: 0.3 * (a @ b) + 0.5 * c)
scaled.wrong("0.3 as bfloat16", lambda c, a, b: 0.5 * (a @ b) + 0.30078125 * c)
scaled.wrong("all by alpha", lambda c, a, b: 0.5 * (a @ b + 0.3 * c))

residual = Problem(
    "linear and residual", lambda x, w, r: r + x @ w.T, lambda: (normal(9, 40), normal(12, 40), normal(9, 12))
)
residual.right("from the residual on", lambda x, w, r: split(x, w.T, r))
residual.right("residual last", lambda x, w, r: split_last_first(x, w.T) + r)
residual.right("in place", lambda x, w, r: r.clone().addmm_(x, w.T))
residual.wrong("no residual", lambda x, w, r: x @ w.T)
residual.wrong("product stored in bfloat16", lambda x, w, r: r + bf(x @ w.T))
residual.wrong("accumulators in bfloat16", lambda x, w, r: added_in_bfloat16(x, w.T, r))
residual.wrong("residual of the row before", lambda x, w, r: shifted(r) + x @ w.T)

mlp = Problem(
    "two layers", lambda x, u, v: F.relu(x @ u.T) @ v.T, lambda: (normal(7, 24), normal(32, 24) * 0.3, normal(10, 32))
)
mlp.right(
    "hidden in tiles",
    lambda x, u, v: added(F.relu(x @ p.T) @ q.T for p, q in zip(u.split(8), v.split(8, -1), strict=True)),
)
mlp.right("split K", lambda x, u, v: split(F.relu(split(x, u.T, size=8)), v.T))
mlp.wrong("no relu", lambda x, u, v: x @ u.T @ v.T)
mlp.wrong("hidden in bfloat16", lambda x, u, v: bf(F.relu(x @ u.T)) @ v.T)
mlp.wrong("last tile lost", lambda x, u, v: F.relu(x @ u.T)[:, :24] @ v.T[:24])
mlp.wrong("gelu", lambda x, u, v: F.gelu(x @ u.T) @ v.T)

lora = Problem(
    "low-rank adapter",
    lambda x, w, a, b: x @ w + 2.0 * (x @ a) @ b,
    lambda: (normal(7, 24), normal(24, 10), normal(24, 4), normal(4, 10)),
)
lora.right("from the adapter on", lambda x, w, a, b: split(x, w, 2.0 * (x @ a) @ b))
lora.right("onto the product", lambda x, w, a, b: torch.addmm(x @ w, x @ a, b, alpha=2.0))
lora.wrong("no scale", lambda x, w, a, b: x @ w + (x @ a) @ b)
lora.wrong("x a stored in bfloat16", lambda x, w, a, b: x @ w + 2.0 * bf(x @ a) @ b)
lora.wrong("adapter alone", lambda x, w, a, b: 2.0 * (x @ a) @ b)

bmm = Problem("batched products", torch.bmm, lambda: (normal(4, 6, 33), normal(4, 33, 7)))
bmm.right("one by one", lambda a, b: torch.stack([p @ q for p, q in zip(a, b, strict=True)]))
bmm.right("split K", split)
bmm.wrong("first factor for all", lambda a, b: a[:1] @ b)
bmm.wrong("batch before", lambda a, b: shifted(a @ b))
bmm.wrong("partial sums in bfloat16", added_in_bfloat16)

conv = Problem(
    "conv2d", lambda x, w, b: F.conv2d(x, w, b, padding=1), lambda: (normal(2, 3, 7, 6), normal(4, 3, 3, 3), normal(4))
)


def _taps(x: Tensor, w: Tensor, start: Any, padding: int = 1) -> Tensor:
    x = F.pad(x, (padding,) * 4)
    rows, columns = x.shape[2] - 2, x.shape[3] - 2
    parts = [
        torch.einsum("nchw,oc->nohw", x[:, :, i : i + rows, j : j + columns], w[:, :, i, j])
        for i in range(3)
        for j in range(3)
    ]
    return added([start, *parts])


def _columns(x: Tensor, w: Tensor, b: Tensor, padding: int = 1) -> Tensor:
    columns = F.unfold(x, 3, padding=padding)
    return (w.flatten(1) @ columns).unflatten(-1, (x.shape[2] + 2 * padding - 2, -1)) + b[:, None, None]


conv.right("from the bias on", lambda x, w, b: _taps(x, w, b[:, None, None]))
conv.right("bias last", lambda x, w, b: _taps(x, w, 0.0) + b[:, None, None])
conv.right("as a product", _columns)
conv.wrong("flipped", lambda x, w, b: F.conv2d(x, w.flip(-1, -2), b, padding=1))
conv.wrong("no bias", lambda x, w, b: F.conv2d(x, w, padding=1))
conv.wrong("edge repeated", lambda x, w, b: F.conv2d(F.pad(x, (1,) * 4, mode="replicate"), w, b))
conv.wrong("last channel lost", lambda x, w, b: F.conv2d(x[:, :-1], w[:, :-1], b, padding=1))
conv.wrong(
    "accumulators in bfloat16",
    lambda x, w, b: (
        (added_in_bfloat16(w.flatten(1), F.unfold(x, 3, padding=1))).unflatten(-1, (x.shape[2], -1)) + b[:, None, None]
    ),
)
conv.wrong("factors in TF32", lambda x, w, b: F.conv2d(tf32(x), tf32(w), b, padding=1), dtypes=("float32",))

depthwise = Problem(
    "causal depthwise convolution",
    lambda x, w, b: F.conv1d(F.pad(x, (3, 0)), w[:, None], b, groups=6),
    lambda: (normal(2, 6, 15), normal(6, 4), normal(6)),
)
depthwise.right(
    "shifts",
    lambda x, w, b: b[:, None] + added(w[:, i, None] * F.pad(x, (3 - i, 0))[..., : x.shape[-1]] for i in range(4)),
    why="one tap is added to the bias last",
)
depthwise.right(
    "from the bias on",
    lambda x, w, b: added(
        [
            b[:, None].expand(len(x), -1, x.shape[-1]),
            *(w[:, i, None] * F.pad(x, (3 - i, 0))[..., : x.shape[-1]] for i in range(4)),
        ]
    ),
)
depthwise.right("windows", lambda x, w, b: (F.pad(x, (3, 0)).unfold(-1, 4, 1) * w[:, None]).sum(-1) + b[:, None])
depthwise.wrong("one late", lambda x, w, b: F.conv1d(F.pad(x, (2, 1)), w[:, None], b, groups=6))
depthwise.wrong("taps turned", lambda x, w, b: F.conv1d(F.pad(x, (3, 0)), w.flip(-1)[:, None], b, groups=6))
depthwise.wrong("3 taps", lambda x, w, b: F.conv1d(F.pad(x, (2, 0)), w[:, None, 1:], b, groups=6))

transposed = Problem(
    "transposed convolution",
    lambda x, w: F.conv_transpose1d(x, w, stride=2),
    lambda: (normal(2, 3, 8), normal(3, 4, 3)),
)
transposed.right(
    "zeros between",
    lambda x, w: F.conv1d(
        F.pad(torch.stack([x, torch.zeros_like(x)], -1).flatten(-2)[..., :-1], (2, 2)), w.transpose(0, 1).flip(-1)
    ),
    why="products with the zeros in between keep NaN",
)
transposed.wrong("not flipped", lambda x, w: F.conv_transpose1d(x, w.flip(-1), stride=2))
transposed.wrong("overlaps not added", lambda x, w: but_last(F.conv_transpose1d(x, w, stride=2)))

dequantized = Problem(
    "product with int8 weights",
    lambda x, w, s: x @ (w.float() * s).T.to(x.dtype),
    lambda: (normal(7, 32), torch.randint(-127, 128, (10, 32), dtype=torch.int8), torch.rand(10, 1) * 0.02),
)
dequantized.right("split K", lambda x, w, s: split(x, (w.float() * s).T), dtypes=("float32",))
dequantized.right("scale last", lambda x, w, s: (x @ w.to(x.dtype).T) * s.T, dtypes=("float32",))
dequantized.wrong("scale of the row before", lambda x, w, s: (x @ w.to(x.dtype).T) * shifted(s).T, dtypes=("float32",))
dequantized.wrong("as unsigned", lambda x, w, s: (x @ w.view(torch.uint8).to(x.dtype).T) * s.T, dtypes=("float32",))
dequantized.wrong("scales in bfloat16", lambda x, w, s: (x @ w.to(x.dtype).T) * bf(s).T, dtypes=("float32",))

_GATES = torch.tensor([[0, 2], [1, 0], [3, 1], [2, 3], [0, 1], [1, 2]])


def _experts(x: Tensor, w: Tensor, g: Tensor, order: Any = lambda y: y) -> Tensor:
    p = torch.softmax(g, -1)
    each = torch.stack([x @ one for one in w], 1)
    picked = torch.stack([p[:, i, None] * each[torch.arange(len(x)), _GATES[:, i]] for i in range(2)], 1)
    return added(order(list(picked.unbind(1))))


moe = Problem("mixture of experts", _experts, lambda: (normal(6, 20), normal(4, 20, 8), normal(6, 2)))
moe.right("the other expert first", lambda x, w, g: _experts(x, w, g, lambda y: y[::-1]))
moe.right(
    "by rows",
    lambda x, w, g: torch.stack(
        [added(torch.softmax(g, -1)[i, k] * (x[i] @ w[_GATES[i, k]]) for k in range(2)) for i in range(6)]
    ),
)
moe.right(
    "gates on the input",
    lambda x, w, g: torch.stack(
        [added((torch.softmax(g, -1)[i, k] * x[i]) @ w[_GATES[i, k]] for k in range(2)) for i in range(6)]
    ),
)
moe.wrong("gates turned", lambda x, w, g: _experts(x, w, g.flip(-1)))
moe.wrong("gates of one", lambda x, w, g: _experts(x, w, 0 * g))
moe.wrong("first expert alone", lambda x, w, g: torch.stack([x[i] @ w[_GATES[i, 0]] for i in range(6)]))
moe.wrong(
    "sum of experts in bfloat16",
    lambda x, w, g: added(
        bf(t)
        for t in torch.stack(
            [
                torch.softmax(g, -1)[:, k, None] * torch.stack([x[i] @ w[_GATES[i, k]] for i in range(6)])
                for k in range(2)
            ]
        )
    ),
)

bilinear = Problem(
    "bilinear form",
    lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y),
    lambda: (normal(5, 8), normal(3, 8, 9), normal(5, 9)),
)
bilinear.right("y first", lambda x, w, y: torch.einsum("bi,boi->bo", x, torch.einsum("oij,bj->boi", w, y)))
bilinear.wrong("w turned", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w.flip(1), y))
bilinear.wrong(
    "x w stored in bfloat16", lambda x, w, y: torch.einsum("boj,bj->bo", bf(torch.einsum("bi,oij->boj", x, w)), y)
)

PROBLEMS = [
    matmul, linear, onto, scaled, residual, mlp, lora, bmm, conv, depthwise, transposed, dequantized, moe, bilinear,
]  # fmt: skip
