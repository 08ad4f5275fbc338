"""A verdict on disk: its data, read strictly, with every float as a hexadecimal string.

Unknown fields, wrong types, oversized data and numbers that no verdict can have are refused.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from ...oracles.verdicts.verdict import (  # fmt: skip
    FAILED,
    MAX_CASE,
    MAX_TEXT,
    Bin,
    Cell,
    Code,
    Failure,
    Measure,
    Outcome,
    Signs,
    Verdict,
    Worst,
)

# Exactly what `float.hex` writes: `float.fromhex` by itself also takes blanks, other
# spellings and numbers of any length.
_HEX_PATTERN = r"^(-?0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}|nan|-?inf)$"
Hex = Annotated[str, msgspec.Meta(pattern=_HEX_PATTERN, max_length=32)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Long = Annotated[str, msgspec.Meta(max_length=MAX_CASE)]
BinText = Annotated[
    str,
    msgspec.Meta(
        pattern=r"^(magnitude|length) -?[0-9]{1,4} [0-9]{1,15}( 0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}){2}$",
        max_length=120,
    ),
]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class RecordError(ValueError):
    """A file that is not a record this version can read."""


class Data(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of everything on disk."""


class CellData(Data, frozen=True, forbid_unknown_fields=True):
    op: Name
    property: Name
    dtype: Name
    device: Name
    subject: Name


class WorstData(Data, frozen=True, forbid_unknown_fields=True):
    where: Text
    path: Text
    computed: Text
    exact: Text
    ulp: Hex
    ratio: Hex
    share: Hex | None = None
    roundoffs: Hex | None = None


class MeasureData(Data, frozen=True, forbid_unknown_fields=True):
    samples: Count
    discarded: Count
    judged: Count
    not_judged: Count
    max_ulp: Hex
    max_ratio: Hex
    detect_median: Hex
    detect_worst: Hex
    worst: WorstData | None
    ulp_median: Hex = "nan"  # records of before these two existed are read too
    ulp_p99: Hex = "nan"
    regimes: Annotated[list[tuple[Name, Count, Count]], msgspec.Meta(max_length=64)] = []
    sizes: Annotated[list[Name], msgspec.Meta(max_length=64)] = []
    refused: Count = 0
    scaled_median: Hex = "nan"  # records of before these three existed are read too
    scaled_p99: Hex = "nan"
    scaled_max: Hex = "nan"
    bins: Annotated[list[BinText], msgspec.Meta(max_length=256)] = []


class SignsData(Data, frozen=True, forbid_unknown_fields=True):
    path: Text = ""
    output: Text = ""
    kernel: Text = ""
    calls: Annotated[list[Text], msgspec.Meta(max_length=64)] = []
    error: Text = ""
    samples: Count = 0
    common: Annotated[list[Text], msgspec.Meta(max_length=64)] = []
    share: Hex | None = None


class FailureData(Data, frozen=True, forbid_unknown_fields=True):
    code: Code
    title: Text
    message: Text
    case_id: Text
    case: Long
    snippet: Long
    signs: SignsData = SignsData()


class VerdictData(Data, frozen=True, forbid_unknown_fields=True):
    cell: CellData
    outcome: Outcome
    code: Code
    reason: Text
    measure: MeasureData
    failure: FailureData | None
    seconds: Hex
    timing: Annotated[list[tuple[Name, Hex]], msgspec.Meta(max_length=64)]
    title: Text
    changed: Annotated[list[Text], msgspec.Meta(max_length=64)] = []
    others: Annotated[list[FailureData], msgspec.Meta(max_length=64)] = []


def verdict_of(data: VerdictData) -> Verdict:
    """The verdict of its data on disk.

    Raises:
        RecordError: a number that no verdict has, or a verdict that contradicts itself.
    """
    seconds = finite("seconds", data.seconds)
    verdict = Verdict(
        cell=Cell(**msgspec.structs.asdict(data.cell)),
        outcome=data.outcome,
        code=data.code,
        reason=data.reason,
        measure=_measure(data.measure),
        failure=None if data.failure is None else _failure_of(data.failure),
        seconds=seconds,
        timing=tuple((name, finite(name, value)) for name, value in data.timing),
        title=data.title,
        changed=tuple(data.changed),
        others=tuple(map(_failure_of, data.others)),
    )
    for text in _contradictions(verdict):
        raise RecordError(f"run record: {verdict.cell.key} is {verdict.outcome} {text}")
    return verdict


