"""Verdicts as JSON-ready data, and back, read strictly; every float is a hexadecimal text, so that NaN survives.

The form of the data is derived from the dataclasses of `verdict`. Unknown fields, wrong types, oversized data, numbers
that no verdict can have and verdicts that contradict themselves are refused.
"""

from __future__ import annotations

import dataclasses
import functools
import math
import types
import typing
from collections.abc import Iterator
from typing import Annotated, Any

import msgspec

from .verdict import FAILED, MAX_CASE, MAX_TEXT, Bin, Cell, Code, Failure, Measure, Outcome, Signs, Verdict, Worst
from .watched import CallRecord, Site, Watched

# Exactly what `float.hex` writes: `float.fromhex` by itself also takes blanks, other spellings and numbers of any
# length.
_NUMBER = r"0x[01](\.[0-9a-f]{1,13})?p[+-][0-9]{1,4}"
Hex = Annotated[str, msgspec.Meta(pattern=f"^(-?{_NUMBER}|nan|-?inf)$", max_length=32)]
Name = Annotated[str, msgspec.Meta(min_length=1, max_length=512)]
Text = Annotated[str, msgspec.Meta(max_length=MAX_TEXT)]
Long = Annotated[str, msgspec.Meta(max_length=MAX_CASE)]
Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_BIN = rf"^(magnitude|length) -?[0-9]{{1,4}} [0-9]{{1,15}}( {_NUMBER}){{2}}$"
_BinText = Annotated[str, msgspec.Meta(pattern=_BIN, max_length=120)]

_LONG = ("case", "snippet")
#: The form of texts in fields that are no plain text, by the name of the field.
_TEXTS: dict[str, Any] = (
    dict.fromkeys([field.name for field in dataclasses.fields(Cell)] + ["regimes", "sizes", "timing"], Name)
    | dict.fromkeys(_LONG, Long)
    | {"bins": _BinText}
)
#: Fields of more than 64 items, by their names or by what the items are, and the most that they may have.
_MOST = {"bins": 256, "chain": 1000, "kinds": 1000, "regions": 1000, Site: 100_000, CallRecord: 4_000_000}
#: Numbers that may be negative.
_SIGNED = frozenset({"contribution", "value", "explained", "error"})
#: Fields that records of earlier versions do not have; every other field must be there.
_LATER = {
    Worst: ("share", "roundoffs"),
    Measure: (
        *("regimes", "sizes", "refused", "bins", "scaled_max"),
        *(f"{scale}_{part}" for scale in ("ulp", "scaled") for part in ("median", "p99")),
    ),
    Signs: tuple(field.name for field in dataclasses.fields(Signs)),
    Failure: ("signs",),
    Verdict: ("changed", "others"),
}


class RecordError(ValueError):
    """A file that is not a record this version can read."""


def as_data(verdict: Verdict, *, max_case: int = MAX_CASE) -> dict[str, Any]:
    """JSON-ready data: every float a hexadecimal string, so that NaN and infinities survive.

    A text above its limit is cut; a case or snippet above its limit is left out, because a part of it cannot be run.
    """
    data: dict[str, Any] = _encode(dataclasses.asdict(verdict))
    for failure, fields in zip(verdict.causes, (data["failure"], *data["others"]), strict=False):
        for name in _LONG:
            if len(getattr(failure, name)) > max_case:
                fields[name] = ""
    return data


def _encode(value: Any, limit: int = MAX_TEXT) -> Any:
    if isinstance(value, float):
        return float(value).hex()
    if isinstance(value, str):
        # A subject's text may hold a lone surrogate, which UTF-8 cannot encode: writing the log would fail.
        return str(value)[:limit].encode("utf-8", "replace").decode()
    if isinstance(value, dict):
        return {key: _encode(item, MAX_CASE if key in _LONG else MAX_TEXT) for key, item in value.items()}
    if isinstance(value, tuple | list):
        return [_encode(item) for item in value]
    return value if value is None else int(value)


