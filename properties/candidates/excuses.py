"""Rejections that are not valid, because something other than the candidate explains all faults that were found.

What is hard here: a candidate that ends its process, or is late, is rejected. From outside this looks the same as a
process that the system ended, or that runs another version of this package than its judge. So facts about the machine
are compared before and after.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ...oracles.verdicts.verdict import Code
from ..engine.environment import digest_sources
from .host.quarters import Confinement
from .judgement import Judgement, Ruling

#: Where Linux counts what has happened to memory, and the name of the count of processes that it ended for want of it.
_COUNTS, _ENDED = Path("/proc/vmstat"), "oom_kill"
#: The files of this package when this process loaded its own: what they have, because a candidate can change times.
_SOURCES = digest_sources()
#: What is said where they are others now.
CHANGED = "files of opassay have changed since this judge began"


def ended_for_memory() -> int:
    """How many processes the system has ended for want of memory since it began; 0 where it does not say."""
    try:
        words = [line.split() for line in _COUNTS.read_text().splitlines()]
    except OSError:
        return 0
    return sum(int(count) for name, count in words if name == _ENDED)


def have_sources_changed() -> bool:
    """Whether the files of this package have other contents than when this process began."""
    return digest_sources() != _SOURCES


def excuse(judgement: Judgement, confinement: Confinement, before: int) -> Judgement:
    """A judgement; without a verdict where something else explains all that it holds against the candidate.

    Args:
        judgement: of a candidate in a process of its own. confinement: of that.
        before: `ended_for_memory` before the candidate was asked anything.
    """
    why = _other_cause(judgement, confinement, before) if judgement.verdict is Ruling.REJECTED else ""
    return replace(judgement, verdict=Ruling.ERROR, error=why) if why else judgement


def _other_cause(judgement: Judgement, confinement: Confinement, before: int) -> str:
    causes = judgement.causes
    codes, text = {cause.wrong.code for cause in causes if cause.wrong is not None}, causes[0].text
    # A file of this package that the candidate may have written is told by PURE:left.
    if all(cause.question != "PURE:left" for cause in causes) and have_sources_changed():
        return f"{text}; {CHANGED}, so that its processes may have loaded different versions: start it again"
    if codes == {Code.CRASHED} and "killed by SIGKILL" in text and ended_for_memory() > before:
        return f"{text}; meanwhile the system ended processes because it was out of memory"
    if codes == {Code.TIMED_OUT} and confinement.compiled:
        # PTX takes a thousand times as long here as on a GPU, so that its time says nothing of the candidate.
        return f"{text}; PTX is executed slowly: take smaller inputs, or more --seconds"
    return ""
