"""What every program of this folder is made of: a bug, what was observed of it, and how that decides its state.

`run` ends a program with the exit codes of `running.OUTCOMES`, and prints one line of JSON for the command.
"""

from __future__ import annotations

import importlib.metadata
import json
import math
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from .running import CLAIMED, FIXED, NOT_RUN, PRESENT
from .seen import Claim, Gap, Holding

#: Binary digits of a format. An observation counts as right if half of them are: bugs here are wrong in their first
#: digits, and roundings in their last ones, so nothing lies between.
DIGITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
REFUSED = "refused"


@dataclass(frozen=True)
class Bug:
    """A bug of somebody's public thread.

    Attributes:
        thread: "owner/repository#number".
        said_of: the version that the thread speaks of, or its date where that is not known.
        observed: () -> what the installed library does: numbers, truth values, words, tensors, or tuples of them.
        expected: what it should have been, or () -> that; the docstring says from where this is known.
        sight: what of opassay sees the bug, or why nothing does.
        package: whose bug it is, by the name of its distribution.
        needs: what the observation needs besides: "cuda", a compiler ("g++"), or a feature of the CPU ("amx_bf16").
    """

    thread: str
    said_of: str
    observed: Callable[[], Any]
    expected: Any
    sight: Claim | Gap
    package: str = "torch"
    needs: tuple[str, ...] = field(default=())


#: The bugs of the programs that were imported, by their modules.
KNOWN: dict[str, Bug] = {}


def attempt(call: Callable[..., Any], *args: Any) -> Any:
    """`REFUSED` where the call raises an error of a kind that says that it is not taken, else its result."""
    try:
        return call(*args)
    except (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError):
        return REFUSED


def same(observed: Any, expected: Any) -> bool:
    """Whether an observation is what was expected: numbers by half of their digits, all else exactly."""
    if isinstance(observed, torch.Tensor) and not isinstance(expected, str):
        wanted = torch.as_tensor(expected, dtype=torch.float64)
        if observed.shape != wanted.shape:
            return False
        digits = DIGITS.get(observed.dtype, 53)
        values = zip(observed.detach().double().reshape(-1).tolist(), wanted.reshape(-1).tolist(), strict=True)
        return all(_near(value, exact, digits) for value, exact in values)
    if isinstance(observed, (tuple, list)) or isinstance(expected, (tuple, list)):
        both = isinstance(observed, (tuple, list)) and isinstance(expected, (tuple, list))
        return both and len(observed) == len(expected) and all(map(same, observed, expected))
    if isinstance(observed, float) and isinstance(expected, (int, float)):
        return _near(observed, float(expected), DIGITS[torch.float64])
    return type(observed) is type(expected) and bool(observed == expected)


def _near(value: float, exact: float, digits: int) -> bool:
    if not math.isfinite(exact) or not math.isfinite(value):
        return value == exact or (math.isnan(value) and math.isnan(exact))
    return abs(value - exact) <= abs(exact) * 2.0 ** -(digits // 2)


def missing(bug: Bug) -> str:
    """Why the bug cannot be observed here; empty if it can."""
    try:
        importlib.metadata.version(bug.package)
    except importlib.metadata.PackageNotFoundError:
        return f"{bug.package} is not installed"
    return next((f"needs {need}" for need in bug.needs if not _offered(need)), "")


def _offered(need: str) -> bool:
    if need == "cuda":
        return torch.cuda.is_available()
    if need == "g++":
        return shutil.which(need) is not None
    cpu = Path("/proc/cpuinfo")
    return cpu.exists() and need in cpu.read_text().split()


def state(bug: Bug) -> tuple[int, str]:
    """The state of a bug as an exit code, and what was seen of it in one line."""
    why = missing(bug)
    if why:
        return NOT_RUN, why
    observed = bug.observed()
    expected = bug.expected() if callable(bug.expected) else bug.expected
    code = FIXED if same(observed, expected) else PRESENT
    return code, f"observed {_format(observed)}" + ("" if code == FIXED else f", expected {_format(expected)}")


def _format(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        value = value.detach().double().tolist()
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_format, value[:6]))}{', ...' if len(value) > 6 else ''}]"
    return str(value)


def document_of(bug: Bug, code: int, line: str, holding: Holding | None) -> dict[str, Any]:
    """The facts of one run, for the command and the page."""
    version = "" if code == NOT_RUN and "installed" in line else importlib.metadata.version(bug.package)
    sight: dict[str, Any] = {"gap": bug.sight.why} if isinstance(bug.sight, Gap) else {"by": bug.sight.title}
    if holding is not None:
        sight |= {"holds": holding.holds, "said": holding.text}
    return {
        "thread": bug.thread, "said_of": bug.said_of, "package": bug.package,
        "version": version.partition("+")[0], "observation": line, "seen": sight,
    }  # fmt: skip


def run(module: str, bug: Bug) -> None:
    """End the process with the state of the bug, where its program was started; imported, it is kept in `KNOWN`."""
    if module != "__main__":
        KNOWN[module] = bug
        return
    torch.set_num_threads(1)
    try:
        code, line = state(bug)
        holding = bug.sight.holds(code) if "--seen" in sys.argv else None
        print(CLAIMED + json.dumps(document_of(bug, code, line, holding)), flush=True)
    except Exception:
        traceback.print_exc()
        code = 1  # without the line that is printed above, 1 is a program that broke
    sys.stdout.flush()
    os._exit(code)  # some of these bugs leave threads behind that would keep the process