def _contradictions(verdict: Verdict) -> Iterator[str]:
    """What a verdict says that its outcome, or another of its figures, cannot be true with."""
    measure, holds = verdict.measure, verdict.held
    if holds and measure.judged and math.isnan(measure.max_ratio):
        # No comparison with NaN is true, so every later test for a ratio that is too large would pass this verdict.
        yield "with max_ratio=nan, need a number: nothing was compared"
    if holds and measure.max_ratio > 1:
        yield f"with max_ratio={measure.max_ratio:.4g}, need at most 1: an element lies outside its bound"
    if holds and verdict.causes + verdict.others:
        yield "with a failure, need none"
    if verdict.outcome is Outcome.VERIFIED:
        if not measure.judged or not measure.samples:
            yield f"with judged={measure.judged} and samples={measure.samples}, need some of both"
        if verdict.code is not Code.HELD:
            yield f"with code {verdict.code}, need {Code.HELD}"
    if verdict.outcome in FAILED and verdict.code is Code.HELD:
        yield f"with code {verdict.code}, need that of what was broken"
    if verdict.outcome is Outcome.FAIL and verdict.failure is None:
        yield "without a failure, need what was broken"
    yield from _contradicting_parts(measure, holds)


def _contradicting_parts(measure: Measure, holds: bool) -> Iterator[str]:
    """What parts of a measure say that its totals cannot be true with."""
    for name, judged, not_judged in measure.regimes:
        if judged > measure.judged or not_judged > measure.not_judged:
            yield f"with regime {name} of {judged} and {not_judged} elements, need at most those of the whole"
    if not holds:
        return
    if measure.worst is not None and not measure.worst.ratio <= measure.max_ratio:
        yield f"with a worst element of ratio={measure.worst.ratio:.4g}, need at most max_ratio={measure.max_ratio:.4g}"
    for text in measure.bins:
        if not Bin.of(text).ratio <= 1:
            yield f"with bin {text!r}, need a ratio of at most 1"


def _failure_of(data: FailureData) -> Failure:
    values: dict[str, Any] = msgspec.structs.asdict(data)
    signs: dict[str, Any] = msgspec.structs.asdict(data.signs)
    signs.update(calls=tuple(data.signs.calls), common=tuple(data.signs.common), share=_share_of(data.signs.share))
    return Failure(**values | {"signs": Signs(**signs)})


def _measure(data: MeasureData) -> Measure:
    errors = ("max_ulp", "max_ratio", "ulp_median", "ulp_p99", "scaled_median", "scaled_p99", "scaled_max")
    hexes = (*errors, "detect_median", "detect_worst")
    values: dict[str, Any] = msgspec.structs.asdict(data)
    values.update({name: _float(name, values[name]) for name in hexes})
    values.update(regimes=tuple(data.regimes), sizes=tuple(data.sizes), bins=tuple(data.bins))
    if data.worst is not None:
        worst: dict[str, Any] = msgspec.structs.asdict(data.worst)
        worst.update({name: _float(name, worst[name]) for name in ("ulp", "ratio")})
        worst.update({name: _share_of(worst[name]) for name in ("share", "roundoffs")})
        values["worst"] = Worst(**worst)
    return Measure(**values)


def _share_of(text: str | None) -> float | None:
    return None if text is None else _float("share", text)


def _float(name: str, text: str) -> float:
    """An error, a ratio or a width: any value but a negative one."""
    try:
        value = float.fromhex(text)
    except OverflowError as err:
        raise RecordError(f"run record: got {name}={text}, need a double") from err
    if value < 0:
        raise RecordError(f"run record: got {name}={text}, need 0 or more")
    return value


def finite(name: str, text: str) -> float:
    """A number of seconds; RecordError for a text that is none."""
    value = _float(name, text)
    # The limit (30,000 years) keeps infinity and nonsense out of the sums and durations that reports show.
    if not 0 <= value < 1e12:
        raise RecordError(f"run record: got {name}={value}, need seconds")
    return value
