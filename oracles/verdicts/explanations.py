"""Reason codes, and the page that says what each means, and what to look at. Standard library only."""

from __future__ import annotations

import enum
import functools
import re
from dataclasses import dataclass
from pathlib import Path

_LINK = re.compile(r"\[([^\]]*)\]\([^)]*\)")


class Code(enum.StrEnum):
    """Reason codes; `opassay explain CODE` tells what each means and what to look at."""

    HELD = "OA100"
    VALUE = "OA101"  # an element outside its accept set
    SPECIAL = "OA102"  # NaN, infinity or overflow where the exact reading has another value
    ATTRIBUTE = "OA103"  # dtype, shape, device, number of outputs
    BITS = "OA104"  # bits differ where they must be equal
    RAISED = "OA105"  # the subject raised on valid input
    NOT_RAISED = "OA106"  # the subject accepted documented invalid input, or raised another error
    MUTATED = "OA107"  # an input, a version counter, memory around a view, or a global changed
    ALIASED = "OA108"  # an output shares memory that the op did not declare
    ADJOINT = "OA109"  # <y, Jv> and <J^T y, v> differ by more than both bounds
    MEMORY = "OA110"  # more saved for backward than declared
    BIAS = "OA111"  # a systematic error far below one bound width
    OUT_OF_BOUNDS = "OA112"  # a kernel touched memory that is no operand's
    RACE = "OA113"  # programs or threads of a kernel touched one address, and no order is decided
    MISALIGNED = "OA114"  # a kernel touched an address that is no multiple of the bytes it touches there
    UNDEFINED = "OA115"  # a result of a kernel depends on memory to which nothing was written
    DIVERGENT = "OA116"  # threads of a warp do not come together to a barrier, or ranks to a collective
    SPREAD = "OA117"  # a NaN or an infinity of an operand reaches more elements than in the spec, or fewer
    PARITY = "OA118"  # two candidates differ: why, and which of them is worse
    FEW_SAMPLES = "OA201"
    MOSTLY_NOT_JUDGED = "OA202"
    REGIME_NOT_JUDGED = "OA203"  # a regime of inputs was drawn, and no element of it could be judged
    VALUE_NOT_MET = "OA204"  # a declared value was in no sample, or nothing of the samples with it could be judged
    NOT_DIFFERENTIABLE = "OA301"
    DTYPE_OUTSIDE = "OA302"
    NO_SUBJECT = "OA303"
    NOT_APPLICABLE = "OA304"
    REFUSED = "OA305"  # the subject documents that it does not take this, and raised a clear error
    OPCODE = "OA306"  # an instruction of a compiled kernel that no meaning is built for
    NO_DEVICE = "OA401"
    INTERRUPTED = "OA402"
    DESELECTED = "OA403"
    NOT_BUILT = "OA404"
    RETIRED = "OA405"  # the op ended its process too often; its other cells were not asked
    CRASHED = "OA501"
    TIMED_OUT = "OA502"
    HARNESS = "OA503"
    READING = "OA504"  # two readings of one formula contradict each other
    DECLARATION = "OA505"  # the declaration of the op is wrong: it does not say what it has to


@dataclass(frozen=True)
class Explanation:
    """A code in words: what it is called, what it means, and what usually causes it and is to be looked at."""

    title: str
    meaning: str
    look_at: str


class Page:
    """A page of docs/, of which the package has a copy: its sections, and the rows of its tables, without links."""

    def __init__(self, path: Path) -> None:
        self._text = _LINK.sub(r"\1", path.read_text(encoding="utf-8"))

    @functools.cached_property
    def sections(self) -> dict[str, str]:
        """The words of each headline of the third level -> the text below it."""
        entries = (entry.partition("\n") for entry in re.split(r"^### ", self._text, flags=re.MULTILINE)[1:])
        return {words.strip(): re.split(r"^## ", text, flags=re.MULTILINE)[0].strip() for words, _, text in entries}

    def rows(self, headline: str, column: int = 1) -> dict[str, str]:
        """The names in the first column of the table below a headline -> the text of a column, which may be empty."""
        part = self._text.partition(f"\n## {headline}\n")[2].partition("\n## ")[0]
        cells = (line[2:-2].split(" | ") for line in part.splitlines() if line.startswith("| `"))
        return {each[0].strip("`"): each[column] for each in cells}


@functools.cache
def outcomes_page() -> Page:
    """The page of outcomes, reason codes, severities and subjects."""
    return Page(Path(__file__).with_name("outcomes.md"))


@functools.cache
def explanation_of(code: Code) -> Explanation:
    """What a code means, as the page of outcomes says it."""
    head, *texts = (" ".join(part.split()) for part in outcomes_page().sections[code].split("\n\n"))
    return Explanation(head.split("**")[1], texts[0], texts[1].removeprefix("Look at: "))
