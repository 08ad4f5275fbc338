"""The program of a process that judges one pair of many: its spec's modules and memory are of no other spec.

The first line says nothing. Each further one has arguments of `judge_file`, and is answered
by `{"record": the line of JSON}`, or by `{"error"}` where a file cannot be used.
"""

from __future__ import annotations

from typing import Any

from ...places.serving import serve
from ..host.module_files import GivenError
from ..host.quarters import Confinement
from ..judge_files import judge_file
from ..question_plan import QuestionPlan
from ..specification import SpecError


def answer_to(question: dict[str, Any]) -> dict[str, Any]:
    """The judgement as `{"record": a line of JSON}`; `{"error": text}` where a file cannot be used.

    Args:
        question: arguments of `judge_file`; "confinement" and "plan" are those of these classes.
    """
    confinement = Confinement(**question.pop("confinement"), alone=True)
    plan = QuestionPlan(**question.pop("plan"))
    try:
        judgement = judge_file(**question, confinement=confinement, plan=plan)
    except (GivenError, SpecError) as err:
        return {"error": str(err)}
    return {"record": judgement.as_json()}


if __name__ == "__main__":
    serve(lambda hello: {}, answer_to)
