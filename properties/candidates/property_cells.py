"""Properties of the table asked of a candidate: cells of its op, judged here or in a process apart.

What is hard here: a property is judged where the candidate runs, for a transform of torch takes the function itself. So
its verdict is worth what the candidate's process is worth, and the questions, which keep what is right apart from the
candidate, come first.
"""

from __future__ import annotations

import functools
import json
import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from ...oracles.bound.terms import Terms
from ...oracles.op.declaration import Op
from ...oracles.op.transforms import OFFERS
from ...oracles.verdicts.data import as_data
from ...oracles.verdicts.verdict import FAILED, Cell, Code, Outcome, Verdict
from ...oracles.verdicts.violation import Unsupported
from ..engine.guard import guard
from ..engine.samples import Settings
from ..places.here import Here
from ..table import PROPERTIES, Where
from .arguments import CallArguments
from .candidate_op import CandidateOp, op_of_candidate
from .cases import DEVICE, SUBJECT
from .host.host import CandidateHost
from .specification import SpecError, specification
from .suites.opening import open_pair

_WORDS = {**OFFERS, "grad": "gradients"}


def judge_property(code: str, make: Callable[[], CandidateOp], seed: int) -> Verdict:
    """The verdict of one property, in this process.

    Args:
        code: of the property. make: gives the op; what it raises is why nothing is asked. seed: of the samples.
    """
    cell = Cell("candidate", code, "none", DEVICE, SUBJECT)
    if PROPERTIES[code].where is Where.PREPARED:
        text = f"{code} is asked of ops that other processes know by name"
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text)
    try:
        declared = make()
    except Unsupported as err:
        outcome = Outcome.REFUSED if err.code is Code.REFUSED else Outcome.UNSUPPORTED
        return Verdict(cell, outcome, err.code, str(err))
    except SpecError as err:
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, str(err))
    op, settings = declared.op, Settings("brief", seed)
    cell_of_op = Cell(op.name, code, declared.dtype, declared.device, "opassay")
    verdict = _judge_here(cell_of_op, settings, op)
    if verdict.outcome in FAILED and "torch" in op.subjects:
        own = _judge_here(replace(cell_of_op, subject="torch"), replace(settings, simpler=False), op)
        if own.outcome is Outcome.FAIL and _signs(own) == _signs(verdict):
            text = f"torch's own evaluation of the spec fails, too: {own.reason}"
            verdict = Verdict(cell_of_op, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text)
    lacking = [name for name in declared.refusals if re.search(rf"\bno {name}\b", verdict.reason)]
    lacking += ["grad"] * (verdict.code is Code.NOT_DIFFERENTIABLE and "grad" in declared.refusals)
    if verdict.outcome is Outcome.UNSUPPORTED and lacking:
        text = f"the candidate offers no {_WORDS[lacking[0]]}: {declared.refusals[lacking[0]]}"
        verdict = replace(verdict, outcome=Outcome.REFUSED, code=Code.REFUSED, reason=text)
    return replace(verdict, cell=cell)


def _judge_here(cell: Cell, settings: Settings, op: Op) -> Verdict:
    """The verdict of a cell in this process, which imports no production op as other places do."""
    return guard(cell, lambda: Here().judge(cell, settings, op))


def _signs(verdict: Verdict) -> tuple[object, ...]:
    signs = None if verdict.failure is None else verdict.failure.signs
    return (verdict.code, *(() if signs is None else (signs.path, signs.output)))


def verdict_of(question: Mapping[str, Any], host: CandidateHost) -> dict[str, Any]:
    """The verdict of a property as data, in the candidate's process, which reads the spec.

    Args:
        question: "code", the "terms" that are allowed, and "pair": arguments of `open_pair` without a folder.
        host: has the candidate.
    """
    make = functools.partial(_op_of_pair, json.dumps([question["pair"], question["terms"]]), host)
    return as_data(judge_property(question["code"], make, question["pair"]["seed"]))


@functools.lru_cache(maxsize=1)
def _op_of_pair(text: str, host: CandidateHost) -> CandidateOp:
    pair, allowed = json.loads(text)
    with tempfile.TemporaryDirectory() as folder:
        problem = open_pair(**pair, folder=Path(folder)).problem
        arguments = CallArguments.of(problem.draw(pair["seed"]))
        spec = replace(specification(problem.spec), domain=problem.domain)
        return op_of_candidate(host, spec, arguments, msgspec.convert(allowed, Terms))
