"""Right candidates of a task: the same function in other orders, other tiles, other forms that round as seldom.

Each is a spec whose calls of some functions are computed otherwise, or which is cut along its rows. What differs from
its spec in float64 is a mistake of this file and raises.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .patching import Patched, calls_of, patch_by_name
from .tasks import Task
from .wrong import Candidate, differs, runs

Way = Callable[..., Tensor]


# -------------------------------- products of matrices


def _split(a: Tensor, b: Tensor, parts: int, last_first: bool = False) -> Tensor:
    """a @ b as a sum of products over parts of the inner axis."""
    size = max(1, -(-a.shape[-1] // parts))
    partial = [torch.matmul(p, q) for p, q in zip(a.split(size, -1), b.split(size, -2), strict=True)]
    ordered = partial[::-1] if last_first else partial
    return functools.reduce(torch.add, ordered)


def _one_by_one(a: Tensor, b: Tensor, start: Tensor | None = None) -> Tensor:
    """a @ b, term by term, from a bias on where there is one."""
    terms = [a[..., k, None] * b[..., k, None, :] for k in range(a.shape[-1])]
    return functools.reduce(torch.add, terms if start is None else [start + 0 * terms[0], *terms])


def _pairwise_product(a: Tensor, b: Tensor) -> Tensor:
    return _pairwise(a[..., :, None, :] * b.transpose(-1, -2)[..., None, :, :], -1)


def _wide(function: Way) -> Way:
    """Computed in float64, rounded once: what fused multiply-add comes near to."""

    def rounded_once(*args: Any, **kwargs: Any) -> Tensor:
        dtype = next(a.dtype for a in args if isinstance(a, Tensor))
        result: Tensor = function(*(a.double() if isinstance(a, Tensor) else a for a in args), **kwargs)
        return result.to(dtype)

    return rounded_once


def _of_products(product: Callable[[Tensor, Tensor], Tensor]) -> dict[str, Way]:
    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        y = product(x, weight.T)
        return y if bias is None else y + bias

    return {"matmul": product, "bmm": product, "linear": linear}


# -------------------------------- sums


def _pairwise(x: Tensor, axis: int) -> Tensor:
    """The sum along an axis, by halves."""
    size = x.shape[axis]
    if size <= 1:
        return x.sum(axis)
    half = size // 2
    return _pairwise(x.narrow(axis, 0, half), axis) + _pairwise(x.narrow(axis, half, size - half), axis)


def _flat(x: Tensor, dim: Any) -> tuple[Tensor, tuple[int, ...]]:
    """The axes of a reduction as one last axis, and all axes of it."""
    axes = tuple(range(x.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    axes = tuple(a % x.ndim for a in axes)
    others = [a for a in range(x.ndim) if a not in axes]
    moved = x.permute(*others, *axes)
    return moved.reshape(*(x.shape[a] for a in others), -1), axes


def _reduction(last: Callable[[Tensor], Tensor], mean: bool) -> Way:
    """A sum or a mean, of a function that sums along the last axis."""

    def reduction(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
        flat, axes = _flat(x, dim)
        y = last(flat)
        y = y / flat.shape[-1] if mean else y
        for axis in sorted(axes) if keepdim else ():
            y = y.unsqueeze(axis)
        return y

    return reduction


def _of_sums(last: Callable[[Tensor], Tensor]) -> dict[str, Way]:
    return {"sum": _reduction(last, False), "mean": _reduction(last, True)}


def _in_tiles(x: Tensor, size: int = 16) -> Tensor:
    return functools.reduce(torch.add, [part.sum(-1) for part in x.split(size, -1)])


def _by_lanes(x: Tensor) -> Tensor:
    """Eight sums side by side, added in the end, as vector registers hold them."""
    padded = F.pad(x, (0, -x.shape[-1] % 8))
    return padded.unflatten(-1, (-1, 8)).sum(-2).sum(-1)


def _times_reciprocal(x: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    total = torch.sum(x) if dim is None else torch.sum(x, dim, keepdim=keepdim)
    return total * (1.0 / (x.numel() / max(total.numel(), 1)))


# -------------------------------- softmax


def _running(x: Tensor, dim: int, size: int = 16) -> tuple[Tensor, Tensor]:
    """The largest element and the sum of exponentials, in one pass over tiles.

    The largest element takes no gradient, as in `_largest`: what autograd would send through it cancels only nearly,
    and the rest, which is of the size of the whole row's sum, would be added to one element.
    """
    most = torch.full_like(x.narrow(dim, 0, 1), -torch.inf)
    total = torch.zeros_like(most)
    for part in x.split(size, dim):
        larger = torch.maximum(most, _largest(part, dim))
        # Where nothing but -inf has been seen the difference would be NaN.
        shift = torch.where(torch.isneginf(larger), torch.zeros_like(larger), larger)
        total = total * torch.exp(most - shift) + torch.exp(part - shift).sum(dim, keepdim=True)
        most = larger
    return most, total


def _largest(x: Tensor, dim: int) -> Tensor:
    return x.detach().amax(dim, keepdim=True)


def _softmax_by_reciprocal(x: Tensor, dim: int) -> Tensor:
    powers = torch.exp(x - _largest(x, dim))
    return powers * (1.0 / powers.sum(dim, keepdim=True))


def _softmax_by_quotient(x: Tensor, dim: int) -> Tensor:
    powers = torch.exp(x - _largest(x, dim))
    return powers / _reduction(_in_tiles, False)(powers, dim, keepdim=True)


def _softmax_online(x: Tensor, dim: int) -> Tensor:
    most, total = _running(x, dim)
    return torch.exp(x - most) / total


def _log_softmax_by_parts(x: Tensor, dim: int) -> Tensor:
    moved = x - _largest(x, dim)
    return moved - torch.log(_reduction(_by_lanes, False)(torch.exp(moved), dim, keepdim=True))


def _logsumexp_by_parts(x: Tensor, dim: int) -> Tensor:
    most = _largest(x, dim)
    return (most + torch.log(_reduction(_by_lanes, False)(torch.exp(x - most), dim, keepdim=True))).squeeze(dim)


# -------------------------------- convolutions


def _by_taps(x: Tensor, weight: Tensor, bias: Tensor | None = None, padding: int = 0, stride: int = 1) -> Tensor:
    """A convolution in two dimensions as a sum over the taps of products of matrices."""
    x = F.pad(x, (padding,) * 4)
    rows, columns = ((x.shape[i] - weight.shape[i]) // stride + 1 for i in (2, 3))
    parts = []
    for i in range(weight.shape[2]):
        for j in range(weight.shape[3]):
            window = x[:, :, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
            parts.append(torch.einsum("nchw,oc->nohw", window, weight[:, :, i, j]))
    y = functools.reduce(torch.add, parts)
    return y if bias is None else y + bias[:, None, None]


def _taps_from_the_bias(x: Tensor, weight: Tensor, bias: Tensor, padding: int = 0) -> Tensor:
    """A convolution in two dimensions whose sums begin with the bias, and take one product after another."""
    x = F.pad(x, (padding,) * 4)
    rows, columns = (x.shape[i] - weight.shape[i] + 1 for i in (2, 3))
    y = bias[:, None, None].expand(x.shape[0], -1, rows, columns)
    for channel in range(weight.shape[1]):
        for i in range(weight.shape[2]):
            for j in range(weight.shape[3]):
                window = x[:, channel, None, i : i + rows, j : j + columns]
                y = y + window * weight[:, channel, i, j, None, None]
    return y


def _from_the_bias(x: Tensor, weight: Tensor, bias: Tensor | None = None, **more: Any) -> Tensor:
    return F.conv2d(x, weight, **more) if bias is None else _taps_from_the_bias(x, weight, bias, **more)


def _by_columns(x: Tensor, weight: Tensor, bias: Tensor | None = None, padding: int = 0, stride: int = 1) -> Tensor:
    """A convolution as one product of matrices."""
    columns = F.unfold(x, weight.shape[2:], padding=padding, stride=stride)
    rows, width = ((x.shape[i] + 2 * padding - weight.shape[i]) // stride + 1 for i in (2, 3))
    y = torch.matmul(weight.flatten(1), columns).unflatten(-1, (rows, width))
    return y if bias is None else y + bias[:, None, None]


# -------------------------------- elementwise


def _softplus(x: Tensor) -> Tensor:
    return torch.clamp_min(x, 0.0) + torch.log1p(torch.exp(-torch.abs(x)))


def _quotient(a: Any, b: Any) -> Any:
    return a * (1.0 / b)


#: What a way is called -> what it does instead of which functions.
_WAYS: dict[str, dict[str, Way]] = {
    "split K in 2": _of_products(functools.partial(_split, parts=2)),
    "split K in 5, last first": _of_products(functools.partial(_split, parts=5, last_first=True)),
    "products term by term": _of_products(_one_by_one),
    "products by halves": _of_products(_pairwise_product),
    "products in float64, rounded once": {
        name: _wide(function)
        for name, function in {
            "matmul": torch.matmul, "bmm": torch.bmm, "linear": F.linear, "conv1d": F.conv1d, "conv2d": F.conv2d,
            "conv_transpose2d": F.conv_transpose2d,
        }.items()
    },
    "products from the bias on": {"linear": lambda x, weight, bias: _one_by_one(x, weight.T, bias)},
    "sums by halves": _of_sums(functools.partial(_pairwise, axis=-1)),
    "sums in tiles": _of_sums(_in_tiles),
    "sums by lanes": _of_sums(_by_lanes),
    "sums in float64, rounded once": {"sum": _wide(torch.sum), "mean": _wide(torch.mean)},
    "mean by the reciprocal": {"mean": _times_reciprocal},
    "softmax by the reciprocal": {"softmax": _softmax_by_reciprocal},
    "softmax in tiles": {"softmax": _softmax_by_quotient},
    "online softmax": {"softmax": _softmax_online},
    "softmax in float64, rounded once": {
        "softmax": _wide(torch.softmax), "log_softmax": _wide(torch.log_softmax), "logsumexp": _wide(torch.logsumexp),
    },
    "logarithm of a sum by lanes": {"log_softmax": _log_softmax_by_parts, "logsumexp": _logsumexp_by_parts},
    "convolution by taps": {"conv2d": _by_taps},
    "convolution from the bias on": {"conv2d": _from_the_bias},
    "convolution by columns": {"conv2d": _by_columns},
    "square as a product": {"square": lambda x: x * x},
    "square root and reciprocal": {"rsqrt": lambda x: 1.0 / torch.sqrt(x)},
    "quotient by the reciprocal": {"div": _quotient},
    "silu as a quotient": {"silu": lambda x: x / (1.0 + torch.exp(-x))},
    "silu as a product": {"silu": lambda x: x * torch.sigmoid(x)},
    "relu as a choice": {"relu": lambda x: torch.where(x <= 0, torch.zeros_like(x), x)},
    "softplus by log1p": {"softplus": _softplus},
    "tanh in float64": {"tanh": _wide(torch.tanh)},
}  # fmt: skip


def _patched(task: Task, others: dict[str, Way]) -> Callable[[], Any]:
    return lambda: Patched(task.spec, patch_by_name(others))


def _in_rows(task: Task, size: int) -> Callable[..., Tensor]:
    """The spec on a few rows at a time, of all arguments that have as many as the first."""
    count = task.shapes[0][0]
    cut = [shape[0] == count for shape in task.shapes]

    def candidate(*args: Tensor) -> Tensor:
        parts = (args[i].split(size) if cut[i] else [args[i]] * -(-args[0].shape[0] // size) for i in range(len(args)))
        return torch.cat([task.spec(*part) for part in zip(*parts, strict=True)])

    return candidate


def _whole(task: Task) -> Iterator[tuple[str, Callable[[], Any]]]:
    yield "all in float64, rounded once", lambda: _wide(task.spec)
    for size in (1, 3):
        yield f"{size} rows at a time", lambda size=size: _in_rows(task, size)
    yield "operands made contiguous", lambda: lambda *args: task.spec(*(t.clone() for t in args)).clone()


#: Tasks that are compiled, by backend; inductor takes long.
COMPILED = {
    "eager": ("softmax", "gated"),
    "aot_eager": ("linear_relu", "layer_norm", "attention"),
    "inductor": ("rms_norm", "softmax", "mish"),
}


def right_candidates(task: Task) -> list[Candidate]:
    """All right candidates of a task.

    Raises:
        AssertionError: one that is cut by function computes something else than the spec in float64.
    """
    words = {calls.name for calls in calls_of(task.spec, task.draw(7))}
    results = []
    for title, others in _WAYS.items():
        if words & others.keys():
            make = _patched(task, others)
            assert not differs(task, make), f"{task.name}: {title}"
            results.append(Candidate(task, title, task.name, make))
    for title, make in _whole(task):
        # Rows are not independent in every task.
        if runs(task, make) and not differs(task, make):
            results.append(Candidate(task, title, task.name, make))
    for backend, names in COMPILED.items():
        if task.name in names:

            def compiled(backend: str = backend) -> Any:
                return torch.compile(task.spec, backend=backend)

            results.append(Candidate(task, f"torch.compile, {backend}", task.name, compiled))
    return results
