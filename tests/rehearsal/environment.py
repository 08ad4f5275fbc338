"""The environment of processes that rehearse."""

from __future__ import annotations

import os
from pathlib import Path

from .building import build

START = Path(__file__).with_name("start")


def environment() -> dict[str, str]:
    """That of this process, by which every Python process that is started with it rehearses; builds the device."""
    paths = [str(START), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {"OPASSAY_REHEARSAL": str(build()), "PYTHONPATH": os.pathsep.join(paths)}
    # An interpreter in the place of the compiler would launch nothing.
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | own
