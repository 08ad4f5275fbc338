"""Logs of sweeps, which measure elementary functions on the arguments of a format: read, and as rows of a table.

A log is of one function in one dtype on one device: a heading with the environment of the measurement, then a line per
shard. Lines are only appended, so an interrupted sweep loses the current shard alone.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opassay.reference.formats import BINARY32, FORMATS

SCHEMA = 1
#: The word of logs for `python -m workshop sweep`, which writes them.
TOOL = "opassay sweep"
#: Shards of a whole sweep, by the number of bits of the format.
SHARDS = {16: 1, 32: 256, 64: 64}


class SweepError(ValueError):
    """A log cannot be read, or does not belong to this sweep; the text says which, and what is needed."""


def promised(function: str, dtype: str, contract: Mapping[str, float]) -> float | None:
    """The largest error of a result by a contract, in ulps of the dtype; None if the contract has no such function.

    A half type is computed in binary32 and rounded once more: half an ulp, and the contract's ulps of binary32.
    """
    ulps = contract.get(function.partition(":")[0])
    precision = FORMATS[dtype].precision
    if ulps is None or precision >= BINARY32.precision:
        return ulps
    return 0.5 + ulps * 2.0 ** (precision - BINARY32.precision)


@dataclass(frozen=True)
class Key:
    """The subject of one log."""

    function: str
    dtype: str
    device: str


@dataclass
class Log:
    """The measured shards of one sweep: number of the shard -> its line in the log; and the environment of it."""

    key: Key
    environment: Mapping[str, str]
    shards: dict[int, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        return [shard for shard in range(shards_of(self.key.dtype)) if shard not in self.shards]


@dataclass(frozen=True)
class Swept:
    """A sweep in one line of a table.

    Attributes:
        key: function, dtype and device.
        inputs: arguments that were measured.
        complete: whether these are all arguments of the dtype.
        misrounded: the share of results further than half an ulp from the value; each argument was measured twice.
        normal, subnormal: the largest error in ulps among normal values, and among smaller ones; -1 if there are none.
        where: the argument with the largest error among normal values, as bits and layout.
        promised: the largest error by the contract in this dtype, in ulps; None if no contract has the function.
    """

    key: Key
    inputs: int
    complete: bool
    misrounded: float
    normal: float
    subnormal: float
    where: str
    promised: float | None


def shards_of(dtype: str) -> int:
    """The number of shards of the sweep of a dtype."""
    return SHARDS[FORMATS[dtype].bits]


def is_exhaustive(dtype: str) -> bool:
    """Whether the shards together hold every argument of the dtype."""
    return FORMATS[dtype].bits < 64


def read_log(path: Path) -> Log:
    """A log as it stands; a last line that was cut off is left out.

    Raises:
        SweepError: the file is no log.
        OSError: the file cannot be read.
    """
    lines = path.read_text("utf-8").split("\n")
    try:
        heading = json.loads(lines[0])
        if heading["tool"] != TOOL or heading["schema"] != SCHEMA:
            raise KeyError("tool")
        log = Log(Key(heading["function"], heading["dtype"], heading["device"]), heading["environment"])
        # The text after the last line break is a line that the sweep was writing when it ended.
        for line in filter(None, lines[1:-1]):
            shard = json.loads(line)
            log.shards[shard["shard"]] = shard
        swept([log], {})
    except (ValueError, KeyError, TypeError) as err:
        raise SweepError(f"{path}: is no log of {TOOL}, schema {SCHEMA} ({type(err).__name__}: {err})") from None
    return log


def swept(logs: Sequence[Log], contract: Mapping[str, float]) -> list[Swept]:
    """The table of these logs; those without a shard are left out."""
    return [_sweep_row(log, contract) for log in logs if log.shards]


def _sweep_row(log: Log, contract: Mapping[str, float]) -> Swept:
    shards = list(log.shards.values())
    inputs = sum(shard["inputs"] for shard in shards)
    worst, below = (
        max((shard[kind] for shard in shards), key=lambda error: float(error["ulps"]))
        for kind in ("normal", "subnormal")
    )
    return Swept(
        log.key,
        inputs,
        is_exhaustive(log.key.dtype) and not log.missing,
        sum(shard["misrounded"] for shard in shards) / (2 * inputs),
        worst["ulps"],
        below["ulps"],
        f"0x{worst['bits']} {worst['layout']}" if worst["bits"] else "",
        promised(log.key.function, log.key.dtype, contract),
    )
