"""Fourier transforms as kernels compute them, right and wrong: functions of complex tensors, along the last axis."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

Kernel = Callable[[Tensor], Tensor]


def weights(n: int, count: int, like: Tensor, sign: float = -1.0) -> Tensor:
    """exp(±2πi t / n) for t < count, from angles in float64."""
    angles = sign * 2 * math.pi * torch.arange(count, dtype=torch.float64) / n
    return torch.polar(torch.ones_like(angles), angles).to(like.dtype)


def by_sums(x: Tensor) -> Tensor:
    """A product with the matrix."""
    n = x.shape[-1]
    j = torch.arange(n)
    return x @ weights(n, n, x)[j[:, None] * j % n]


def by_parts(x: Tensor) -> Tensor:
    """Real sums of cosines and sines, of angles in the dtype itself."""
    n = x.shape[-1]
    j = torch.arange(n)
    angles = (j[:, None] * j % n).to(x.real.dtype) * (2 * math.pi) / n
    cosine, sine = angles.cos(), angles.sin()
    return torch.complex(x.real @ cosine + x.imag @ sine, x.imag @ cosine - x.real @ sine)


def by_halves(x: Tensor, of_weights: Callable[..., Tensor] = weights) -> Tensor:
    """Radix 2, for powers of two; anything else by sums."""
    n = x.shape[-1]
    if n % 2:
        return by_sums(x)
    even, odd = by_halves(x.unflatten(-1, (n // 2, 2)).mT, of_weights).unbind(-2)  # both halves at once
    product = odd * of_weights(n, n // 2, x)
    return torch.cat([even + product, even - product], -1)


def by_levels(x: Tensor) -> Tensor:
    """Level by level, the largest prime factor first."""
    n = x.shape[-1]
    r = next((r for r in range(n - 1, 1, -1) if n % r == 0 and all(r % p for p in range(2, r))), n)
    if r == n:
        return by_sums(x)
    m = n // r
    inner = by_levels(x.reshape(*x.shape[:-1], m, r).transpose(-1, -2).contiguous())
    j, k = torch.arange(r), torch.arange(m)
    product = inner * weights(n, n, x)[j[:, None] * k]
    return by_sums(product.transpose(-1, -2)).transpose(-1, -2).reshape(x.shape)


def by_chirp(x: Tensor) -> Tensor:
    """Bluestein's algorithm, with transforms of radix 2."""
    n = x.shape[-1]
    m = 1 << (2 * n - 2).bit_length()
    j = torch.arange(n)
    chirp = weights(2 * n, 2 * n, x)[j * j % (2 * n)]
    first, second = x.new_zeros((*x.shape[:-1], m)), x.new_zeros(m)
    first[..., :n] = x * chirp
    second[:n] = chirp.conj()
    second[m - n + 1 :] = chirp.conj()[1:].flip(0)
    product = by_halves(first) * by_halves(second)
    return by_halves(product.conj()).conj()[..., :n] / m * chirp


def by_numpy(x: Tensor) -> Tensor:
    return torch.from_numpy(np.fft.fft(x.numpy(), axis=-1)).to(x.dtype)


def by_half_length(x: Tensor) -> Tensor:
    """Half of the spectrum of real numbers, by a transform of half as many complex ones."""
    n = x.shape[-1]
    z = by_halves(torch.complex(x[..., 0::2].contiguous(), x[..., 1::2].contiguous()))
    mirror = torch.cat([z[..., :1], z[..., 1:].flip(-1)], -1).conj()
    even, odd = (z + mirror) / 2, (z - mirror) / 2j
    even, odd = (torch.cat([part, part[..., :1]], -1) for part in (even, odd))
    return even + odd * weights(n, n // 2 + 1, z)


RIGHT: dict[str, Kernel] = {
    "torch": torch.fft.fft, "numpy": by_numpy, "sums": by_sums, "parts": by_parts, "halves": by_halves,
    "levels": by_levels, "chirp": by_chirp,
}  # fmt: skip


def _with_weights(change: Callable[[Tensor], Tensor]) -> Kernel:
    return lambda x: by_halves(x, lambda *of: change(weights(*of)))


def _one_off(w: Tensor) -> Tensor:
    """One weight is that of the next index."""
    changed = w.clone()
    if len(w) > 2:
        changed[1] = w[2]
    return changed


#: Wrong ones, for lengths that are powers of two.
WRONG: dict[str, Kernel] = {
    "the other sign": lambda x: by_halves(x.conj()).conj(),
    "a factor 1/n": lambda x: by_halves(x) / x.shape[-1],
    "a factor 1/sqrt(n)": lambda x: torch.fft.fft(x, norm="ortho"),
    "one weight of the next index": _with_weights(_one_off),
    "weights in float16": _with_weights(lambda w: torch.complex(w.real.half().float(), w.imag.half().float()).to(w)),
    "weights in bfloat16": _with_weights(
        lambda w: torch.complex(w.real.bfloat16().float(), w.imag.bfloat16().float()).to(w)
    ),
    "outputs in reverse": lambda x: torch.fft.fft(x).flip(-1),
    "the last element left out": lambda x: torch.fft.fft(torch.cat([x[..., :-1], 0 * x[..., -1:]], -1)),
}
