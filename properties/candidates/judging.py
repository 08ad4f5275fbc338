"""`judge`: all questions about one candidate, and the judgement that their answers make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.terms import Terms, terms
from ...oracles.verdicts.verdict import Code
from .arguments import CallArguments, copied_state
from .asking import ASKING
from .conformance import DEFAULT
from .finding import Finding, not_asked, wrong
from .host.calls import GoneError
from .host.host import CandidateHost
from .judgement import Assignment, Judgement, Ruling, ruling
from .precision import arithmetic
from .questions import QUESTIONS
from .row_sample import part_of
from .session import Session
from .specification import SpecError, specification

#: (code of the question that comes next, how many were asked, how many there are) -> None.
Progress = Callable[[str, int, int], None]


def judge(
    candidate: Callable[..., Any],
    spec: Any,
    inputs: Any,
    *,
    contract: str | Terms = DEFAULT,
    seed: int = 0,
    questions: Sequence[str] = (),
) -> Judgement:
    """Judge a candidate in this process, by a spec.

    Args:
        candidate: a function or a module; a module's parameters and buffers of the names and shapes of the spec's are
            set to those, and set back in the end.
        spec: as for `bound`.
        inputs: the arguments of one call, or (seed) -> arguments.
        contract: as for `bound`. seed: of everything that is drawn.
        questions: codes of `questions.QUESTIONS`; all by default.

    Raises:
        TypeError: `inputs` is a tensor. ValueError: a code or a contract that is none, or a negative seed.
    """
    if seed < 0:
        raise ValueError(f"seed={seed}: need a whole number from 0 on")
    allowed = terms(contract)
    if isinstance(inputs, torch.Tensor):
        raise TypeError(f"inputs: got a tensor of shape {tuple(inputs.shape)}, need the arguments of a call, as (x,)")
    read_spec = specification(spec)
    draw = inputs if callable(inputs) else None
    arguments = CallArguments.of(draw(seed) if draw is not None else inputs)
    host = CandidateHost(str(getattr(candidate, "__name__", type(candidate).__name__)), candidate)
    before = copied_state(host.state)
    session = Session(read_spec, host, allowed, seed, arguments, draw, part_of(read_spec, arguments, allowed))
    try:
        return judged(session, questions)
    finally:
        host.set_state(before)


def judged(session: Session, questions: Sequence[str] = (), progress: Progress | None = None) -> Judgement:
    """Ask a session's questions, in the table's order.

    Args:
        session: what is judged. questions: codes; all by default. progress: told before each question.

    Raises:
        ValueError: a code that is none.
    """
    unknown = [code for code in questions if code not in QUESTIONS]
    if unknown:
        raise ValueError(f"questions: got {unknown[0]!r}, need codes of {', '.join(QUESTIONS)}")
    codes = [code for code in QUESTIONS if not questions or code in questions]
    findings: list[Finding] = []
    error, start = "", time.monotonic()
    for number, code in enumerate(codes):
        if progress is not None:
            progress(code, number, len(codes))
        try:
            findings.append(ASKING[code](session))
        except SpecError as err:
            # Hostile inputs may be outside of what the spec takes; that it cannot be read at the given ones is said.
            if code == "GIVEN":
                error = str(err)
                break
            findings.append(not_asked(code, str(err)))
        except ReadingError as err:
            error = f"{code}: {err}"
            break
        except GoneError as err:
            text = "the candidate did not answer" if err.timed_out else "the candidate's process has ended"
            findings.append(wrong(code, Code.TIMED_OUT if err.timed_out else Code.CRASHED, f"{text}: {err}"))
            findings += [] if code == "LEFT" else [ASKING["LEFT"](session)]
            break
    misread = "" if error else _misread(session)
    if misread:
        error, findings = misread, []  # What was held against such bounds says nothing.
    weaknesses = [] if error else session.records.weaknesses(findings)
    name, words = ("", "") if error else arithmetic(session)
    verdict = Ruling.ERROR if error else ruling(findings, weaknesses)
    names = session.candidate.name, session.spec.name, str(session.terms)
    of = Assignment(*names, session.seed, session.given.dtype)
    return Judgement(
        of, verdict, tuple(findings), tuple(weaknesses), words, name, error, session.records.coverage(),
        time.monotonic() - start,
    )  # fmt: skip


def _misread(session: Session) -> str:
    """Why the spec was not read as what it is; empty where it was, or where the questions have told that already."""
    try:
        return session.disagreement()
    except (SpecError, ReadingError):
        return ""
