"""Liger's kernels of CuTe DSL as they stand: what is called, what it means in plain PyTorch, and its inputs.

`ops.backends._cutedsl` has those that its dispatcher takes; `ops.cutedsl` those of LIGER_KERNEL_IMPL=cutedsl (opted).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .row import APPROXIMATE, COLUMNS, EPS, ROWS_OF_X, TANH, Row, normal, rows_alone, rows_with

_ALL = ("float32", "bfloat16", "float16")


def _op(module: str, name: str) -> Callable[..., Any]:
    """A function of the kernels that the dispatcher takes."""
    function: Callable[..., Any] = getattr(
        importlib.import_module(f"liger_kernel.ops.backends._cutedsl.{module}"), name
    )
    return function


def _rms_norm(casting: str, offset: float = 0.0) -> Callable[[], tuple[Any, Any]]:
    def make() -> tuple[Any, Any]:
        function = _op("rms_norm", "rms_norm_cutedsl")

        def spec(x: Any, w: Any) -> Any:
            return F.rms_norm(x, x.shape[-1:], w + offset if offset else w, EPS)

        return lambda x, w: function(x, w, EPS, offset, casting), spec

    return make


def _fused_add_rms_norm() -> tuple[Any, Any]:
    function = _op("fused_add_rms_norm", "fused_add_rms_norm_cutedsl")

    def spec(x: Any, r: Any, w: Any) -> Any:
        total = x + r
        return F.rms_norm(total, total.shape[-1:], w, EPS), total

    return lambda x, r, w: function(x, r, w, EPS), spec


def _layer_norm() -> tuple[Any, Any]:
    function = _op("layer_norm", "layer_norm_cutedsl")
    return lambda x, w, b: function(x, w, b, EPS), lambda x, w, b: F.layer_norm(x, x.shape[-1:], w, b, EPS)


def _softmax() -> tuple[Any, Any]:
    function = _op("softmax", "softmax_cutedsl")
    return lambda x: function(x), lambda x: torch.softmax(x, -1)


def _swiglu() -> tuple[Any, Any]:
    function = _op("swiglu", "swiglu_cutedsl")
    return lambda a, b: function(a, b), lambda a, b: F.silu(a) * b


def _geglu() -> tuple[Any, Any]:
    function = _op("geglu", "geglu_cutedsl")
    return lambda a, b: function(a, b), lambda a, b: F.gelu(a, approximate="tanh") * b


def _cross_entropy() -> tuple[Any, Any]:
    function = _op("cross_entropy", "cross_entropy_cutedsl")
    # Its forward writes the gradient into its input.
    return lambda x, target: function(x.clone(), target)[0], lambda x, target: F.cross_entropy(x, target)


def _kl_div() -> tuple[Any, Any]:
    function = _op("kl_div", "kl_div_cutedsl")

    def spec(x: Any, t: Any) -> Any:
        return F.kl_div(torch.log_softmax(x.float(), -1), torch.softmax(t.float(), -1), reduction="batchmean")

    # The target gets no gradient.
    return lambda x, t: function(torch.log_softmax(x.float(), -1), torch.softmax(t.float(), -1)), spec


def _jsd() -> tuple[Any, Any]:
    function = _op("jsd", "jsd_cutedsl")

    def spec(x: Any, t: Any) -> Any:
        log_q, log_p = torch.log_softmax(x, -1), torch.log_softmax(t, -1)
        log_m = torch.log(0.5 * (log_p.exp() + log_q.exp()))
        return (0.5 * log_p.exp() * (log_p - log_m) + 0.5 * log_q.exp() * (log_q - log_m)).sum() / len(x)

    return lambda x, t: function(torch.log_softmax(x, -1), torch.log_softmax(t, -1)), spec


def _rope() -> tuple[Any, Any]:
    # The function behind its own condition, which leaves to Triton what is smaller than 131,072 rows.
    function = _op("rope", "_LigerRopeCuTeDSLFunction").apply

    def turn(x: Any, cosine: Any, sine: Any) -> Any:
        first, second = x.chunk(2, -1)
        return x * cosine[:, None] + torch.cat((-second, first), -1) * sine[:, None]

    def directions(angles: Any) -> tuple[Any, Any]:
        both = torch.cat((angles, angles), -1)[None]
        return both.cos(), both.sin()

    # It writes into its operands.
    return (
        lambda q, k, angles: function(q.clone(), k.clone(), *directions(angles)),
        lambda q, k, angles: (turn(q, *directions(angles)), turn(k, *directions(angles))),
    )


def _silu_and_product() -> tuple[Any, Any]:
    ops = importlib.import_module("liger_kernel.ops.cutedsl.ops")
    return lambda a, b: ops.LigerSiLUMulFunction.apply(a, b), lambda a, b: F.silu(a) * b


def _opted_cross_entropy() -> tuple[Any, Any]:
    ops = importlib.import_module("liger_kernel.ops.cutedsl.ops")

    def candidate(x: Any, target: Any) -> Any:
        return ops.LigerCrossEntropyFunction.apply(x.clone(), target, None)[0]

    return candidate, lambda x, target: F.cross_entropy(x, target)


def _opted_rms_norm() -> tuple[Any, Any]:
    ops = importlib.import_module("liger_kernel.ops.cutedsl.ops")

    def candidate(x: Any, w: Any) -> Any:
        return ops.LigerRMSNormFunction.apply(x, w, EPS, 0.0, "llama", False)

    return candidate, lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPS)


def _turned(dtype: torch.dtype) -> tuple[Any, ...]:
    return (*(normal(2, heads, 3, 32, dtype=dtype) for heads in (4, 2)), normal(3, 16, dtype=dtype, grad=False))


def _rows_and_targets(dtype: torch.dtype) -> tuple[Any, ...]:
    return (*rows_alone(dtype), normal(ROWS_OF_X, COLUMNS, dtype=dtype, grad=False))


def _rows_and_labels(dtype: torch.dtype) -> tuple[Any, ...]:
    return (*rows_alone(dtype), torch.randint(COLUMNS, (ROWS_OF_X,)).cuda())


_AGAIN = "backward scales the kept gradient in its place, and a second one once more"
_BEHIND = "backward reads the gradient of the sum in rows behind the last one of its block"
_PADDED = "the variance counts (0 - mean)^2 of columns behind the row, where a row does not fill its threads' loads"
_TURNED = "backward turns the gradient that it is given in its place"
_FEW = "losses of other normal numbers differ by less than rounding logarithms to bfloat16 explains"
_KEPT = "backward writes the gradients where its operands are"
_HEADS = {"q": ("B", "H", "N", "2*D"), "k": ("B", "K", "N", "2*D"), "angles": ("N", "D")}
ROWS = {
    "liger rms_norm": Row(_rms_norm("llama"), lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "liger rms_norm of gemma": Row(_rms_norm("gemma", 1.0), lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "liger fused_add_rms_norm": Row(
        _fused_add_rms_norm, lambda d: rows_with(d, matrices=1, vectors=1), dtypes=_ALL, why=_BEHIND
    ),
    "liger layer_norm": Row(_layer_norm, lambda d: rows_with(d, vectors=2), dtypes=_ALL, why=_PADDED),
    "liger softmax": Row(_softmax, rows_alone, dtypes=_ALL),
    "liger swiglu": Row(_swiglu, lambda d: rows_with(d, matrices=1), dtypes=_ALL, why=TANH),
    "liger kl_div": Row(_kl_div, _rows_and_targets, "torch+lse", dtypes=_ALL),
    "liger geglu": Row(_geglu, lambda d: rows_with(d, matrices=1), dtypes=_ALL, why=TANH),
    "liger geglu, allowed": Row(_geglu, lambda d: rows_with(d, matrices=1), APPROXIMATE, dtypes=_ALL),
    "liger jsd": Row(_jsd, _rows_and_targets, "torch+lse", dtypes=("float32", "float16")),
    "liger jsd of few digits": Row(
        _jsd, _rows_and_targets, "torch+lse", dtypes=("bfloat16",), why=_FEW, verdict="weak"
    ),
    "liger rope": Row(_rope, _turned, dtypes=_ALL, why=_TURNED, domain=_HEADS),
    "liger opted rms_norm": Row(_opted_rms_norm, lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "liger opted swiglu": Row(_silu_and_product, lambda d: rows_with(d, matrices=1), dtypes=_ALL, why=_KEPT),
    "liger opted swiglu, may be written": Row(
        _silu_and_product, lambda d: rows_with(d, matrices=1), dtypes=_ALL,
        domain={"where": ("a: may be written", "b: may be written")},
    ),
    "liger opted cross_entropy": Row(_opted_cross_entropy, _rows_and_labels, "torch+lse", dtypes=_ALL, why=_AGAIN),
    "liger cross_entropy": Row(_cross_entropy, _rows_and_labels, "torch+lse", dtypes=_ALL, why=_AGAIN),
}  # fmt: skip
