"""The marker of a report folder: what says that the folder is ours, and which run's files stand in it."""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Annotated, NoReturn

import msgspec

SCHEMA = 1
NAME = "marker.json"
RUN_ID = re.compile(r"[0-9]{8}-[0-9]{6}-[0-9a-f]{6}")
_LARGEST = 2**16  # bytes


class Marker(msgspec.Struct, frozen=True):
    """The content of marker.json."""

    tool: str
    schema: int
    run: str  # the run whose cases and plan stand in the folder
    pid: int
    started: str
    recorded: Annotated[list[str], msgspec.Meta(max_length=1000)] = []  # runs with a log whose record was written


def read_marker(where: int, refuse: Callable[[str, str], NoReturn]) -> Marker | None:
    """The marker in the folder of that handle, if any; `refuse` is told what is wrong with one, and the rule."""
    try:
        # O_NONBLOCK, because a pipe of that name would otherwise keep this process waiting until somebody writes to it.
        handle = os.open(NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=where)
    except FileNotFoundError:
        return None
    try:
        content = os.read(handle, _LARGEST + 1)
    finally:
        os.close(handle)
    try:
        marker = msgspec.json.decode(content, type=Marker)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        refuse(f"its marker .opassay/{NAME} cannot be read ({err})", "need one that opassay wrote")
    if marker.tool != "opassay" or marker.schema != SCHEMA:
        identity = f"tool {marker.tool!r}, schema {marker.schema}"
        refuse(f"its marker .opassay/{NAME} says {identity}", f"need tool 'opassay', schema {SCHEMA}")
    # Ids of runs become parts of file names, and those files are moved and deleted. An id of another form, such as one
    # with a slash, could lead to files that are not ours.
    if not all(map(RUN_ID.fullmatch, [marker.run, *marker.recorded])):
        refuse(f"its marker .opassay/{NAME} names runs in another way", "need YYYYMMDD-HHMMSS-XXXXXX")
    return marker


def encode_marker(run: str, recorded: list[str]) -> bytes:
    """The marker of this process for a run."""
    started = datetime.now(UTC).isoformat(timespec="seconds")
    # The field holds at most 1000 ids, and a marker that was written must be readable. The newest ids stand last.
    marker = Marker("opassay", SCHEMA, run, os.getpid(), started, recorded[-1000:])
    return msgspec.json.format(msgspec.json.encode(marker), indent=1) + b"\n"


def new_run_id() -> str:
    """An id of a run: the time in UTC, and six random hex digits; later runs sort behind earlier ones."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(3)}"


def check_run(run: str) -> None:
    if not RUN_ID.fullmatch(run):
        raise ValueError(f"run id: got run={run!r}, need YYYYMMDD-HHMMSS-XXXXXX, as new_run_id() gives")
