"""Mistakes in batch norm over ranks: each is one change of its source."""

from __future__ import annotations

from typing import Any

import opassay.impl.comm.ranks
from opassay import Code

from ..changed_source import changed
from .fault import WRONG, Fault

ORDER = ("base", "collective", "board", "process_group", "sync_batch_norm")


def _fault(name: str, old: str, new: str, dtype: str = "float32", module: str = "sync_batch_norm") -> Fault:
    copy = changed(opassay.impl.comm.ranks, ORDER, module, old, new).sync_batch_norm

    def call(comm: Any, *args: Any) -> Any:
        return copy.sync_batch_norm(*args[:-1], comm=comm)

    return Fault("sync_batch_norm", name, call, "COMM", dtype, (*WRONG, Code.RAISED))


FAULTS = (
    _fault("count of this rank, not of all", "total = sums[channels]\n", "total = own[1][0] * 1.0\n"),
    _fault(
        "mean of means of uneven parts", "[count * mean, mean.new_full((1,), count)]", "[mean, mean.new_full((1,), 1)]",
        "float64",
    ),
    _fault("biased running_var over ranks", "var * (count / (count - 1))", "var * 1.0"),
    _fault(
        "unbiased by the count of one rank",
        "        update(running_mean, running_var, mean, var * (count / (count - 1)), momentum)",
        "        own = max(input.numel() // input.shape[1], 2)\n"
        "        update(running_mean, running_var, mean, var * (own / (own - 1)), momentum)",
    ),
    _fault("count in three bits", "(1,), count)", "(1,), count).to(torch.float8_e5m2).double()"),
    _fault("sums of the backward not divided", "(reduced / total).reshape", "reduced.reshape"),
    _fault(
        "sums of the backward not sent",
        'all_reduce(torch.cat([sums, products, *inner]), ctx.comm, "batch norm, vjp")',
        "torch.cat([sums, products, *inner])",
    ),
    _fault("sums sent in float32", "torch.cat([*own, squares])", "torch.cat([*own, squares]).float().double()"),
    _fault(
        "derivative of a sum over ranks not sent",
        "return Collective.apply(g, ctx.comm, ctx.step.adjoint()), None, None", "return g, None, None", "float64",
        "collective",
    ),
    _fault(
        "squares of the input summed in float32",
        "_channel_sums((wide - _along_channels(mean, wide)).square()) + count * mean.square()",
        "x.square().sum([0, *range(2, x.dim())]).double()",
    ),
    _fault(
        "NaN as one rank's part of the gradient of the weight", "(invstd * products).to(x.dtype)",
        "(invstd * products * (torch.nan if ctx.comm.rank else 1.0)).to(x.dtype)",
    ),
    _fault("a rank of no elements divides by zero", "/ max(count, 1)\n    own", "/ count\n    own"),
    _fault("tangent of the variance dropped", "t_scale = -0.5 * scale", "t_scale = 0.0 * scale"),
)  # fmt: skip
