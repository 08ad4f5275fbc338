"""A candidate's file judged by a spec's file, the candidate in a process of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

from ...oracles.machine.allocator import keep_freed_memory
from ...oracles.terms import Terms, TermsError, terms
from ...oracles.verdict import Code
from ..places.process import Process
from .arguments import Arguments
from .candidates.apart import CandidateApart, CandidateError
from .candidates.copying import process_copied
from .candidates.files import GivenError, problem_of
from .finding import wrong
from .judgement import Judgement, Ruling
from .judging import Progress, judged, undecided
from .session import Session
from .specification import SpecError, specification

#: Seconds that the loading of a candidate, and each call of it, may take; and GiB of memory.
SECONDS, MEMORY = 60.0, 16.0


def judge_file(
    candidate: str,
    spec: str,
    *,
    contract: str | Terms,
    seed: int = 0,
    seconds: float = SECONDS,
    memory: float = MEMORY,
    given: Mapping[str, Any] | None = None,
    interpret: bool = False,
    questions: Sequence[str] = (),
    progress: Progress | None = None,
    alone: bool = False,
) -> Judgement:
    """Judge the candidate of a file, in a process apart, by the spec of another file, which is read here.

    Args:
        candidate, spec: files, or pairs `module:name`.
        contract, seed: as for `judge`. seconds, memory: limits of the candidate; GiB, 0 for none.
        given: arguments of what gives the inputs, by name. interpret: whether the candidate's Triton kernels are run by
            Triton's interpreter, which needs no GPU.
        questions: codes of `questions.QUESTIONS`; all by default. progress: told before each question.
        alone: whether this process does nothing else, so that it may keep the memory that it frees, and be copied.

    Raises:
        GivenError: a file is not there, or lacks a name, or that of the spec raised; or `contract` names no terms.
    """
    try:
        allowed = terms(contract)
    except TermsError as err:
        raise GivenError(str(err)) from err
    limit = int(memory * 2**30)
    with contextlib.ExitStack() as stack:
        copied: Process | None = None
        if alone:
            keep_freed_memory()
            # Before the spec is read, because a candidate must find nothing of it in its process.
            copied = None if interpret else process_copied(limit)
            if copied is not None:
                stack.callback(copied.close)
        problem = problem_of(spec, seed, given)
        try:
            read = specification(problem.spec)
            arguments = Arguments.of(problem.draw(seed))
            session = Session(read, _Nobody(candidate), allowed, seed, arguments, problem.draw)
            session.cut()
            # Before the candidate runs, because a spec that cannot be read says nothing of any candidate.
            few = arguments if session.part is None else session.part.of(arguments, [0])
            read.read(few, read.state, allowed)
        except SpecError as err:
            return undecided(spec, str(allowed), seed, str(err), candidate)
        try:
            apart = CandidateApart(candidate, problem.made, seed, seconds, limit, [problem.path], interpret, copied)
        except CandidateError as err:
            return _unloaded(session, str(err))
        stack.enter_context(apart)
        session.candidate, session.made, session.left = apart, apart.changed, apart.left_behind
        return judged(session, questions, progress)


class _Nobody:
    """Stands for a candidate that has not been loaded."""

    def __init__(self, name: str) -> None:
        self.name, self.shapes = name, dict[str, tuple[int, ...]]()

    def ask(self, call: Any) -> Any:
        raise AssertionError("asked before it was loaded")

    def fetch(self, rows: Sequence[int], earlier: bool = False) -> Any:
        raise AssertionError("asked before it was loaded")


def _unloaded(session: Session, text: str) -> Judgement:
    first, *more = text.splitlines() or [""]
    finding = wrong("PROCESS", Code.RAISED, f"the candidate could not be made: {first}", *more)
    return Judgement(
        Ruling.REJECTED, session.candidate.name, session.spec.name, str(session.terms), session.seed, (finding,)
    )
