"""How a check ends early: a promise was broken, or the question does not apply; and the texts of subjects' errors."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..bound.accept import Edges
from ..op.declaration import Sample
from ..op.script import Telling
from .cleaning import error_name as error_name
from .cleaning import said as said
from .cleaning import text_of
from .verdict import Code, Worst

#: The exceptions by which functions of torch and NumPy refuse arguments; NotImplementedError is a RuntimeError. Another
#: one, of an assertion or of a missing attribute, is a fault of the function.
REFUSALS = (TypeError, ValueError, IndexError, RuntimeError)


@dataclass(frozen=True)
class Fault:
    """One element outside its accept set.

    Attributes:
        output: which output it is in. index: where in that output.
        exact: its exact value, decimal. edges: the least and the largest number that would have been accepted.
    """

    output: int
    index: tuple[int, ...]
    exact: str
    edges: Edges


class Violation(AssertionError):
    """A broken promise of the subject.

    Attributes:
        fault: the wrong element, where one element tells what is wrong. worst: the same, as the report says it.
        sample: the input that showed it, where that is not the one that the check was given.
        once: whether it is enough to be seen once: what depends on earlier calls need not come again.
        allowance: says what a declaration would have to allow so that this were accepted, "" if there is nothing. It is
            a function because that takes further readings, which only the failure that is told is worth.
        script: tells the lines of a program that shows the failure again; None where the check knows none.
    """

    sample: Sample | None = None
    once = False
    allowance: Callable[[], str] | None = None
    script: Telling | None = None

    def __init__(
        self, code: Code, title: str, lines: Sequence[str] = (), path: str = "",
        *, fault: Fault | None = None, worst: Worst | None = None,
    ) -> None:  # fmt: skip
        """
        Args:
            code, title: what is broken, as a code and in a sentence. lines: details, one a line.
            path: the name of the path that showed it.
            fault, worst: see the attributes.
        """
        super().__init__(title)
        self.code, self.title, self.path, self.fault, self.worst = code, title, path, fault, worst
        self.message = "\n".join([title, *(f"  {line}" for line in lines)])

    def showing(self, script: Telling | None) -> Violation:
        """This violation, with what tells the lines of a program that shows it, if anything does."""
        self.script = script
        return self


#: Errors over their bounds from which on a failure is of the next class: what lies near a bound may be another fault
#: than what is wrong by orders of magnitude.
_CLASSES = (4.0, 1024.0, math.inf)
#: What of a path's name belongs to the sample and not to the path: numbers, and which arguments were batched.
_OF_THE_SAMPLE = re.compile(r"(in|out)_dims=\([^)]*\)|\d+(\.\d+)?(e[+-]?\d+)?")


def kind_of(violation: Violation) -> tuple[object, ...]:
    """What tells a failure from those of other causes: the promise, the path, the output, and what was raised."""
    return (*_kind_of_failure(violation), error_of(violation))


def shape_of(path: str) -> str:
    """A path's name without what belongs to the sample."""
    return _OF_THE_SAMPLE.sub("", path).strip()


def error_of(violation: Violation) -> str:
    """The type and the first line of what the subject raised, without numbers; empty where it raised nothing."""
    error = violation.__cause__
    if violation.code is not Code.RAISED or error is None:
        return ""
    lines = [line.strip() for line in said(error) if line.strip()]
    # An error that stands for another one, as that of a compiler's backend does, tells it in its second line.
    if len(lines) > 1 and lines[0].endswith(" raised:"):
        return _OF_THE_SAMPLE.sub("#", lines[1])[:300]
    line = lines[0] if lines else ""
    return _OF_THE_SAMPLE.sub("#", f"{error_name(error)}: {line}")[:300]


def same_failure(first: Violation, other: Violation) -> bool:
    """Whether a simpler sample fails as the first one did: the same promise, path and output, and as grossly."""
    return _kind_of_failure(first) == _kind_of_failure(other) and _magnitude(other) >= _magnitude(first)


def _kind_of_failure(violation: Violation) -> tuple[object, ...]:
    output = None if violation.fault is None else violation.fault.output
    return violation.code, shape_of(violation.path), output


def _magnitude(violation: Violation) -> int:
    """The class of how far beyond its bound the worst element is; the highest where it has no number."""
    ratio = math.inf if violation.worst is None else violation.worst.ratio
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
    """The violation that a subject's exception on valid input is, also one that asks to end the process."""
    return Violation(Code.RAISED, f"{op} {what}: raised {error_name(err)} on valid input", said(err), what)


#: What torch says where an assumption of its own is broken: such an error is a fault, whatever it was asked.
_INTERNAL = re.compile(r"INTERNAL ASSERT|please report a bug|out of memory", re.IGNORECASE)


def clear(err: BaseException) -> bool:
    """Whether an error says something, and something else than that an assumption of the implementation is broken."""
    text = text_of(err).strip()
    return bool(text) and _INTERNAL.search(text) is None
