"""A planted fault: a wrong implementation of an op, and the cell that must catch it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from opassay import Cell, Code, Op, Outcome, Settings, Verdict, run_cell
from opassay.properties.catalog.loading import load_op

#: Codes of a wrong value: the usual way to be caught.
WRONG = (Code.VALUE, Code.SPECIAL, Code.BITS)


@dataclasses.dataclass(frozen=True)
class Fault:
    """One fault.

    Attributes:
        op: name of the op. name: the fault in a few words. subject: the faulty implementation; for COMM, of a rank's
            call (comm, *args); or a whole declaration.
        property, dtype: of the cell that must catch it. codes: the verdicts' codes that name the fault's kind.
    """

    op: str
    name: str
    subject: Callable[..., Any] | Op
    property: str
    dtype: str = "float32"
    codes: tuple[Code, ...] = WRONG

    def verdict(self) -> Verdict:
        """The cell's verdict on the faulty implementation, in the commit profile: the first failure of three draws.

        Three of them are a quarter of what `nightly` asks: some faults show on few inputs. The failing sample is not
        made simpler, which takes longer than finding it, and changes neither the outcome nor its code.
        """
        for seed in range(3):
            settings = Settings("commit", seed, simpler=False)
            verdict = judge(self.op, self.subject, self.property, self.dtype, settings)
            if verdict.outcome == Outcome.FAIL:
                break
        return verdict


def judge(op: str, subject: Callable[..., Any] | Op, code: str, dtype: str, settings: Settings) -> Verdict:
    """The verdict of one cell of an op on any implementation of it."""
    if isinstance(subject, Op):
        return run_cell(Cell(op, code, dtype, "cpu", "opassay"), settings, subject)
    declared = load_op(op)
    if code == "COMM":
        declared = declared.changed(ranks=dataclasses.replace(declared.production.ranks, call=subject))
        return run_cell(Cell(op, code, dtype, "cpu", "opassay"), settings, declared)
    declared = dataclasses.replace(declared, subjects={"faulty": subject})
    return run_cell(Cell(op, code, dtype, "cpu", "faulty"), settings, declared)
