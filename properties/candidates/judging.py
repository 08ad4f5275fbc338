"""`judge`: all questions about one candidate, and the judgement that their answers make."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms, terms
from ...oracles.verdicts.verdict import Code
from .arguments import CallArguments, copied_state
from .asking import ASKING
from .conformance import DEFAULT
from .finding import Finding, not_asked, wrong
from .host.calls import GoneError
from .host.host import CandidateHost
from .judgement import Assignment, Covered, Judgement, Ruling, ruling
from .precision import arithmetic
from .questions import OF_DATA, QUESTIONS, Standing
from .session import Session
from .specification import SpecError, Specification, specification

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
    session = Session(read_spec, host, allowed, seed, arguments, draw)
    try:
        session.cut()
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
            findings.append(_gone(code, err))
            findings += [] if code == "LEFT" else [ASKING["LEFT"](session)]
            break
    misread = "" if error else _misread(session)
    if misread:
        error, findings = misread, []  # What was held against such bounds says nothing.
    weaknesses = [] if error else _weaknesses(session, findings)
    name, words = ("", "") if error else arithmetic(session)
    verdict = Ruling.ERROR if error else ruling(findings, weaknesses)
    return Judgement(
        session.assignment(), verdict, tuple(findings), tuple(weaknesses), words, name, error, _coverage(session),
        time.monotonic() - start,
    )  # fmt: skip


def _misread(session: Session) -> str:
    """Why the spec was not read as what it is; empty where it was, or where the questions have told that already."""
    try:
        return session.disagreement()
    except (SpecError, ReadingError):
        return ""


def _gone(code: str, err: GoneError) -> Finding:
    if err.timed_out:
        return wrong(code, Code.TIMED_OUT, f"the candidate did not answer: {err}")
    return wrong(code, Code.CRASHED, f"the candidate's process has ended: {err}")


def _weaknesses(session: Session, findings: Sequence[Finding]) -> list[str]:
    """Why what was asked says little."""
    texts = []
    for i, name in enumerate(session.seen[0].names if session.seen else ()):
        rows = [each for each in session.seen if i < len(each.judged) and each.judged[i]]
        if rows and all(each.vacuous[i] for each in rows):
            texts.append(f"the bound of {name} is wider than half of its elements for all inputs")
        meets = [each.meets[i] for each in rows if each.meets[i] is not None]
        if meets and all(meets):
            texts.append(
                f"the right value of {name} is the same for all inputs that were tried{_which(session.firsts[i])}"
            )
        if not rows:
            texts.append(f"no element of {name} could be judged")
        texts += _missed(session, i)
    texts += session.lost
    texts += [f"{name} could not be judged: the candidate has no such tensor" for name in sorted(session.lacking)]
    wrong = any(each.standing is Standing.WRONG for each in findings)
    if not wrong and not sum(each.judged for each in findings):
        texts.append("no value was judged")
    return texts


def _missed(session: Session, i: int) -> list[str]:
    """That elements of an output could not be judged at inputs where all of it should be; one sentence or none."""
    rows = [each for each in session.seen if each.question in OF_DATA and i < len(each.missed) and each.missed[i]]
    if not rows:
        return []
    first, *others = rows
    also = ", ".join(dict.fromkeys(each.question for each in others if each.question != first.question))
    return [
        f"{first.missed[i]} of {first.elements[i]} elements of {first.names[i]} could not be judged at {first.question}"
        f"{also and f' (others at {also})'}: {first.reasons[i]}"
    ]


def _coverage(session: Session) -> tuple[Covered, ...]:
    """How much of each output was judged at the given inputs."""
    first = next((each for each in session.seen if each.question == "GIVEN"), None)
    return () if first is None else tuple(map(Covered, first.names, first.judged, first.elements))


def _which(ball: Ball) -> str:
    values = np.unique(np.asarray(ball.centre, dtype=np.float64))
    return f": {values[0]:.6g}" if values.size == 1 else ""


def undecided(spec: Specification | str, contract: str, seed: int, text: str, candidate: str) -> Judgement:
    """A judgement that says nothing of the candidate.

    Args:
        spec, contract, seed, candidate: see `Judgement`. text: why there is no verdict.
    """
    name = spec if isinstance(spec, str) else spec.name
    return Judgement(Assignment(candidate, name, contract, seed), Ruling.ERROR, error=text)
