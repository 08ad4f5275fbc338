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


def _rows_and_labels(dtype: torch.dtype) -> tuple[Any, ...]:
    return (*rows_alone(dtype), torch.randint(COLUMNS, (ROWS_OF_X,)).cuda())


_BEHIND = "backward reads the gradient of the sum in rows behind the last one of its block"
_AGAIN = "backward scales the kept gradient in its place, and a second one once more"
_PADDED = "the variance counts (0 - mean)^2 of columns behind the row, where a row does not fill its threads' loads"
ROWS = {
    "liger rms_norm": Row(_rms_norm("llama"), lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "liger rms_norm of gemma": Row(_rms_norm("gemma", 1.0), lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "liger fused_add_rms_norm": Row(
        _fused_add_rms_norm, lambda d: rows_with(d, matrices=1, vectors=1), dtypes=_ALL, why=_BEHIND
    ),
    "liger layer_norm": Row(_layer_norm, lambda d: rows_with(d, vectors=2), dtypes=_ALL, why=_PADDED),
    "liger softmax": Row(_softmax, rows_alone, dtypes=_ALL),
    "liger swiglu": Row(_swiglu, lambda d: rows_with(d, matrices=1), dtypes=_ALL, why=TANH),
    "liger kl_div": Row(
        _kl_div, lambda d: (*rows_alone(d), normal(ROWS_OF_X, COLUMNS, dtype=d, grad=False)), "torch+lse", dtypes=_ALL
    ),
    "liger geglu": Row(_geglu, lambda d: rows_with(d, matrices=1), dtypes=_ALL, why=TANH),
    "liger geglu, allowed": Row(_geglu, lambda d: rows_with(d, matrices=1), APPROXIMATE, dtypes=_ALL),
    "liger cross_entropy": Row(_cross_entropy, _rows_and_labels, "torch+lse", dtypes=_ALL, why=_AGAIN),
}  # fmt: skip
