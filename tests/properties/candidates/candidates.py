"""Candidates for one spec: wrong ones, each with the question that must find it, and right ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

EPS = 1e-5


def spec(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A linear map, a relu, root mean square normalisation and a softmax over rows."""
    hidden = torch.relu(functional.linear(x, w, b))
    normal = hidden / torch.sqrt((hidden * hidden).mean(-1, keepdim=True) + EPS)
    return torch.softmax(normal, -1)


def _normal(hidden: Tensor, eps: float = EPS) -> Tensor:
    return hidden / torch.sqrt((hidden * hidden).mean(-1, keepdim=True) + eps)


def _hide(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.relu(functional.linear(x, w, b))


def _with(change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    return lambda x, w, b: change(spec(x, w, b))


# ------------------------------------------------------------------------------------------------------ wrong values


def tail_left_out(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """The last columns are not multiplied, as where a loop over tiles ends too early."""
    whole = x.shape[1] // 8 * 8
    return torch.softmax(_normal(torch.relu(x[:, :whole] @ w[:, :whole].T + b)), -1)


def tail_wrong_at_other_sizes(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = spec(x, w, b)
    return out if x.shape[0] < 32 else torch.cat([out[:-1], torch.zeros_like(out[-1:])])


def other_eps(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(_hide(x, w, b), 1e-6), -1)


def no_eps(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(_hide(x, w, b), 0.0), -1)


def no_bias(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(torch.relu(x @ w.T)), -1)


def no_relu(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(functional.linear(x, w, b)), -1)


def no_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_hide(x, w, b), -1)


def no_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return _normal(_hide(x, w, b))


def unbiased_mean(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = _hide(x, w, b)
    mean = (hidden * hidden).sum(-1, keepdim=True) / (hidden.shape[-1] - 1)
    return torch.softmax(hidden / torch.sqrt(mean + EPS), -1)


def in_bfloat16(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x.bfloat16(), w.bfloat16(), b.bfloat16()).float()


def product_in_float16(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(torch.relu((x.half().float() @ w.half().float().T) + b)), -1)


def as_tf32(t: Tensor) -> Tensor:
    """Rounded to 11 bits, half up."""
    return ((t.contiguous().view(torch.int32) + 4096) & -8192).view(torch.float32)


def product_in_tf32(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(torch.relu(as_tf32(x) @ as_tf32(w).T + b)), -1)


def stored_in_float16(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(_hide(x, w, b)).half().float(), -1)


def one_element(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = spec(x, w, b).clone()
    out[-1, -1] *= 1 + 1e-4
    return out


def nan_becomes_zero(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x, w, b).nan_to_num()


def other_dtype(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x, w, b).double()


def other_shape(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x, w, b)[None]


def raises(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    raise RuntimeError("launch failed")


def exits(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    raise SystemExit(0)


# -------------------------------------------------------------------------------------------------- state and memory


class CachedByShape:
    def __init__(self) -> None:
        self.results: dict[Any, Tensor] = {}

    def __call__(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        key = self.key(x)
        if key not in self.results:
            self.results[key] = spec(x, w, b)
        return self.results[key].clone()

    def key(self, x: Tensor) -> Any:
        return tuple(x.shape)


class CachedByAddress(CachedByShape):
    def key(self, x: Tensor) -> Any:
        return x.data_ptr(), tuple(x.shape)


class CachedByObject(CachedByShape):
    """Keeps the tensors, so that no other object gets their identity."""

    def __init__(self) -> None:
        super().__init__()
        self.history: list[Tensor] = []

    def key(self, x: Tensor) -> Any:
        self.history.append(x)
        return id(x), x._version


class SameOutput(CachedByShape):
    """Writes every result into one tensor."""

    def __call__(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        out = spec(x, w, b)
        memory = self.results.setdefault(self.key(x), torch.empty_like(out).detach())
        with torch.no_grad():
            return memory.copy_(out)


class WrongLater:
    """Right for some calls, and wrong at every third after them."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        self.calls += 1
        return spec(x, w, b) * (1.0 if self.calls < 7 or self.calls % 3 else 1.001)


def writes_its_input(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = spec(x, w, b)
    x.data.mul_(2.0)
    return out


def returns_its_input(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = spec(x, w, b)
    home = torch.as_strided(x.data, out.shape, out.stride())
    return home.copy_(out)


def assumes_contiguous(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    flat = torch.as_strided(x, x.shape, (x.shape[1], 1))
    return spec(flat, w, b)


def reads_unwritten(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    scratch = torch.empty(x.shape[0], 1).nan_to_num(nan=1e30) * 0.0
    dirty = torch.empty(x.shape[0], w.shape[0])
    bad = torch.isnan(dirty).any() & (scratch == 0).all()
    return spec(x, w, b) + (1.0 if bad else 0.0)


def wrong_gradient(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = spec(x, w, b)
    return out + (out * 0.01 - (out * 0.01).detach())


def detached_norm(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = _hide(x, w, b)
    return torch.softmax(hidden / torch.sqrt((hidden * hidden).mean(-1, keepdim=True) + EPS).detach(), -1)


def patches_torch(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    torch.softmax = functional.softmax  # type: ignore[assignment]
    return spec(x, w, b)


#: (name, what makes the candidate, the question that must find it).
WRONG: list[tuple[str, Callable[[], Callable[..., Tensor]], str]] = [
    *((function.__name__, lambda function=function: function, "FWD:given")
      for function in (tail_left_out, no_bias, no_relu, no_norm, no_softmax, unbiased_mean, in_bfloat16,
                       product_in_float16, product_in_tf32, stored_in_float16, one_element, other_dtype, other_shape,
                       raises, exits)),
    ("scale 1e-3", lambda: _with(lambda y: y * (1 + 1e-3)), "FWD:given"),
    ("scale 5e-6", lambda: _with(lambda y: y * (1 + 5e-6)), "SPECIAL:zeros"),
    ("other eps", lambda: other_eps, "FWD:small"),
    ("shift 1e-5", lambda: _with(lambda y: y + 1e-5), "FWD:given"),
    ("no eps", lambda: no_eps, "FWD:given"),
    ("NaN becomes zero", lambda: nan_becomes_zero, "SPECIAL:nan"),
    ("tail at other sizes", lambda: tail_wrong_at_other_sizes, "SIZE:sizes"),
    ("cache by shape", CachedByShape, "FWD:seeds"),
    ("cache by address", CachedByAddress, "CALLS:same"),
    ("cache by address, reborn", CachedByAddress, "CALLS:reborn"),
    ("cache by object", CachedByObject, "CALLS:same"),
    ("same output", SameOutput, "CALLS:kept"),
    ("wrong later", WrongLater, "CALLS:again"),
    ("input written", lambda: writes_its_input, "PURE:untouched"),
    ("output in the input's memory", lambda: returns_its_input, "PURE:fresh"),
    ("strides ignored", lambda: assumes_contiguous, "LAYOUT:strides"),
    ("unwritten memory", lambda: reads_unwritten, "POISON"),
    ("gradient 1 % off", lambda: wrong_gradient, "VJP:grad"),
    ("part of the graph detached", lambda: detached_norm, "VJP:grad"),
    ("torch patched", lambda: patches_torch, "PURE:untouched"),
]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- right


def split_over_columns(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    parts = [x[:, i : i + 4] @ w[:, i : i + 4].T for i in range(0, x.shape[1], 4)]
    return torch.softmax(_normal(torch.relu(sum(reversed(parts), torch.zeros(())) + b)), -1)


def one_by_one(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    total = torch.zeros(x.shape[0], w.shape[0])
    for i in range(x.shape[1]):
        total = torch.addcmul(total, x[:, i : i + 1], w[:, i][None])
    return torch.softmax(_normal(torch.relu(total + b)), -1)


def bias_first(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.softmax(_normal(torch.relu(torch.addmm(b, x, w.T))), -1)


def rows_apart(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return torch.cat([spec(row[None], w, b) for row in x])


def in_float64(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x.double(), w.double(), b.double()).float()


def in_float32(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    return spec(x.float(), w.float(), b.float()).to(x.dtype)


def reciprocal_root(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = _hide(x, w, b)
    return torch.softmax(hidden * torch.rsqrt((hidden * hidden).mean(-1, keepdim=True) + EPS), -1)


def scaled_mean(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    hidden = _hide(x, w, b)
    squares = torch.einsum("ij,ij->i", hidden, hidden)[:, None] * (1.0 / hidden.shape[-1])
    return torch.softmax(hidden / torch.sqrt(squares + EPS), -1)


def online_softmax(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    normal = _normal(_hide(x, w, b))
    largest = torch.full((x.shape[0], 1), -math.inf)
    total = torch.zeros(x.shape[0], 1)
    for part in normal.split(4, -1):
        new = torch.maximum(largest, part.amax(-1, keepdim=True))
        total = total * torch.exp(largest - new) + torch.exp(part - new).sum(-1, keepdim=True)
        largest = new
    return torch.exp(normal - largest) / total


def log_then_exp(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    normal = _normal(_hide(x, w, b))
    shifted = normal - normal.amax(-1, keepdim=True)
    grown = torch.exp(shifted)
    return grown * (1.0 / grown.sum(-1, keepdim=True))


def pairwise(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    products = x[:, None, :] * w[None]
    while products.shape[-1] > 1:
        if products.shape[-1] % 2:
            products = torch.cat([products, torch.zeros_like(products[..., :1])], -1)
        products = products[..., ::2] + products[..., 1::2]
    return torch.softmax(_normal(torch.relu(products[..., 0] + b)), -1)


def inplace(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    out = x @ w.T
    return torch.softmax(_normal(out.add_(b).relu_()), -1)


RIGHT: list[Callable[..., Tensor]] = [
    spec, split_over_columns, one_by_one, bias_first, rows_apart, in_float64, reciprocal_root, scaled_mean,
    online_softmax, log_then_exp, pairwise, inplace,
]  # fmt: skip
