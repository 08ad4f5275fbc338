"""Verdicts from `oracles.verdicts.verdict.as_data`, for the process that asked another one."""

from __future__ import annotations

import dataclasses
import types
import typing
from typing import Any

import msgspec

from ...oracles.verdicts.verdict import Verdict


def verdict_of(data: Any) -> Verdict:
    """The verdict of which `as_data` made the data.

    Raises:
        ValueError: the data are not those of a verdict.
    """
    try:
        return msgspec.convert(_with_floats(data, Verdict), Verdict)
    except msgspec.MsgspecError as err:
        raise ValueError(f"no verdict: {err}") from err


def _with_floats(data: Any, kind: Any) -> Any:
    """The data with a float wherever the type has one: in data they are hexadecimal texts, so that NaN survives."""
    if kind is float:
        return float.fromhex(data) if isinstance(data, str) else data
    if isinstance(kind, types.UnionType):
        # Every union in a verdict is of one type and None, and the type stands first.
        return None if data is None else _with_floats(data, typing.get_args(kind)[0])
    if dataclasses.is_dataclass(kind) and isinstance(data, dict):
        kinds = typing.get_type_hints(kind)
        return {name: _with_floats(value, kinds.get(name)) for name, value in data.items()}
    if typing.get_origin(kind) is tuple and isinstance(data, list):
        of = typing.get_args(kind)
        # `tuple[X, ...]` names one type for all elements, any other tuple one type for each.
        each = of[:1] * len(data) if of[1:] == (...,) else of
        return [_with_floats(value, one) for value, one in zip(data, each, strict=True)]
    return data
