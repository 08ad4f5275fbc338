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
from ...oracles.op.transforms import OFFERS
from ...oracles.verdicts.data import RecordError, as_data, decode_verdict
from ...oracles.verdicts.verdict import FAILED, Cell, Code, Outcome, Verdict
from ...oracles.verdicts.violation import Unsupported, error_lines, error_name
from ..campaign.bench import Bench, ItemLost, NotStarted
from ..engine.samples import Settings
from ..places.pool import fair_share
from ..programs import WORKER
from ..verification import run_cell
from .arguments import CallArguments
from .candidate_op import CandidateOp, op_of_candidate
from .cases import DEVICE, SUBJECT
from .host.host import CandidateHost
from .host.module_files import GivenError, candidate_of, file_of
from .host.sources import sources
from .specification import SpecError, specification

#: What a worker calls with a property; it may take as long as so many calls of the candidate may.
RUNNER, CALLS = f"{__name__}:verdict_data", 20
_WORDS = {**OFFERS, "grad": "gradients"}
#: (code of a property) -> its verdict.
AskProperty = Callable[[str], Verdict]


def judge_property(code: str, make: Callable[[], CandidateOp], seed: int) -> Verdict:
    """The verdict of one property, in this process.

    Args:
        code: of the property. make: gives the op; what it raises is why nothing is asked. seed: of the samples.
    """
    cell = Cell("candidate", code, "none", DEVICE, SUBJECT)
    try:
        declared = make()
    except Unsupported as err:
        outcome = Outcome.REFUSED if err.code is Code.REFUSED else Outcome.UNSUPPORTED
        return Verdict(cell, outcome, err.code, str(err))
    except SpecError as err:
        return Verdict(cell, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, str(err))
    except GivenError as err:
        return Verdict(cell, Outcome.REFUSED, Code.REFUSED, str(err))
    op, settings = declared.op, Settings("brief", seed)
    asked = Cell(op.name, code, declared.dtype, declared.device, "opassay")
    verdict = run_cell(asked, settings, op)
    if verdict.outcome in FAILED and "torch" in op.subjects:
        own = run_cell(replace(asked, subject="torch"), replace(settings, simpler=False), op)
        if own.outcome is Outcome.FAIL and _signs(own) == _signs(verdict):
            text = f"torch's own evaluation of the spec fails, too: {own.reason}"
            verdict = Verdict(asked, Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, text)
    lacking = [name for name in declared.refusals if re.search(rf"\bno {name}\b", verdict.reason)]
    lacking += ["grad"] * (verdict.code is Code.NOT_DIFFERENTIABLE and "grad" in declared.refusals)
    if verdict.outcome is Outcome.UNSUPPORTED and lacking:
        text = f"the candidate offers no {_WORDS[lacking[0]]}: {declared.refusals[lacking[0]]}"
        verdict = replace(verdict, outcome=Outcome.REFUSED, code=Code.REFUSED, reason=text)
    return replace(verdict, cell=cell)


def _signs(verdict: Verdict) -> tuple[object, ...]:
    signs = None if verdict.failure is None else verdict.failure.signs
    return (verdict.code, *(() if signs is None else (signs.path, signs.output)))


# ------------------------------------------------------------------------------------------------- in a process apart


def verdict_data(item: dict[str, Any]) -> dict[str, Any]:
    """The verdict of a property of the candidate of a file, for `programs.worker`.

    Args:
        item: "code", and what `PropertyProcess` says of the candidate.
    """
    code = item.pop("code")
    return as_data(judge_property(code, functools.partial(_op_of_files, json.dumps(item)), item["seed"]))


@functools.lru_cache(maxsize=1)
def _op_of_files(text: str) -> CandidateOp:
    """The op of a candidate's file, which this process imports."""
    from .suites.opening import open_pair

    item = json.loads(text)
    if item["interpret"]:
        from ...oracles.machine.interpreter import prepare, round_as_hardware

        prepare()
        round_as_hardware()
    finder = sources({path: content.encode("latin-1") for path, content in item["contents"].items()})
    with tempfile.TemporaryDirectory() as folder:
        pair = open_pair(item["spec"], item["candidate"], Path(folder), item["seed"], item["given"], item["dtype"])
        file = file_of(pair.candidate)
        if file is not None:
            finder.serve_everybody(str(file.parent))
        try:
            name, function = candidate_of(pair.candidate, pair.problem.made, item["seed"], item["dtype"])
        except BaseException as err:
            raise GivenError(": ".join([error_name(err), *error_lines(err)[:1]])) from err
        spec, given = specification(pair.problem.spec), CallArguments.of(pair.problem.draw(item["seed"]))
        return op_of_candidate(CandidateHost(name, function), spec, given, msgspec.convert(item["contract"], Terms))


class PropertyProcess:
    """Asks properties of the candidate of a file in a process apart; close it when done.

    Args:
        candidate: "candidate", "spec", "given", "seed", "dtype", "contract", "interpret", and the "contents" of files.
        seconds: of a call. memory: bytes that the process may take; 0 for its share of all.
    """

    def __init__(self, candidate: Mapping[str, Any], seconds: float, memory: int) -> None:
        self._candidate, self._seconds, self._memory = candidate, CALLS * seconds, memory or fair_share(1)
        self._bench: Bench | None = None

    def ask(self, code: str) -> Verdict:
        """The verdict of one property; the end of the process is one, too."""
        cell = Cell("candidate", code, "none", DEVICE, SUBJECT)
        try:
            self._bench = self._bench or Bench("", WORKER, self._memory)
            answer, _ = self._bench.ask({"runner": RUNNER, "item": {**self._candidate, "code": code}}, self._seconds)
            return decode_verdict(answer["result"])
        except ItemLost as err:
            self.close()
            outcome, reason = (Outcome.TIMEOUT, Code.TIMED_OUT) if err.timed_out else (Outcome.CRASH, Code.CRASHED)
            return Verdict(cell, outcome, reason, err.how)
        except (NotStarted, RecordError, KeyError) as err:
            self.close()
            return Verdict(cell, Outcome.ERROR, Code.HARNESS, f"no verdict: {err}")

    def close(self) -> None:
        """End the process."""
        if self._bench is not None:
            self._bench.close()
        self._bench = None
