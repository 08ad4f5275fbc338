"""The verdict of a cell that raises, or that leaves the process changed: there is always one.

What this is for: a run has thousands of cells, and no cell must end the run or have an effect on the next.

What is hard here: who is at fault. An exception of the subject is a violation before it comes here. The exceptions that
come here mean that the op's declaration is wrong, that the two readings of a formula contradict each other, or that
this package has a fault; and where the subject has changed the process before, such a fault is the subject's after all.
"""

from __future__ import annotations

import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import replace

from ...oracles import process
from ...oracles.bound.accept import ReadingError
from ...oracles.process import interrupt
from ...oracles.verdicts.verdict import Cell, Code, Failure, Outcome, Verdict, changed_failure, without_requests
from ...oracles.verdicts.violation import Unsupported, error_lines, error_name
from ...reference.exact import PrecisionError
from ..declaring import kinds
from ..table import PROPERTIES

#: The most characters of a traceback's line: the last line is the text of the exception, which may be of any length.
MAX_TRACE = 2_000


def guard(cell: Cell, judge: Callable[[], Verdict]) -> Verdict:
    """The verdict of a cell, whatever the cell does to this process; the process is as before afterwards.

    Raises:
        KeyboardInterrupt: a signal came (or another exception that the caller's signal handler raises). There is no
            verdict then.
    """
    start = time.perf_counter()
    with interrupt.SignalScope(), process.pinned() as pin:
        verdict = _verdict_of(cell, judge)
    # A change may be seen after a sample and again after the cell; the report names it once.
    changed = tuple(dict.fromkeys((*verdict.changed, *pin.changed)))
    if changed and verdict.outcome is Outcome.ERROR and verdict.code is not Code.DECLARATION:
        # In a changed process the framework may raise anywhere, which is no fault of the framework.
        failure = changed_failure(cell.op, (*changed, f"after that, the framework raised: {verdict.reason}"))
        verdict = replace(verdict, outcome=Outcome.FAIL, code=Code.MUTATED, reason=failure.title, failure=failure)
    seconds, question = time.perf_counter() - start, PROPERTIES.get(cell.property)
    return replace(verdict, seconds=seconds, title=question.title if question else "", changed=changed)


def _verdict_of(cell: Cell, judge: Callable[[], Verdict]) -> Verdict:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings of a subject are not judged, and would drown the log
            return judge()
    except Unsupported as answer:
        # Another machine may have the device that this one lacks, so such a cell was not run; that an op is
        # unsupported would be a statement about the op.
        outcome = Outcome.NOT_RUN if answer.code == Code.NO_DEVICE else Outcome.UNSUPPORTED
        return Verdict(cell, outcome, answer.code, str(answer))
    except kinds.DeclarationError as err:
        return Verdict(cell, Outcome.ERROR, Code.DECLARATION, str(err))
    except (ReadingError, PrecisionError) as err:
        return Verdict(cell, Outcome.ERROR, Code.READING, str(err))
    except BaseException as err:
        interrupt.reraise()
        lines = traceback.format_exception(err, limit=-6)[-12:]
        text = without_requests("".join(line[:MAX_TRACE] for line in lines))
        reason = ": ".join([error_name(err), *error_lines(err)[:1]])
        return Verdict(cell, Outcome.ERROR, Code.HARNESS, reason, failure=Failure(Code.HARNESS, reason, text))