@functools.cache
def _hints_of(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _is_record(hint: Any) -> bool:
    return dataclasses.is_dataclass(hint)


def _form(name: str, hint: Any) -> Any:
    """The type of a field in data: for a dataclass a struct, for a float `Hex`, for a tuple a list with a limit."""
    if hint is float:
        return Hex
    if hint is int:
        return Count
    if hint is str:
        return _TEXTS.get(name, Text)
    if isinstance(hint, types.UnionType):
        return _form(name, typing.get_args(hint)[0]) | None
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        if parts[1:] != (...,):
            return tuple[*(_form(name, part) for part in parts)]  # type: ignore[misc]
        most = msgspec.Meta(max_length=_MOST.get(parts[0], _MOST.get(name, 64)))
        return Annotated[list[_form(name, parts[0])], most]  # type: ignore[misc]
    return _struct(hint) if _is_record(hint) else hint


@functools.cache
def _struct(kind: Any) -> type[msgspec.Struct]:
    """The struct of a dataclass, in whose data fields may be missing that earlier versions did not write."""
    fields: list[Any] = []
    for field in dataclasses.fields(kind):
        form = _form(field.name, _hints_of(kind)[field.name])
        if field.name in _LATER.get(kind, ()):
            default = form() if field.default is dataclasses.MISSING else _encode(field.default)
            fields.append((field.name, form, default))
        else:
            fields.append((field.name, form))
    return msgspec.defstruct(
        f"{kind.__name__}Data", fields, module=__name__, kw_only=True, frozen=True, forbid_unknown_fields=True
    )


#: The struct of a verdict's data.
VerdictData: Any = _struct(Verdict)


def encode_watched(watched: Watched) -> bytes:
    """What was seen of a program as JSON, every float a hexadecimal text."""
    return msgspec.json.encode(_encode(dataclasses.asdict(watched)))


def decode_watched(content: bytes) -> Watched:
    """What `encode_watched` wrote.

    Raises:
        RecordError: it is not JSON, or not of this form.
    """
    try:
        whole = msgspec.json.decode(content, type=_struct(Watched))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise RecordError(f"watch record: {err}") from err
    watched: Watched = _value("", whole, Watched)
    if any(not 0 <= call.site < len(watched.sites) for call in watched.calls):
        raise RecordError("watch record: a call names a site that is not there")
    return watched


def decode_verdict(data: Any) -> Verdict:
    """The verdict of its data.

    Args:
        data: what `as_data` makes, or a `VerdictData`.

    Raises:
        RecordError: the data are not those of a verdict, hold a number that no verdict has, or contradict themselves.
    """
    try:
        whole = data if isinstance(data, VerdictData) else msgspec.convert(data, VerdictData)
    except msgspec.MsgspecError as err:
        raise RecordError(f"run record: {err}") from err
    verdict: Verdict = _value("", whole, Verdict)
    for text in _contradictions(verdict):
        raise RecordError(f"run record: {verdict.cell.key} is {verdict.outcome} {text}")
    return verdict


def _value(name: str, data: Any, hint: Any) -> Any:
    """The value of a field, of its data in the form that `_form` gives to the hint."""
    if isinstance(hint, types.UnionType):
        # Every union in a verdict is of one type and None, and the type stands first.
        return None if data is None else _value(name, data, typing.get_args(hint)[0])
    if _is_record(hint):
        hints = _hints_of(hint)
        return hint(**{key: _value(key, getattr(data, key), part) for key, part in hints.items()})
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        # `tuple[X, ...]` names one type for all elements, any other tuple one type for each.
        each = parts[:1] * len(data) if parts[1:] == (...,) else parts
        return tuple(_value(name, item, part) for item, part in zip(data, each, strict=True))
    if hint is float:
        return read_seconds(name, data) if name in ("seconds", "timing") else _read_float(name, data)
    return data


def _read_float(name: str, text: str) -> float:
    """An error, a ratio or a width: any value but a negative one."""
    try:
        value = float.fromhex(text)
    except OverflowError as err:
        raise RecordError(f"run record: got {name}={text}, need a double") from err
    if value < 0 and name not in _SIGNED:
        raise RecordError(f"run record: got {name}={value}, need 0 or more")
    return value


def read_seconds(name: str, text: str) -> float:
    """A number of seconds.

    Raises:
        RecordError: the text is none.
    """
    value = _read_float(name, text)
    # The limit (30,000 years) keeps infinity and nonsense out of the sums and durations that reports show.
    if not 0 <= value < 1e12:
        raise RecordError(f"run record: got {name}={value}, need seconds")
    return value


def _contradictions(verdict: Verdict) -> Iterator[str]:
    """What a verdict says that its outcome, or another of its figures, cannot be true with."""
    measure, holds = verdict.measure, verdict.holds
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
