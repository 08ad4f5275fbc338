"""A row of the table of questions: what is asked of an implementation, in words, and of which samples.

Imports neither torch nor a check, so that the table is listed at once.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from ..reference.dtypes import FORMATS

DTYPES = tuple(FORMATS)
#: Questions whose errors are also counted by the magnitude of the operands and by the length of sums.
BINNED = ("FWD", "VJP")
#: The share of large samples in questions about values.
LARGE = 0.08
#: The share of samples with results next to a rounding boundary.
EDGES = 0.04
#: The precedence of a question that has no place among the others.
LAST = 100


class Where(enum.Enum):
    """In which process a property is judged."""

    HERE = "here"  # in the process that gets the question
    PREPARED = "prepared process"  # in processes of their own, in which something was installed first, for good
    WORLD = "world"  # in this process, with the ranks and devices of its world (`worlds`)


@dataclass(frozen=True)
class Sampling:
    """The samples of a question.

    Attributes:
        kind: "ordinary", "integers", "empty", "large", or "sizes", which are large samples of chosen extents.
        large: the share of samples of kind "large" among those of another kind; at least one sample.
        edges: the share of further samples with results next to a rounding boundary; at least one sample.
        most: the largest number of elements of a large sample's tensor.
        ample: whether the first sample has two elements or more along every axis. A cell of one or two samples would
            otherwise have samples of one element each, because the simplest sample always comes first.
        slices: how many further samples of the same structure the check needs for batches.
        others: how many further samples of other structures the check calls the op with, in turn with the sample.
        effort: the number of samples relative to the profile's number.
    """

    kind: str = "ordinary"
    large: float = 0.0
    edges: float = 0.0
    most: int = 70_000
    ample: bool = False
    slices: int = 0
    others: int = 0
    effort: float = 1.0

    def large_of(self, examples: int) -> int:
        """How many of `examples` samples are large: at least one, but none of two or fewer."""
        return max(1, round(self.large * examples)) if self.large and examples > 2 else 0

    def edges_of(self, examples: int) -> int:
        """How many samples besides `examples` have results next to a rounding boundary: one or more, as `large_of`."""
        return max(1, round(self.edges * examples)) if self.edges and examples > 2 else 0


@dataclass(frozen=True)
class Property:
    """One question that can be asked of every op, or of every candidate.

    Attributes:
        code: the name that the command line, the report and the case files use.
        title: the question in a few words, for the report.
        asks: what is done and what must be true then, in whole sentences.
        fault: a mistake that it detects; empty for what is asked of a candidate alone.
        precedence: its place among the questions that a wrong implementation is asked one by one: those in which most
            mistakes show have the lowest numbers, those that take long the highest.
        sampling: the samples of which it is asked. dtypes: the dtypes in which it is asked.
        compiles: whether the check judges paths only (`Judge.hold`), so that it can be asked of compiled code.
        requires: the names in `Promises.without` that an op must offer for the question to be asked.
        interprets: whether it is asked of interpreted kernels, each program of which takes milliseconds.
        where: in which process it is judged.
        no_program: why no failure is written as a program of torch and the implementation alone, in a sentence; empty
            where failures are written so.
    """

    code: str
    title: str
    asks: str
    fault: str = ""
    precedence: int = LAST
    sampling: Sampling = Sampling()
    dtypes: tuple[str, ...] = DTYPES
    compiles: bool = False
    interprets: bool = False
    where: Where = Where.HERE
    requires: tuple[str, ...] = ()
    no_program: str = ""

    def subject_of(self, subject: str) -> str:
        """The implementation that is judged in a cell of that subject.

        A prepared process judges torch's own op with and without its preparation; the cell's subject says which of the
        two processes answers. So the implementation is "torch" in both.
        """
        return "torch" if self.where is Where.PREPARED else subject
