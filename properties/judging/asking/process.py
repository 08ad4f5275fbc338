"""The process of the candidate: what its making changed, what it left, and what it computes under autocast."""

from __future__ import annotations

from dataclasses import replace

import torch

from ....oracles.verdict import Code
from ..candidates.calls import Manner
from ..comparing import hold_all
from ..session import Asking, Finding, Session, held, not_asked, raised, summed, wrong
from ..specification import SpecError


def process(session: Session) -> Finding:
    """PROCESS: nothing of torch, NumPy or Python is replaced when the candidate is imported and made."""
    if session.made:
        return wrong("PROCESS", Code.MUTATED, f"the process was changed: {session.made[0]}", *session.made[1:])
    return held("PROCESS")


def left(session: Session) -> Finding:
    """LEFT: no process is left running, and no file of the judge, the spec or the candidate was written."""
    found = session.left()
    return wrong("LEFT", Code.MUTATED, found[0], *found[1:]) if found else held("LEFT")


def autocast(session: Session) -> Finding:
    """AUTOCAST: either what the spec computes under autocast, or what it computes without."""
    spec, arguments = session.spec, session.given
    if spec.numpy or not any(t.dtype == torch.float32 for t in arguments.tensors):
        return not_asked("AUTOCAST", "autocast changes nothing for this spec")
    part, told = session.part, session.share
    rows = [] if part is None else part.rows(session.generator("AUTOCAST"))
    if part is not None and session.rows_alone:
        arguments, told = part.of(arguments, rows), part.told(rows)
        part = None
    answer = session.call(arguments, manner=Manner.AUTOCAST, fetched=part is not None)
    if answer.raised:
        return raised("AUTOCAST", answer.raised, True)
    if part is not None:
        if tuple(answer.shapes) != part.shapes:
            return wrong("AUTOCAST", Code.ATTRIBUTE, f"the outputs have shapes {answer.shapes}, need {part.shapes}")
        arguments, answer, told = part.of(arguments, rows), session.candidate.fetch(rows), part.told(rows)
    under = replace(spec, autocast=True)
    terms = replace(session.terms, intermediates=True)
    first: Finding | None = None
    for other in (under, spec):
        try:
            run = other.run(arguments, spec.state)
            read = other.read(arguments, spec.state, terms)[: len(run.outputs)]
        except SpecError as err:
            return not_asked("AUTOCAST", str(err))
        found = summed(
            "AUTOCAST", hold_all(run.names[: len(read)], answer.outputs, read, terms, None, arguments.finite)
        )
        found = replace(found, sampled=told)
        if found.wrong is None:
            return found
        first = first or found
    return first or not_asked("AUTOCAST", "the spec has no reading")


ASKING: dict[str, Asking] = {"PROCESS": process, "LEFT": left, "AUTOCAST": autocast}
