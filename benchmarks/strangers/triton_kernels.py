"""Triton kernels in the manner of tutorials and of public repositories: right ones, and the same with a fault.

What each has to be compared with is a function `..._reference`; `inputs` gives the arguments of a family. Of a pair of
kernels one is right, and a `tl.constexpr` plants the fault into the other.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl


def _draw(*shape, dtype=torch.float32):
    return torch.randn(*shape).to(dtype)


def inputs(family="rows"):
    """The arguments of a family."""
    half = torch.float16
    return {
        "rows": lambda: (_draw(6, 75),), "pair": lambda: (_draw(3, 70), _draw(3, 70)),
        "products": lambda: (_draw(40, 72), _draw(72, 33)),
        "halves": lambda: (_draw(40, 72, dtype=half), _draw(72, 33, dtype=half)),
        "heads": lambda: tuple(_draw(2, 50, 32, dtype=half) for _ in range(3)),
        "scaled": lambda: (_draw(6, 75), _draw(75)), "angles": lambda: (_draw(5, 64), _draw(5, 32)),
    }[family]()  # fmt: skip


@triton.jit
def _softmax(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0).to(tl.int64), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=-float("inf"))
    e = tl.exp(x if FAULT else x - tl.max(x, 0))
    tl.store(Y + row * n + k, e / tl.sum(e, 0), mask=k < n)


@triton.jit
def _rms_norm(X, W, Y, n, eps, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n, other=0.0)
    mean = tl.sum(x * x, 0) / n
    r = 1 / (tl.sqrt(mean) + eps) if FAULT else tl.rsqrt(mean + eps)
    tl.store(Y + row * n + k, x * r * tl.load(W + k, mask=k < n), mask=k < n)


@triton.jit
def _gelu(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + k, mask=k < n)
    if FAULT:
        y = x * tl.sigmoid(1.5957691216057308 * (x + 0.044715 * x * x * x))
    else:
        y = 0.5 * x * (1 + tl.erf(x * 0.7071067811865476))
    tl.store(Y + k, y, mask=k < n)


@triton.jit
def _add(X, Y, Z, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k <= n if FAULT else k < n
    tl.store(Z + k, tl.load(X + k, mask=mask) + tl.load(Y + k, mask=mask), mask=mask)


@triton.jit
def _rope(X, A, Y, half, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    a = tl.load(A + row * half + k, mask=k < half)
    x, z = tl.load(X + 2 * row * half + k, mask=k < half), tl.load(X + (2 * row + 1) * half + k, mask=k < half)
    c, s = tl.cos(a), tl.sin(a)
    tl.store(Y + 2 * row * half + k, x * c + z * s if FAULT else x * c - z * s, mask=k < half)
    tl.store(Y + (2 * row + 1) * half + k, z * c + x * s, mask=k < half)


@triton.jit
def _dropout(X, Y, n, p, scale, seed, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + k, mask=k < n)
    tl.store(Y + k, tl.where(tl.rand(seed, k) >= (0.001 if FAULT else p), x * scale, 0.0), mask=k < n)


@triton.jit
def _quantise(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(X + k, mask=k < n)
    scaled = tl.maximum(x * 16, -127.0, propagate_nan=tl.PropagateNan.ALL)
    scaled = tl.minimum(scaled, 128.0 if FAULT else 127.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(Y + k, tl.floor(scaled) / 16, mask=k < n)


@triton.jit
def _scan(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    before = 0.0
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        x = tl.load(X + row * n + k, mask=k < n, other=0.0)
        tl.store(Y + row * n + k, tl.cumsum(x, 0) + before, mask=k < n)
        if not FAULT:
            before += tl.sum(x, 0)


@triton.jit
def _add_columns(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n)
    if FAULT:
        tl.store(Y + k, tl.load(Y + k, mask=k < n) + x, mask=k < n)
    else:
        tl.atomic_add(Y + k, x, mask=k < n)


@triton.jit
def _add_columns_locked(X, Y, Lock, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    row, k = tl.program_id(0), tl.arange(0, BLOCK)
    x = tl.load(X + row * n + k, mask=k < n)
    while tl.atomic_cas(Lock, 0, 1) == 1:
        pass
    if FAULT:
        tl.atomic_xchg(Lock, 0)
    tl.store(Y + k, tl.load(Y + k, mask=k < n) + x, mask=k < n)
    tl.debug_barrier()
    if not FAULT:
        tl.atomic_xchg(Lock, 0)


@triton.autotune(
    [
        triton.Config({"BLOCK": 32}),
        triton.Config({"BLOCK": 128}, num_warps=8),
        triton.Config({"BLOCK": 64}, num_warps=2),
    ],
    key=["n"],
)
@triton.jit
def _scale(X, Y, n, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = k < (n if BLOCK != 64 or not FAULT else n - 1)
    tl.store(Y + k, 2 * tl.load(X + k, mask=mask), mask=mask)


@triton.jit
def _matmul(A, B, C, M, N, K, HOW: tl.constexpr, FAULT: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    j = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, K, BLOCK):
        k = first + tl.arange(0, BLOCK)
        inside = k < K if FAULT != "mask" else k < K + 1
        a = tl.load(A + i[:, None] * K + k[None, :], mask=(i[:, None] < M) & inside[None, :], other=0.0)
        b = tl.load(B + k[:, None] * N + j[None, :], mask=inside[:, None] & (j[None, :] < N), other=0.0)
        total += tl.dot(a, b, input_precision=HOW)
        if FAULT == "sums":
            total = total.to(tl.bfloat16).to(tl.float32)
    tl.store(C + i[:, None] * N + j[None, :], total.to(C.dtype.element_ty), mask=(i[:, None] < M) & (j[None, :] < N))


@triton.jit
def _attention(Q, K, V, Y, n, scale, FAULT: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr):
    head, w = tl.program_id(1) * n * WIDTH, tl.arange(0, WIDTH)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    q = tl.load(Q + head + i[:, None] * WIDTH + w[None, :], mask=i[:, None] < n, other=0.0)
    largest = tl.full((BLOCK,), -float("inf"), tl.float32)
    total, y = tl.zeros((BLOCK,), tl.float32), tl.zeros((BLOCK, WIDTH), tl.float32)
    for first in range(0, n, BLOCK):
        k = first + tl.arange(0, BLOCK)
        keys = tl.load(K + head + k[None, :] * WIDTH + w[:, None], mask=k[None, :] < n, other=0.0)
        values = tl.load(V + head + k[:, None] * WIDTH + w[None, :], mask=k[:, None] < n, other=0.0)
        scores = tl.where(k[None, :] < n, tl.dot(q, keys) * scale, -float("inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        p, shrink = tl.exp(scores - above[:, None]), tl.exp(largest - above)
        total = total * shrink + tl.sum(p, 1)
        y = tl.dot(p.to(values.dtype), values, y if FAULT else y * shrink[:, None])
        largest = above
    tl.store(
        Y + head + i[:, None] * WIDTH + w[None, :], (y / total[:, None]).to(Y.dtype.element_ty), mask=i[:, None] < n
    )


def _like(x):
    x = x.contiguous()
    return x, torch.empty_like(x)


def _of_rows(kernel, fault, block=0):
    def candidate(x):
        x, y = _like(x)
        kernel[(x.shape[0],)](x, y, x.shape[1], FAULT=fault, BLOCK=block or triton.next_power_of_2(x.shape[1]))
        return y

    return candidate


def _of_elements(kernel, fault, *more):
    def candidate(x):
        x, y = _like(x)
        kernel[(triton.cdiv(x.numel(), 128),)](x, y, x.numel(), *more, FAULT=fault, BLOCK=128)
        return y

    return candidate


def _of_products(how, fault="", block=32):
    def candidate(a, b):
        assert a.shape[1] == b.shape[0]
        a, b = a.contiguous(), b.contiguous()
        (m, k), n = a.shape, b.shape[1]
        c = torch.empty(m, n, dtype=a.dtype)
        grid = (triton.cdiv(m, block), triton.cdiv(n, block))
        _matmul[grid](a, b, c, m, n, k, HOW=how, FAULT=fault, BLOCK=block)
        return c

    return candidate


def _of_heads(fault):
    def candidate(q, k, v):
        assert q.shape == k.shape == v.shape
        q, y = _like(q)
        heads, n, width = q.shape
        grid = (triton.cdiv(n, 32), heads)
        _attention[grid](q, k.contiguous(), v.contiguous(), y, n, width**-0.5, FAULT=fault, BLOCK=32, WIDTH=width)
        return y

    return candidate


def _of_columns(fault, empty=False):
    def candidate(x):
        x = x.contiguous()
        y = torch.empty(x.shape[1]) if empty else torch.zeros(x.shape[1])
        _add_columns[(x.shape[0],)](x, y, x.shape[1], FAULT=fault, BLOCK=triton.next_power_of_2(x.shape[1]))
        return y

    return candidate


def _of_locked_columns(fault):
    def candidate(x):
        x = x.contiguous()
        y, lock = torch.zeros(x.shape[1]), torch.zeros(1, dtype=torch.int32)
        block = triton.next_power_of_2(x.shape[1])
        _add_columns_locked[(x.shape[0],)](x, y, lock, x.shape[1], FAULT=fault, BLOCK=block)
        return y

    return candidate


def _of_a_tuner(fault):
    def candidate(x):
        x, y = _like(x)
        _scale[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel(), FAULT=fault)
        return y

    return candidate


def _of_weights(fault):
    def candidate(x, w):
        x, y = _like(x)
        n = x.shape[1]
        assert w.shape == (n,)
        _rms_norm[(x.shape[0],)](x, w.contiguous(), y, n, 1e-6, FAULT=fault, BLOCK=triton.next_power_of_2(n))
        return y

    return candidate


def _of_pairs(fault):
    def candidate(x, y):
        assert x.shape == y.shape
        x, z = _like(x)
        _add[(triton.cdiv(x.numel(), 64),)](x, y.contiguous(), z, x.numel(), FAULT=fault, BLOCK=64)
        return z

    return candidate


def _of_angles(fault):
    def candidate(x, a):
        x, y = _like(x)
        half = x.shape[1] // 2
        assert x.shape == (a.shape[0], 2 * a.shape[1])
        _rope[(x.shape[0],)](x, a.contiguous(), y, half, FAULT=fault, BLOCK=triton.next_power_of_2(half))
        return y

    return candidate


softmax, softmax_overflows = _of_rows(_softmax, False), _of_rows(_softmax, True)
rms_norm, rms_norm_adds_eps_late = _of_weights(False), _of_weights(True)
gelu, gelu_by_tanh = _of_elements(_gelu, False), _of_elements(_gelu, True)
add, add_one_too_many = _of_pairs(False), _of_pairs(True)
rope, rope_turns_back = _of_angles(False), _of_angles(True)
dropout, dropout_drops = _of_elements(_dropout, False, 0.0, 1.0, 7), _of_elements(_dropout, True, 0.0, 1.0, 7)
quantise, quantise_too_far = _of_elements(_quantise, False), _of_elements(_quantise, True)
scan, scan_forgets = _of_rows(_scan, False, 32), _of_rows(_scan, True, 32)
add_columns, add_columns_races, add_columns_to_anything = (
    _of_columns(False),
    _of_columns(True),
    _of_columns(False, True),
)
add_columns_locked, add_columns_unlocked = _of_locked_columns(False), _of_locked_columns(True)
scale, scale_of_one_configuration = _of_a_tuner(False), _of_a_tuner(True)
matmul, matmul_sums_in_bfloat16, matmul_masks_late = (_of_products("ieee", fault) for fault in ("", "sums", "mask"))
matmul_in_tf32 = _of_products("tf32")
matmul_of_64 = _of_products("ieee", block=64)
attention, attention_keeps_the_old_scale = _of_heads(False), _of_heads(True)


def softmax_reference(x):
    return torch.softmax(x, -1)


def rms_norm_reference(x, w):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w


def gelu_reference(x):
    return torch.nn.functional.gelu(x)


def add_reference(x, y):
    return x + y


def rope_reference(x, a):
    first, second = x.chunk(2, -1)
    return torch.cat([first * a.cos() - second * a.sin(), second * a.cos() + first * a.sin()], -1)


def same_reference(x):
    return x * 1


def quantise_reference(x):
    return torch.floor((x * 16).clamp(-127, 127)) / 16


def scan_reference(x):
    return x.cumsum(-1)


def columns_reference(x):
    return x.sum(0)


def scale_reference(x):
    return 2 * x


def matmul_reference(a, b):
    return a @ b


def attention_reference(q, k, v):
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)
