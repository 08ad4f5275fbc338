"""Logs of sweeps, written, continued and joined; `reading` reads them.

Shards of several machines of one kind are joined by reading their folders together.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from opassay.reports.store.files import write_atomically

from .reading import SCHEMA, TOOL, Key, Log, SweepError, Swept

#: The parts of an environment that decide the results of elementary functions.
DECISIVE = ("torch", "platform", "libc", "cpu", "cpu capability", "mkldnn", "cuda", "gpu", "driver")


def file_of(key: Key) -> str:
    """The name of a log; a colon, which some file systems refuse, becomes an underscore."""
    return f"{key.function.replace(':', '_')}-{key.dtype}-{key.device}.jsonl"


def heading_of(log: Log) -> str:
    """The first line of a log."""
    fields = {"tool": TOOL, "schema": SCHEMA, **vars(log.key), "environment": dict(log.environment)}
    return json.dumps(fields)


def write_log(folder: Path, log: Log) -> None:
    """Write a log anew, its shards in the order in which they were measured.

    Raises:
        RecordError: the file cannot be written.
    """
    lines = [heading_of(log), *(json.dumps(shard) for shard in log.shards.values())]
    write_atomically(folder / file_of(log.key), ("\n".join(lines) + "\n").encode())


def join(logs: Iterable[Log]) -> list[Log]:
    """One log per function, dtype and device.

    Raises:
        SweepError: two logs of one sweep come from different machines or versions.
    """
    joined: dict[Key, Log] = {}
    for log in logs:
        whole = joined.setdefault(log.key, Log(log.key, log.environment))
        other = difference(whole.environment, log.environment)
        if other:
            raise SweepError(
                f"{file_of(log.key)}: logs of one sweep differ in {other}; need folders of one kind of machine"
            )
        whole.shards.update(log.shards)
    return list(joined.values())


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first decisive part in which two environments differ, with both values; empty if there is none."""
    for name in DECISIVE:
        if one.get(name) != other.get(name):
            return f"{name}: {one.get(name)!r} and {other.get(name)!r}"
    return ""


def is_broken(row: Swept) -> bool:
    """Whether the device has a larger error than the contract, by which right results could be rejected."""
    return row.promised is not None and row.normal > row.promised
