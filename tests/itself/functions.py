"""Functions of torch, with shapes as `opassay.custom_kernel` takes them; each is also an op, by its name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import opassay
from opassay import Integers

_ROWS = {"x": ("N", "n")}
_INPUT = {"input": ("N", "n")}
_TARGET = {"input": ("N", "n"), "target": ("N", "n")}
_PAIR = {"x": ("N", "n"), "y": ("N", "n")}
_LABELS = {"input": ("N", "C"), "target": Integers("C", ("N",))}
_IMAGE = {"x": ("N", "C", 6, "w")}
_HEADS = {"q": ("B", "M", "d"), "k": ("B", "K", "d"), "v": ("B", "K", "e")}
_SQUARE = {"x": ("n", "n")}


@dataclass(frozen=True)
class Itself:
    """A function of torch, judged by itself.

    Attributes:
        function: of tensors, in the order of `shapes`. shapes, sizes: as for `opassay.custom_kernel`.
        order: the highest derivative that torch has of it. dtype: of the floating tensors.
    """

    function: Callable[..., Any]
    shapes: Mapping[str, Any] = field(default_factory=lambda: _ROWS)
    sizes: Mapping[str, Sequence[int]] = field(default_factory=dict)
    order: int = 1
    dtype: str = "float32"

    def declared(self, name: str) -> opassay.Op:
        return opassay.custom_kernel(
            self.function, self.function, self.shapes, sizes=self.sizes, offer=opassay.Offer(max_order=self.order),
            name=name,
        )  # fmt: skip


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, -1) @ v


def _rope(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, -1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], -1)


def _spectrum(x: Tensor) -> Tensor:
    sizes: Tensor = torch.fft.rfft(x).abs()
    return sizes


def _recurrent(x: Tensor, w: Tensor, u: Tensor) -> Tensor:
    h, states = torch.zeros(len(x), len(u), dtype=x.dtype), []
    for t in range(x.shape[1]):
        h = torch.tanh(x[:, t] @ w + h @ u)
        states.append(h)
    return torch.stack(states, 1)


def _grid_sample(x: Tensor, grid: Tensor) -> Tensor:
    return F.grid_sample(x, grid, align_corners=False)


def _turned(x: Tensor, y: Tensor) -> Tensor:
    return (torch.complex(x, y) * torch.complex(y, x)).real


#: Name -> function; the families are those of torch's documentation.
FUNCTIONS: dict[str, Itself] = {
    # elementwise
    "exp": Itself(torch.exp),
    "tanh": Itself(torch.tanh),
    "log1p": Itself(torch.log1p),
    "rsqrt": Itself(torch.rsqrt),
    "erf": Itself(torch.erf),
    "sin": Itself(torch.sin),
    "atan2": Itself(torch.atan2, _PAIR),
    "mul": Itself(torch.mul, _PAIR),
    "div": Itself(torch.div, _PAIR),
    "pow3": Itself(lambda x: x**3),
    "maximum": Itself(torch.maximum, _PAIR),
    "where": Itself(lambda x, y: torch.where(x > 0, x, y), _PAIR),
    "clamp": Itself(lambda x: x.clamp(-1, 1)),
    "lerp": Itself(lambda x, y: torch.lerp(x, y, 0.3), _PAIR),
    "round": Itself(torch.round),
    # activations
    "sigmoid": Itself(torch.sigmoid),
    "silu": Itself(F.silu, _INPUT),
    "softplus": Itself(F.softplus, _INPUT),
    "mish": Itself(F.mish, _INPUT),
    "elu": Itself(F.elu, _INPUT),
    "gelu": Itself(F.gelu, _INPUT),
    "gelu_tanh": Itself(lambda x: F.gelu(x, approximate="tanh")),
    "relu": Itself(F.relu, _INPUT),
    "leaky_relu": Itself(F.leaky_relu, _INPUT),
    "hardswish": Itself(F.hardswish, _INPUT),
    "logsigmoid": Itself(F.logsigmoid, _INPUT),
    "selu": Itself(F.selu, _INPUT),
    "glu": Itself(F.glu, {"input": ("N", "2*n")}),
    "silu_mul": Itself(lambda x, y: F.silu(x) * y, _PAIR),
    # reductions
    "sum": Itself(lambda x: x.sum(-1)),
    "mean": Itself(lambda x: x.mean(-1)),
    "prod": Itself(lambda x: x.prod(-1)),
    "amax": Itself(lambda x: x.amax(-1)),
    "var": Itself(lambda x: x.var(-1)),
    "std": Itself(lambda x: x.std(-1)),
    "norm": Itself(lambda x: torch.linalg.vector_norm(x, dim=-1)),
    "sum_of_all": Itself(torch.sum),
    "logsumexp": Itself(lambda x: x.logsumexp(-1)),
    "median": Itself(lambda x: x.median(-1).values),
    # softmax and its kin
    "softmax": Itself(lambda x: x.softmax(-1)),
    "log_softmax": Itself(lambda x: x.log_softmax(-1)),
    "softmin": Itself(lambda x: F.softmin(x, -1)),
    "normalize": Itself(F.normalize, _INPUT),
    # norms
    "layer_norm": Itself(
        lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b), {"x": ("N", "n"), "w": ("n",), "b": ("n",)}
    ),
    "rms_norm": Itself(lambda x, w: F.rms_norm(x, x.shape[-1:], w, 1e-6), {"x": ("N", "n"), "w": ("n",)}),
    "group_norm": Itself(
        lambda x, w, b: F.group_norm(x, 4, w, b), {"x": ("N", "4*c", "n"), "w": ("4*c",), "b": ("4*c",)}
    ),
    "batch_norm": Itself(
        lambda x, w, b: F.batch_norm(x, None, None, w, b, True), {"x": ("N", "c"), "w": ("c",), "b": ("c",)}
    ),
    "instance_norm": Itself(F.instance_norm, {"input": ("N", "c", "n")}),
    # losses
    "cross_entropy": Itself(F.cross_entropy, _LABELS),
    "nll_loss": Itself(F.nll_loss, _LABELS),
    "mse_loss": Itself(F.mse_loss, _TARGET),
    "l1_loss": Itself(F.l1_loss, _TARGET),
    "huber_loss": Itself(F.huber_loss, _TARGET),
    "smooth_l1_loss": Itself(F.smooth_l1_loss, _TARGET),
    "kl_div": Itself(F.kl_div, _TARGET),
    "bce_with_logits": Itself(F.binary_cross_entropy_with_logits, _TARGET),
    "soft_margin": Itself(F.soft_margin_loss, _TARGET),
    "cosine_similarity": Itself(F.cosine_similarity, _PAIR),
    # products
    "linear": Itself(F.linear, {"x": ("N", "k"), "w": ("m", "k"), "b": ("m",)}),
    "matmul": Itself(torch.matmul, {"x": ("N", "k"), "y": ("k", "m")}),
    "bmm": Itself(torch.bmm, {"x": ("B", "N", "k"), "y": ("B", "k", "m")}),
    "addmm": Itself(torch.addmm, {"c": ("N", "m"), "x": ("N", "k"), "y": ("k", "m")}),
    "conv1d": Itself(lambda x, w: F.conv1d(x, w, padding=1), {"x": ("N", "c", "n"), "w": ("m", "c", 3)}),
    "conv2d": Itself(lambda x, w: F.conv2d(x, w, padding=1), {"x": ("N", "c", 5, "n"), "w": ("m", "c", 3, 3)}),
    "attention": Itself(_attention, _HEADS),
    "sdpa": Itself(F.scaled_dot_product_attention, _HEADS),
    "rope": Itself(_rope, {"x": ("N", "2*d"), "cos": ("N", "d"), "sin": ("N", "d")}),
    # indices
    "embedding": Itself(lambda w, i: F.embedding(i, w), {"w": ("V", "d"), "i": Integers("V", ("N",))}),
    "gather": Itself(lambda x, i: x.gather(1, i), {"x": ("N", "n"), "i": Integers("n", ("N", "m"))}),
    "index_select": Itself(lambda x, i: x.index_select(0, i), {"x": ("N", "n"), "i": Integers("N", ("m",))}),
    "index_add": Itself(
        lambda x, i, y: x.index_add(0, i, y), {"x": ("N", "n"), "i": Integers("N", ("m",)), "y": ("m", "n")}
    ),
    "scatter_add": Itself(
        lambda x, i, y: x.scatter_add(1, i, y), {"x": ("N", "n"), "i": Integers("n", ("N", "m")), "y": ("N", "m")}
    ),
    "roll": Itself(lambda x, k: torch.roll(x, k, -1), {"x": ("N", "n"), "k": Integers(4)}),
    "tril": Itself(torch.tril, _SQUARE),
    # views
    "transpose": Itself(lambda x: x.mT),
    "chunk": Itself(lambda x: x.chunk(2, -1)[0], {"x": ("N", "2*n")}),
    "flatten": Itself(torch.flatten),
    "dropout_off": Itself(lambda x: F.dropout(x, 0.5, False)),
    # order
    "sort": Itself(lambda x: x.sort(-1).values),
    "topk": Itself(lambda x: x.topk(1).values),
    "cummax": Itself(lambda x: x.cummax(-1).values),
    # cumulative
    "cumsum": Itself(lambda x: x.cumsum(-1)),
    "cumprod": Itself(lambda x: x.cumprod(-1)),
    "logcumsumexp": Itself(lambda x: x.logcumsumexp(-1)),
    # pooling and interpolation
    "max_pool2d": Itself(lambda x: F.max_pool2d(x, 2, 1), _IMAGE),
    "avg_pool2d": Itself(lambda x: F.avg_pool2d(x, 2, 1), _IMAGE),
    "adaptive_avg_pool2d": Itself(lambda x: F.adaptive_avg_pool2d(x, 2), _IMAGE),
    "upsample_bilinear": Itself(lambda x: F.interpolate(x, scale_factor=2, mode="bilinear"), _IMAGE),
    "upsample_nearest": Itself(lambda x: F.interpolate(x, scale_factor=2), _IMAGE),
    "pad_reflect": Itself(lambda x: F.pad(x, (1, 1), mode="reflect"), {"x": ("N", "C", "n")}),
    # linear algebra
    "trace": Itself(torch.trace, _SQUARE),
    "cdist": Itself(torch.cdist, {"x1": ("N", "d"), "x2": ("M", "d")}),
    "det": Itself(torch.linalg.det, {"A": ("n", "n")}),
    "inv": Itself(torch.linalg.inv, {"A": ("n", "n")}),
    "solve": Itself(torch.linalg.solve, {"A": ("n", "n"), "B": ("n", "k")}),
    "kron": Itself(torch.kron, {"input": ("N", "n"), "other": ("M", "m")}),
    "cross": Itself(torch.linalg.cross, {"input": ("N", 3), "other": ("N", 3)}),
    "einsum": Itself(
        lambda x, y, z: torch.einsum("nk,km,ml->nl", x, y, z), {"x": ("N", "k"), "y": ("k", "m"), "z": ("m", "l")}
    ),
    # complex numbers inside
    "rfft": Itself(_spectrum, {"x": ("N", "n")}, {"n": (2, 3, 4, 8)}),
    "complex_product": Itself(_turned, _PAIR),
    # integers beside
    "chunk_scale": Itself(lambda x, k: x * k, {"x": ("N", "n"), "k": Integers(5, least=1)}),
    # of two numbers
    "logaddexp": Itself(torch.logaddexp, {"input": ("N", "n"), "other": ("N", "n")}),
    "hypot": Itself(torch.hypot, {"input": ("N", "n"), "other": ("N", "n")}),
    "addcmul": Itself(
        lambda x, y, z: torch.addcmul(x, y, z, value=0.5), {"x": ("N", "n"), "y": ("N", "n"), "z": ("N", "n")}
    ),
    # special functions
    "lgamma": Itself(torch.lgamma),
    "digamma": Itself(torch.digamma),
    "polygamma": Itself(lambda x: torch.polygamma(1, x)),
    # quantiles and places
    "quantile": Itself(lambda x: torch.quantile(x, 0.3, dim=-1)),
    "searchsorted": Itself(lambda x, y: y * torch.searchsorted(x.sort(-1).values, y), {"x": ("n",), "y": ("N", "m")}),
    "bucketize": Itself(lambda x: x * torch.bucketize(x, torch.tensor([-1.0, 0.0, 0.5]))),
    # images
    "local_response_norm": Itself(lambda x: F.local_response_norm(x, 3), _IMAGE),
    "pixel_shuffle": Itself(lambda x: F.pixel_shuffle(x, 2), {"x": ("N", "4*c", "h", "w")}),
    "unfold": Itself(lambda x: F.unfold(x, 3, padding=1), _IMAGE),
    "fold": Itself(lambda x: F.fold(x, (4, 5), 2), {"x": ("N", "4*c", 12)}),
    "grid_sample": Itself(_grid_sample, {"x": ("N", "C", 4, 5), "grid": ("N", "h", "w", 2)}),
    # rearranged
    "triu": Itself(torch.triu, _SQUARE),
    "flip": Itself(lambda x: x.flip(0, 1)),
    "repeat_interleave": Itself(lambda x: x.repeat_interleave(3, -1)),
    # loops
    "recurrent": Itself(_recurrent, {"x": ("N", "T", "d"), "w": ("d", "h"), "u": ("h", "h")}),
}
for _dtype, _names in {
    "bfloat16": "gelu softmax tanh matmul sum cross_entropy silu_mul attention cumsum mean",
    "float16": "sigmoid log_softmax rms_norm linear var silu rope amax logsumexp maximum",
}.items():
    FUNCTIONS |= {f"{name}_{_dtype}": replace(FUNCTIONS[name], dtype=_dtype) for name in _names.split()}
for _rank, _axes in {"0d": (), "3d": ("B", "N", "n")}.items():
    for _name in ("tanh", "mul", "sum_of_all", "clamp", "gelu"):
        _row = FUNCTIONS[_name]
        FUNCTIONS[f"{_name}_{_rank}"] = replace(_row, shapes=dict.fromkeys(_row.shapes, _axes))

#: Those that the fast tests ask: a kind of trouble each.
SAMPLE = ("sigmoid", "amax", "gelu", "cross_entropy", "group_norm", "attention")


@functools.cache
def _op_of(name: str) -> opassay.Op:
    return FUNCTIONS[name].declared(name)


def __getattr__(name: str) -> opassay.Op:
    if name not in FUNCTIONS:
        raise AttributeError(name)
    return _op_of(name)
