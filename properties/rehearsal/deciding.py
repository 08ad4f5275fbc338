"""In which way the kernels of a candidate run, as the options of a command say; and whether they run again in another.

What this is for: whether a file's host code asks for a GPU is known when it was judged without one.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from typing import Any

from ...oracles.verdicts.verdict import Code
from ...reference.distributions import require_part
from .building import BuildError
from .environment import is_rehearsed, start_again

#: Letters of an exception that a reason has at most.
_LONG = 200


def settle_way(options: dict[str, Any]) -> str:
    """Settle the way, in the options; what is wrong with them, in a sentence, empty for nothing.

    Where they say so, this process becomes its command again, and rehearses. One that does has "rehearsed" in its
    options, its kernels are compiled, and its device is CUDA's.

    Args:
        options: of `opassay judge`, by name; another candidate may rehearse, wherever this one is.

    Raises:
        AbsentError: what executes kernels without a GPU is not installed.
    """
    ways = [f"--{name}" for name in ("interpret", "compiled") if options[name]]
    device, second = options["device"], " on rehearsal" in (options["beside"] or "")
    rehearses = second or device == "rehearsal"
    if ways:
        require_part("machine")
    if len(ways) > 1:
        return "--compiled: got --interpret, too; kernels run in one way"
    if ways and (device == "cuda" or (rehearses and options["interpret"])):
        return f"--device: got {device}, and {ways[0]}, too, which takes the CPU"
    ways += ["--device rehearsal"] * rehearses
    if options["timed"] and ways:
        of = "the interpreter's times" if options["interpret"] else "times of executed PTX"
        return f"--time: got {ways[0]}, too; {of} say nothing"
    options["rehearsed"] = is_rehearsed() and (options["compiled"] or rehearses)
    if options["rehearsed"]:
        options |= {"compiled": True, "device": device if second and device != "rehearsal" else "cuda"}
    elif rehearses:
        if "torch" in sys.modules:
            return "--device: got rehearsal in a process that has imported torch, need another"
        try:
            start_again()
        except BuildError as err:
            return str(err)
    return ""


def rehearse_instead(judge: Callable[[], Any]) -> Any:
    """A judgement; where a GPU would have made another of it, this process becomes its command again, and rehearses.

    Args:
        judge: makes it.

    Raises:
        ValueError: as `judge` does where a file raised.
    """
    try:
        judgement = judge()
    except ValueError as err:
        _start_for(_wish_in(str(err)))
        raise
    _start_for(_wish_in(str(judgement)) or _difference(judgement))
    return judgement


def _start_for(reason: str) -> None:
    if reason and not is_rehearsed():
        with contextlib.suppress(BuildError):  # what was said names the device, whose own command says what it lacks
            start_again(reason)


def _wish_in(text: str) -> str:
    """What asks for a GPU, by a judgement or by a mistake in a file; empty if nothing does."""
    from ...oracles.machine.limits import ASKS  # which imports torch

    _, asks, why = text.partition(f"{ASKS}: ")
    return f"asks for a GPU: {why.splitlines()[0].partition('; judge it')[0]}" if asks else ""


def _difference(judgement: Any) -> str:
    """What a candidate did that its host code may have done for want of a GPU; empty for nothing."""
    codes = {str(cause.wrong and cause.wrong.code) for cause in judgement.causes}
    if codes == {Code.RAISED}:
        return f"raises without a GPU: {judgement.causes[0].text.splitlines()[0][:_LONG]}"
    return "" if codes or judgement.error or judgement.execution else "launches no kernel without a GPU"
