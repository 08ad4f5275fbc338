"""What the judge says of one contender, as a record."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import torch

import opassay
from opassay.properties.candidates.question_plan import USUAL
from opassay.properties.engine.limits import processor_seconds

from .contender import Contender

#: Seconds after which nothing more is asked of a contender.
_SECONDS = 150.0
#: In a row at CALLS:again.
_CALLS = 16


def describe_contender(contender: Contender, version: str) -> dict[str, Any]:
    """What is judged, as the part of a record that is known before."""
    return {
        "library": contender.library, "version": version, "call": contender.call, "meaning": contender.meaning,
        "contract": contender.contract, "how": contender.compiled, "dtype": contender.dtype,
        "where": list(contender.where),
    }  # fmt: skip


def judge_contender(contender: Contender, version: str) -> dict[str, Any]:
    """Judge a contender by every question, as one record of the league.

    Returns:
        library, version, call, meaning, contract, dtype, where: what was judged.
        how: compiled for an architecture, or "".
        verdict: of the judge; "raised" where the judge itself raised. error: why there is none on the kernel.
        arithmetic: the strictest precision whose bound is kept. elements: that were held against a bound.
        sees: the median over elements of the smallest error that would have been seen, in ulp; None without a bound.
        causes: of each question that is wrong, or suspect, its code, its first line and the worst element.
        weaknesses: sentences. day: an ISO date.
        seconds, processor: on this machine, by the clock and of its processors.
    """
    begun, processor = time.perf_counter(), processor_seconds()
    record = describe_contender(contender, version)
    try:
        judgement = opassay.judge(
            contender.function, contender.spec, contender.arguments, contract=contender.contract, total=_SECONDS,
            questions=[code for code in USUAL if code not in contender.leaves], compiled=contender.compiled,
            calls=_CALLS, domain={"where": contender.where},
        )  # fmt: skip
    except Exception as err:
        record |= {"verdict": "raised", "error": f"{type(err).__name__}: {err}"[:500], "arithmetic": "", "elements": 0}
        record |= {"sees": None, "causes": [], "weaknesses": []}
    else:
        record |= {
            "verdict": str(judgement.verdict),
            "error": judgement.error[:500],
            "arithmetic": judgement.arithmetic,
        }
        record |= {"elements": sum(each.judged for each in judgement.findings), "sees": _ratio_of(contender)}
        causes = [_cause(each) for each in judgement.causes or judgement.suspicions]
        record |= {"causes": causes, "weaknesses": list(judgement.weaknesses)}
    seconds, day = round(time.perf_counter() - begun, 1), datetime.now(UTC).date().isoformat()
    return {**record, "seconds": seconds, "processor": round(processor_seconds() - processor, 1), "day": day}


def _cause(finding: Any) -> dict[str, Any]:
    wrong = finding.wrong
    cause = {"question": finding.question, "code": str(wrong.code), "text": finding.text[:300]}
    if wrong.outlier is not None:
        numbers = {key: getattr(wrong.outlier, key) for key in ("index", "computed", "exact", "bound")}
        cause |= {key: str(value) if isinstance(value, float) else list(value) for key, value in numbers.items()}
    return cause


def _ratio_of(contender: Contender) -> float | None:
    """The median half-width of an accept set at the given inputs, in ulps of the exact values."""
    try:
        limits = opassay.bound(contender.spec, *contender.arguments, contract=contender.contract)
    except (opassay.SpecError, ValueError, TypeError):
        return None
    every = [limits] if isinstance(limits, opassay.Bound) else limits
    dtype = getattr(torch, contender.dtype)
    sizes = [_in_ulps(each.centre, each.half_width, dtype) for each in every]
    known = torch.cat([each[torch.isfinite(each)] for each in sizes]) if sizes else torch.empty(0)
    return float(f"{known.median().item():.3g}") if known.numel() else None


def _in_ulps(centre: torch.Tensor, width: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Half-widths in units in the last place of a dtype."""
    exponent = torch.frexp(centre.abs().clamp_min(torch.finfo(dtype).smallest_normal)).exponent
    return (width / torch.ldexp(torch.ones_like(width), exponent - 1) / torch.finfo(dtype).eps).flatten()
