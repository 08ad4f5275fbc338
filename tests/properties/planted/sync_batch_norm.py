"""Mistakes in synchronised batch norm: each one change of its source, judged as batch norm of the parts together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import opassay.impl.comm
from opassay import Code

from ..changed_source import changed
from ..partitioned import partitioned
from .fault import WRONG, Fault

ORDER = ("call", "base", "reduction", "sync_batch_norm")


def _subject(old: str, new: str) -> Callable[..., Any]:
    copy = changed(opassay.impl.comm, ORDER, "sync_batch_norm", old, new)
    return partitioned(copy.sync_batch_norm.sync_batch_norm)


def _fault(name: str, old: str, new: str, code: str, dtype: str = "float32") -> Fault:
    return Fault("batch_norm", name, _subject(old, new), code, dtype, (*WRONG, Code.RAISED))


FAULTS = (
    _fault("count of this rank, not of all", "total = sums[channels]\n", "total = own[1][0] * 1.0\n", "FWD"),
    _fault(
        "mean of means of uneven parts", "[count * mean, mean.new_full((1,), count)]", "[mean, mean.new_full((1,), 1)]",
        "FWD", "float64",
    ),
    _fault("biased running_var over ranks", "var * (count / (count - 1))", "var * 1.0", "FWD"),
    _fault("count in three bits", "(1,), count)", "(1,), count).to(torch.float8_e5m2).double()", "FWD"),
    _fault("sums of the backward not divided", "(part / total for part in reduced", "(part for part in reduced", "VJP"),
    _fault(
        "sums of the backward not sent",
        'AllReduce.apply(torch.cat([sums, products, *inner]), ctx.comm, "batch norm, vjp")',
        "torch.cat([sums, products, *inner])", "VJP",
    ),
    _fault("low part of the mean dropped", " - _along(low, x)\n", "\n", "FWD"),
    _fault("sums in float32", "wide = x.to(torch.float64)\n    mean", "wide = x.to(torch.float32)\n    mean", "FWD"),
    _fault("a rank of no elements divides by zero", "/ max(count, 1)\n    own", "/ count\n    own", "FWD"),
    _fault("tangent of the variance dropped", "t_scale = -0.5 * scale", "t_scale = 0.0 * scale", "JVP"),
)  # fmt: skip
