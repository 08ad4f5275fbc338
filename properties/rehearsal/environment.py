"""The environment of processes that rehearse, and how a command becomes one of them."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from .building import build

START = Path(__file__).with_name("start")
#: Has the path of the device's library in every process that rehearses; the other one, why it does without being asked.
LIBRARY, BECAUSE = "OPASSAY_REHEARSAL", "OPASSAY_REHEARSAL_BECAUSE"
#: What the device is called, wherever a name is shown.
NAME = "rehearsal device (host memory)"


def is_rehearsed() -> bool:
    """Whether this process rehearses."""
    return LIBRARY in os.environ


def place_of_work() -> list[str]:
    """A line about where a process that rehearses does its work, and why there; none for any other process."""
    because = os.environ.get(BECAUSE, "")
    return [f"on the {NAME}{because and f', because it {because}'}"] if is_rehearsed() else []


def environment(because: str = "") -> dict[str, str]:
    """That of this process, by which every Python process that is started with it rehearses; builds the device.

    Args:
        because: what a command did that was not told to rehearse.

    Raises:
        BuildError: it cannot be built.
    """
    paths = [str(START), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    own = {LIBRARY: str(build()), "PYTHONPATH": os.pathsep.join(paths), **({BECAUSE: because} if because else {})}
    # It is a part of torch that a build without CUDA lacks; without it inductor launches its kernels by Triton.
    own["TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER"] = "0"
    # An interpreter in the place of the compiler would launch nothing.
    return {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"} | own


def start_again(because: str = "") -> None:
    """Become the command of this process once more, as one that rehearses; it does not return.

    Args, errors: as of `environment`.
    """
    variables = environment(because)
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, sys.orig_argv, variables)
