"""Requests: which ones are accepted, and the question for the judge that a request becomes."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from ....properties.candidates.question_plan import QuestionPlan
from ....reference.dtypes import FORMATS, dtype_name
from .queue import ProblemRequest


def question_of(request: ProblemRequest, folder: Path) -> dict[str, Any]:
    """The question that a judge's process reads; the texts are written as files into the folder."""
    addresses = {}
    for role in ("candidate", "spec"):
        own = folder / role
        own.mkdir()
        (own / f"{role}.py").write_text(getattr(request, role), encoding="utf-8")
        name = getattr(request, f"{role}_name")
        addresses[role] = f"{own / f'{role}.py'}{':' if name else ''}{name}"
    limits = request.limits
    confinement: dict[str, Any] = {"seconds": limits.seconds, "memory": limits.memory}
    if request.kernels:
        confinement[request.kernels] = True
    # With no seed the samples are drawn from a secret: whoever sends a candidate knows how a seed becomes samples.
    words = {"contract": request.contract, "seed": None, "values": request.given}
    return {**addresses, **words, "plan": asdict(plan_of(request)), "confinement": confinement}


def plan_of(request: ProblemRequest) -> QuestionPlan:
    """The plan of the questions, limits and dtype that a request names.

    Raises:
        ValueError: there is no such question.
    """
    return QuestionPlan(
        request.questions, stop=request.stop, total=request.limits.total, dtype=dtype_name(request.dtype)
    )


def require_request(request: ProblemRequest) -> None:
    """Require that a request can be judged.

    Raises:
        ValueError: a field has a value that is not allowed; the message names it and the rule.
    """
    plan = plan_of(request)
    if plan.dtype and plan.dtype not in FORMATS:
        raise ValueError(f"dtype={request.dtype!r}: need one of {', '.join(FORMATS)}")
    for name in ("candidate_name", "spec_name"):
        if not re.fullmatch(r"(?:[^\W\d]\w*)?", getattr(request, name)):
            raise ValueError(f"{name}={getattr(request, name)!r}: need a name of Python")
    if not re.fullmatch(r"[\w-]{0,64}", request.id, re.ASCII):
        raise ValueError(f"id={request.id!r}: need at most 64 letters, digits, - and _")
    for name, low, high in (("seconds", 0.1, 3600.0), ("total", 0.0, 86400.0), ("memory", 0.1, 1024.0)):
        if not low <= getattr(request.limits, name) <= high:
            raise ValueError(f"{name}={getattr(request.limits, name)}: need a number from {low:g} to {high:g}")
