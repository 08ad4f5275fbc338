"""The largest error of a function of float32 over all arguments, computed on the GPU beside its value in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from telling import DEVICE, Time

Function = Callable[[torch.Tensor], torch.Tensor]
#: Arguments that are computed at once.
_CHUNK = 1 << 26


def over_all_arguments(
    function: Function,
    exact: Function,
    allowed: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    clock: Time,
    *,
    most: float = math.inf,
) -> dict[str, object]:
    """A row: the largest error in ulps, relative and absolute, and how many results are farther off than is allowed.

    Args:
        function: bits of float32 numbers in int32 in, bits of results out. exact: float64 to float64, whose own
            errors are below 2^-50 of the result. allowed: (size of the results, their spacing in float32) -> distance.
        clock: of the part. most: the largest argument. Results below 2^-126 and beyond float32 are left out.
    """
    ulps = relative = absolute = 0.0
    outside = count = inexact = 0
    worst = ""
    for start in range(-(1 << 31), 1 << 31, _CHUNK):
        if clock.left() < 0:
            return {"failed": f"no time was left; {count} arguments"}
        x = torch.arange(start, start + _CHUNK, device=DEVICE, dtype=torch.int64).to(torch.int32)
        argument, result = x.view(torch.float32), function(x).view(torch.float32)
        need = exact(argument.double())
        size = need.abs()
        judged = (
            argument.isfinite() & (argument.abs() <= most) & (size >= 2.0**-126) & (size < 2.0**128 * (1 - 2.0**-25))
        )
        argument, result, need, size = (each[judged] for each in (argument, result, need, size))
        if not argument.numel():
            continue
        error = (result.double() - need).abs().nan_to_num(math.inf)
        spacing = torch.exp2((torch.frexp(size).exponent - 24).double())
        away = error / spacing
        top = int(away.argmax())
        if float(away[top]) > ulps:
            ulps, worst = float(away[top]), f"{float(argument[top]):.9g}"
        relative, absolute = max(relative, float((error / size).max())), max(absolute, float(error.max()))
        outside += int((error > allowed(size, spacing)).sum())
        inexact += int((away > 0.5).sum())
        count += int(error.numel())
    return {
        "arguments": count, "ulps": ulps, "at": worst, "relative": relative, "absolute": absolute,
        "not nearest": inexact, "outside": outside,
    }  # fmt: skip
