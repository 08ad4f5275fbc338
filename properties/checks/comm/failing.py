"""COMM: where ranks do not make the same calls, all of them end, with an error that says what each rank did.

What this is for: if one rank leaves a call out, or makes its calls in another order, the other ranks may wait for ever.
So the op is run by ranks of which one makes a mistake, each mistake that a program can make in turn.

What is hard here: each op decides how many calls it makes, and which. So the mistake is made before or after the op,
and the text about the op's own calls is compared with a pattern.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ....oracles import process
from ....oracles.judge.judge import Judge
from ....oracles.op.placement import Ranks
from ....oracles.process import interrupt
from ....oracles.verdicts.verdict import Code

#: A program of a rank.
Program = Callable[[Any], Any]


class _WentWrong(Exception):
    """The exception of the rank that makes the mistake."""


@dataclass(frozen=True)
class _Mistake:
    """A mistake of one rank.

    Attributes:
        name: the mistake in a few words.
        run: (comm, the op, whether this rank makes the mistake) -> None.
        wrong: a pattern that the error's text must have behind "rank 3 " about the rank that makes the mistake.
        others: the same about each of the other ranks.
        raised: whether the rank raises an exception, which must be the cause of the error.
    """

    name: str
    run: Callable[[Any, Program, bool], Any]
    wrong: str
    others: str
    raised: bool = False

    def of(self, op: Program, wrong: int) -> Program:
        """The program of the ranks, of which rank `wrong` makes the mistake."""
        return lambda comm: self.run(comm, op, comm.rank == wrong)

    def lacks(self, text: str, wrong: int, size: int) -> list[str]:
        """The patterns that the text of the error does not match."""
        need = [f"rank {rank} {self.wrong if rank == wrong else self.others}(;|$)" for rank in range(size)]
        return [pattern for pattern in need if not re.search(pattern, text)]


def _raise() -> None:
    raise _WentWrong("on purpose")


def _leaves_it_out(comm: Any, op: Program, wrong: bool) -> None:
    if not wrong:
        op(comm)


def _raises_before(comm: Any, op: Program, wrong: bool) -> None:
    if wrong:
        _raise()
    op(comm)


def _calls_before(comm: Any, op: Program, wrong: bool) -> None:
    if wrong:
        comm.barrier("alone")
    op(comm)


def _calls_behind(comm: Any, op: Program, wrong: bool) -> None:
    op(comm)
    if wrong:
        comm.barrier("alone")


def _raises_behind(comm: Any, op: Program, wrong: bool) -> None:
    op(comm)
    if wrong:
        _raise()
    comm.barrier("behind")


_OP = r"\w+(\[.*?\])?\(\w+\[[\d, ]*\].*?\)"
_REDUCE: dict[str, Any] = {"call": "reduce", "x": torch.ones(2), "root": 0, "reduction": "sum", "tag": "a"}


def _otherwise(name: str, words: str, **other: Any) -> _Mistake:
    """One rank makes a call of its comm with other arguments than the others, of which the error says `words`."""

    def run(comm: Any, op: Program, wrong: bool) -> None:
        method, *arguments = (_REDUCE | other if wrong else _REDUCE).values()
        getattr(comm, method)(*arguments)

    usual, words = (f"waits in call 1, {re.escape(each)}" for each in ("reduce[a](float32[2], root=0, sum)", words))
    return _Mistake(name, run, words, usual)


_MISTAKES = (
    _Mistake("leaves it out", _leaves_it_out, "has returned after call 0", f"waits in call 1, {_OP}"),
    _Mistake(
        "raises before it", _raises_before,
        "raised _WentWrong: on purpose after call 0", f"waits in call 1, {_OP}", raised=True,
    ),
    _Mistake(
        "makes another call before it",
        _calls_before, r"waits in call 1, barrier\[alone\]\(float32\[\]\)", f"waits in call 1, {_OP}",
    ),
    _Mistake(
        "makes another call behind it",
        _calls_behind,
        r"waits in call \d+, barrier\[alone\]\(float32\[\]\)", rf"has returned after call [1-9]\d*, {_OP}",
    ),
    _Mistake(
        "raises behind it",
        _raises_behind, rf"raised _WentWrong: on purpose after call [1-9]\d*, {_OP}",
        r"waits in call ([2-9]|\d\d+), barrier\[behind\]\(float32\[\]\)", True,
    ),
    _otherwise("reduces otherwise", "reduce[a](float32[2], root=0, max)", reduction="max"),
    _otherwise("has another root", "reduce[a](float32[2], root=1, sum)", root=1),
    _otherwise("says another tag", "reduce[b](float32[2], root=0, sum)", tag="b"),
    _otherwise("passes another dtype", "reduce[a](float64[2], root=0, sum)", x=torch.ones(2).double()),
    _otherwise("passes another length", "reduce[a](float32[3], root=0, sum)", x=torch.ones(3)),
    _otherwise("passes another shape", "reduce[a](float32[2, 1], root=0, sum)", x=torch.ones(2, 1)),
)  # fmt: skip


def check_failures(judge: Judge, ranks: Ranks, size: int, wrong: int, op: Program) -> None:
    """Violation unless every mistake of one rank ends all ranks, with an error that says what each rank did.

    Args:
        ranks: runs the program. size: how many ranks. wrong: the rank that makes the mistakes. op: the program.
    """

    # Where a rank raises and no other rank waits for it, the error must be the rank's own exception.
    def raising(comm: Any) -> None:
        op(comm)
        if comm.rank == wrong:
            _raise()

    err = _error_of(judge, ranks, size, "raises behind it", raising)
    if not isinstance(err, _WentWrong):
        raise _violation(judge, "raises behind it", err, "what it raised")
    for mistake in _MISTAKES if size > 1 else ():
        err = _error_of(judge, ranks, size, mistake.name, mistake.of(op, wrong))
        if not isinstance(err, RuntimeError):
            raise _violation(judge, mistake.name, err, "RuntimeError")
        for lacking in mistake.lacks(str(err), wrong, size):
            raise _violation(judge, mistake.name, err, f"an error that says {lacking!r}")
        if mistake.raised != isinstance(err.__cause__, _WentWrong):
            raise _violation(judge, mistake.name, err, "what the rank raised as its cause, and nothing else")
        judge.tally.count(1)


def _error_of(judge: Judge, ranks: Ranks, size: int, name: str, program: Program) -> Exception:
    try:
        with judge.tally.clock("op"):
            process.undisturbed(ranks.run, (size, program))
    except Exception as err:
        interrupt.reraise()
        return err
    raise judge.violation(Code.NOT_RAISED, f"no error, need one on all {size} ranks", where=f"where a rank {name}")


def _violation(judge: Judge, name: str, err: Exception, need: str) -> Exception:
    got = f"{type(err).__name__}: {err}"
    return judge.violation(Code.NOT_RAISED, f"got {got[:400]}, need {need}", where=f"where a rank {name}")
