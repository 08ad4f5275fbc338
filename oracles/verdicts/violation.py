"""Exceptions that end a check: a promise is broken, or the question does not apply; and texts of subjects' errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..bound.accept import Edges
from ..op.declaration import Sample
from ..op.script import ScriptMaker
from .cleaning import error_lines as error_lines
from .cleaning import error_name as error_name
from .cleaning import text_of
from .verdict import Code as Code
from .verdict import Worst

#: The exceptions by which functions of torch and NumPy refuse arguments; NotImplementedError is a RuntimeError. Another
#: one, of an assertion or of a missing attribute, is a fault of the function.
REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Outlier:
    """The worst of the elements of an output that are outside their accept sets, and where all of them lie.

    Attributes:
        output, number: its name, and which of the outputs it is. index: of the worst element.
        worst: that element as a report shows it.
        bound, edges: the largest error that is accepted there, and the least and the largest number.
        outside, elements: how many elements are outside, of how many.
        box: the first and the last index of these elements along every axis.
        place, relation: where they lie and how they go with the right values, in words; empty where nothing short is
            true of all.
        share: the largest error as a share of the largest exact element; infinite where one of both is not finite.
    """

    output: str
    number: int
    index: tuple[int, ...]
    worst: Worst
    bound: float
    edges: Edges
    outside: int
    elements: int
    box: tuple[tuple[int, int], ...]
    place: str
    relation: str
    share: float

    @property
    def computed(self) -> float:
        return float.fromhex(self.worst.computed)

    @property
    def exact(self) -> float:
        return float(self.worst.exact)

    @property
    def ratio(self) -> float:
        return self.worst.ratio


class Violation(AssertionError):
    """A broken promise of the subject; its text is the card.

    Attributes:
        code, title, lines, path: see `__init__`. outlier: what is outside, where the violation is about elements.
        sample: the input that showed the violation, where it is not the sample that the check began with.
        once: whether one observation is enough, because a violation that depends on earlier calls may not come again.
        allowance: () -> what a declaration would have to allow so that the outputs were accepted, "" if nothing does.
            It is a function because it takes further readings, which are made for a failure that is reported alone.
        make_script: makes the lines of a program that shows the failure again; None where the check has no program.
    """

    sample: Sample | None = None
    once = False
    allowance: Callable[[], str] | None = None
    make_script: ScriptMaker | None = None

    def __init__(
        self, code: Code, title: str, lines: Sequence[str] = (), path: str = "", outlier: Outlier | None = None
    ) -> None:
        """
        Args:
            code, title: what is broken, as a code and in a sentence. lines: details, one a line.
            path: the name of the path that showed it.
            outlier: see the attributes.
        """
        super().__init__(title)
        self.code, self.title, self.lines, self.path = code, title, tuple(lines), path
        self.outlier = outlier
        self.message = "\n".join([title, *(f"  {line}" for line in lines)])

    def __str__(self) -> str:
        return self.message

    @property
    def worst(self) -> Worst | None:
        return None if self.outlier is None else self.outlier.worst

    def with_lines(self, *lines: str) -> Violation:
        """A violation of the same with more lines at its end."""
        return Violation(self.code, self.title, (*self.lines, *lines), self.path, self.outlier)

    def showing(self, make_script: ScriptMaker | None) -> Violation:
        """This violation with `make_script`, which makes the lines of a program that shows it; None for no program."""
        self.make_script = make_script
        return self


#: Ratios of error and bound at which the classes of failures begin: an error near its bound may have another cause than
#: an error that is larger by orders of magnitude.
_CLASSES = (4.0, 1024.0, math.inf)
#: The parts of a path's name that belong to the sample and not to the path: numbers, and which arguments were batched.
_OF_THE_SAMPLE = re.compile(r"(in|out)_dims=\([^)]*\)|#?\d+(\.\d+)?(e[+-]?\d+)?")


def kind_of(violation: Violation) -> tuple[object, ...]:
    """The key by which failures of one cause are equal: the promise, the path, the output, and the exception."""
    return (*_kind_of_failure(violation), error_of(violation))


def shape_of(path: str) -> str:
    """A path's name without what belongs to the sample."""
    return _OF_THE_SAMPLE.sub("", path).strip()


def error_of(violation: Violation) -> str:
    """The type and the first line of what the subject raised, without numbers; empty where it raised nothing."""
    error = violation.__cause__
    if violation.code is not Code.RAISED or error is None:
        return ""
    lines = [line.strip() for line in error_lines(error) if line.strip()]
    # An error that wraps another one, as torch does with an error of a compiler's backend, names it in its second line.
    if len(lines) > 1 and lines[0].endswith(" raised:"):
        return _OF_THE_SAMPLE.sub("#", lines[1])[:300]
    line = lines[0] if lines else ""
    return _OF_THE_SAMPLE.sub("#", f"{error_name(error)}: {line}")[:300]


def same_failure(first: Violation, other: Violation) -> bool:
    """Whether a simpler sample fails as the first one did: the same promise, path and output, and as grossly."""
    return _kind_of_failure(first) == _kind_of_failure(other) and _magnitude(other) >= _magnitude(first)


def _kind_of_failure(violation: Violation) -> tuple[object, ...]:
    output = None if violation.outlier is None else violation.outlier.number
    return violation.code, shape_of(violation.path), output


def _magnitude(violation: Violation) -> int:
    """The class of how far beyond its bound the worst element is; the highest where it has no number."""
    ratio = math.inf if violation.outlier is None else violation.outlier.ratio
    return len(_CLASSES) if math.isnan(ratio) else sum(ratio >= least for least in _CLASSES)


class ChangedState(Violation):
    """The subject changed the state of the process; a setter may fire once."""

    once = True

    def __init__(self, op: str, lines: Sequence[str]) -> None:
        super().__init__(Code.MUTATED, f"{op}: changed the process: {lines[0]}", lines, "forward + vjp")


class Unsupported(Exception):
    """The question does not apply to this op, dtype or subject; the text says why."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def raised(op: str, err: BaseException, what: str) -> Violation:
    """The violation of a subject that raises on valid input, also of one that raises SystemExit."""
    return Violation(Code.RAISED, f"{op} {what}: raised {error_name(err)} on valid input", error_lines(err), what)


#: Texts of errors by which torch says that an assumption of its own is broken: a fault of torch on any input.
_INTERNAL = re.compile(r"INTERNAL ASSERT|please report a bug|out of memory", re.IGNORECASE)


def clear(err: BaseException) -> bool:
    """Whether an error has a text, and not one that reports a broken assumption of the implementation itself."""
    text = text_of(err).strip()
    return bool(text) and _INTERNAL.search(text) is None
