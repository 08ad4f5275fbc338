"""torch's own kernels of CuTe DSL (`torch/_native`) as they stand, where the conditions of its dispatcher take them.

A build for the CPU registers none of them, and one for CUDA only those of another version of CuTe DSL: they are called
here as the dispatcher would.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from .row import COLUMNS, EPS, ROWS_OF_X, Row, normal, rows_with


def _module(name: str) -> Any:
    importlib.import_module("torch._vendor.quack")  # whose imports add filters of warnings, and no call of a kernel
    return importlib.import_module(f"torch._native.ops.{name}")


def _rms_norm() -> tuple[Any, Any]:
    native, aten = _module("norm.rmsnorm_impl"), torch.ops.aten

    def forward_of(*arguments: Any) -> Any:
        takes = native._fused_rms_norm_cond(*arguments)
        return native._fused_rms_norm_impl(*arguments) if takes else aten._fused_rms_norm(*arguments)

    class RmsNorm(torch.autograd.Function):
        """The derivative that torch has for it, of the kernels that its dispatcher would take."""

        @staticmethod
        def forward(ctx: Any, x: Any, w: Any) -> Any:
            out, rstd = forward_of(x, [x.shape[-1]], w, EPS)
            ctx.save_for_backward(x, rstd, w)
            return out

        @staticmethod
        def backward(ctx: Any, gradient: Any) -> Any:
            x, rstd, w = ctx.saved_tensors
            arguments = gradient, x, [x.shape[-1]], rstd, w, [*ctx.needs_input_grad]
            takes = native._fused_rms_norm_backward_cond(*arguments)
            if takes:
                return native._fused_rms_norm_backward_impl(*arguments)
            return aten._fused_rms_norm_backward(*arguments)

    return RmsNorm.apply, lambda x, w: F.rms_norm(x, x.shape[-1:], w, EPS)


def _top_k(count: int, deterministic: bool = True) -> Callable[[], tuple[Any, Any]]:
    """The largest ones of rows; the condition that there are more rows than multiprocessors is left out."""

    def make() -> tuple[Any, Any]:
        native, kernels = _module("topk.cutedsl_impl"), _module("topk.cutedsl_kernels")

        def candidate(x: Any) -> Any:
            which = native._kernel_for(count, x.shape[-1])
            if which is None or x.dtype is not torch.float32 or not native.last_dim_row_major_ok(x, -1):
                return torch.topk(x, count).values
            if which == "register":
                return kernels.topk_register(x, count)[0]
            return kernels.topk_radix(x, count, deterministic=deterministic)[0]

        return candidate, lambda x: torch.topk(x, count).values

    return make


def _scatter_add(way: str) -> Callable[[], tuple[Any, Any]]:
    """Rows of one tensor added to those of another; way: "tma" or "vs", of lanes that add element by element."""

    def make() -> tuple[Any, Any]:
        native = _module("scatter_add.cutedsl_impl")
        takes, add = (getattr(native, f"_{way}_{part}") for part in ("cond", "impl"))

        def candidate(x: Any, rows: Any, y: Any) -> Any:
            arguments = x, 0, rows[:, None].expand_as(y), y
            return add(*arguments) if takes(*arguments) else torch.scatter_add(*arguments)

        return candidate, lambda x, rows, y: torch.scatter_add(x, 0, rows[:, None].expand_as(y), y)

    return make


def _rows_to_add(dtype: torch.dtype) -> tuple[Any, ...]:
    x, y = normal(ROWS_OF_X, COLUMNS, dtype=dtype, grad=False), normal(12, COLUMNS, dtype=dtype, grad=False)
    return x, torch.randint(ROWS_OF_X, (12,)).cuda(), y


def _rows_of(columns: int) -> Callable[[torch.dtype], tuple[Any, ...]]:
    return lambda dtype: (normal(ROWS_OF_X, columns, dtype=dtype, grad=False),)


_ALL = ("float32", "bfloat16", "float16")
_ELECTED = "one thread of a warp executes elect.sync, whose mask names all 32"
ROWS = {
    "native rms_norm": Row(_rms_norm, lambda d: rows_with(d, vectors=1), dtypes=_ALL),
    "native topk of 16": Row(_top_k(16), _rows_of(256), dtypes=("float32",)),
    "native topk of 64": Row(_top_k(64), _rows_of(256), dtypes=("float32",)),
    "native topk of 64 in any order": Row(_top_k(64, False), _rows_of(256), dtypes=("float32",)),
    "native scatter_add": Row(_scatter_add("tma"), _rows_to_add, dtypes=_ALL, why=_ELECTED),
    "native scatter_add by lanes": Row(_scatter_add("vs"), _rows_to_add, dtypes=_ALL),
}
