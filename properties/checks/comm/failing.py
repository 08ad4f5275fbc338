"""COMM: ranks that do not make the same calls come to an end, all of them, with an error that tells what each one did.

What this is for: a call that one rank leaves out, or makes in another order, leaves the others waiting for ever where
nothing is promised. So the op is run by ranks of which one goes wrong, in every way in which a program does.

What is hard here: how many calls an op makes, and which, is its own affair. So what goes wrong is before the op or
behind it, and what the error must say of the op's own calls is a pattern.
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
    """What a rank raises that is to go wrong."""


@dataclass(frozen=True)
class _Mistake:
    """What one rank does wrong.

    Attributes:
        name: in a few words.
        run: (comm, the op, whether this rank goes wrong) -> nothing.
        wrong: what the error must say of the rank that goes wrong, a pattern, behind "rank 3 ". others: of each of the
            other ranks.
        raised: whether what the rank raised is the cause of the error.
    """

    name: str
    run: Callable[[Any, Program, bool], Any]
    wrong: str
    others: str
    raised: bool = False

    def of(self, op: Program, wrong: int) -> Program:
        """The program of which one rank goes wrong."""
        return lambda comm: self.run(comm, op, comm.rank == wrong)

    def lacks(self, text: str, wrong: int, size: int) -> list[str]:
        """What the text of the error does not say."""
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


def _differently(usual: dict[str, Any], **other: Any) -> Callable[[Any, Program, bool], None]:
    """A call of the comm that one rank makes differently."""

    def run(comm: Any, op: Program, wrong: bool) -> None:
        name, *given = (usual | other if wrong else usual).values()
        getattr(comm, name)(*given)

    return run


_OP = r"\w+(\[.*?\])?\(\w+\[[\d, ]*\].*?\)"
_REDUCE = {"call": "reduce", "x": torch.ones(2), "root": 0, "reduction": "sum", "tag": "a"}
_SAID = r"waits in call 1, reduce\[a\]\(float32\[2\], root=0, sum\)"
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
    _Mistake(
        "reduces otherwise",
        _differently(_REDUCE, reduction="max"), r"waits in call 1, reduce\[a\]\(float32\[2\], root=0, max\)", _SAID,
    ),
    _Mistake(
        "has another root",
        _differently(_REDUCE, root=1), r"waits in call 1, reduce\[a\]\(float32\[2\], root=1, sum\)", _SAID,
    ),
    _Mistake(
        "says another tag",
        _differently(_REDUCE, tag="b"), r"waits in call 1, reduce\[b\]\(float32\[2\], root=0, sum\)", _SAID,
    ),
    _Mistake(
        "passes another dtype",
        _differently(_REDUCE, x=torch.ones(2).double()), r"waits in call 1, reduce\[a\]\(float64\[2\], root=0, sum\)",
        _SAID,
    ),
    _Mistake(
        "passes another length",
        _differently(_REDUCE, x=torch.ones(3)), r"waits in call 1, reduce\[a\]\(float32\[3\], root=0, sum\)", _SAID,
    ),
    _Mistake(
        "passes another shape",
        _differently(_REDUCE, x=torch.ones(2, 1)), r"waits in call 1, reduce\[a\]\(float32\[2, 1\], root=0, sum\)",
        _SAID,
    ),
)  # fmt: skip


def failing(judge: Judge, ranks: Ranks, size: int, wrong: int, op: Program) -> None:
    """Violation unless every mistake of one rank ends all of them, with an error that tells what each one did.

    Args:
        ranks: what runs them. size: how many. wrong: the rank that makes the mistakes. op: what each rank runs.
    """

    # Of a rank that raises where no other waits, what it raised is all there is to tell; and so of a single one.
    def raising(comm: Any) -> None:
        op(comm)
        if comm.rank == wrong:
            _raise()

    err = _error_of(judge, ranks, size, "raises behind it", raising)
    if not isinstance(err, _WentWrong):
        raise _untold(judge, "raises behind it", err, "what it raised")
    for mistake in _MISTAKES if size > 1 else ():
        err = _error_of(judge, ranks, size, mistake.name, mistake.of(op, wrong))
        if not isinstance(err, RuntimeError):
            raise _untold(judge, mistake.name, err, "RuntimeError")
        for lacking in mistake.lacks(str(err), wrong, size):
            raise _untold(judge, mistake.name, err, f"an error that says {lacking!r}")
        if mistake.raised != isinstance(err.__cause__, _WentWrong):
            raise _untold(judge, mistake.name, err, "what the rank raised as its cause, and nothing else")
        judge.tally.count(1)


def _error_of(judge: Judge, ranks: Ranks, size: int, name: str, program: Program) -> Exception:
    try:
        with judge.tally.clock("op"):
            process.undisturbed(ranks.run, (size, program))
    except Exception as err:
        interrupt.reraise()
        return err
    raise judge.broken(Code.NOT_RAISED, f"no error, need one on all {size} ranks", where=f"where a rank {name}")


def _untold(judge: Judge, name: str, err: Exception, need: str) -> Exception:
    got = f"{type(err).__name__}: {err}"
    return judge.broken(Code.NOT_RAISED, f"got {got[:400]}, need {need}", where=f"where a rank {name}")
