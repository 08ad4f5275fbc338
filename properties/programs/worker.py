"""The worker process: a question per line in, an answer per line out, until there are no more questions.

Ops run here and in the helpers of this process; the owner, a `places.pool.Pool`, only asks. The first line says where
to judge: `{"world": [comm, fabric, size], "memory": bytes, "join": bool}`, where `join` makes it rank 0 of those that
torchrun started; the answer is `{"ready": environment}`. Then comes any of

- `{"load": name}`: import the declaration of an op; `{"loaded": ""}`, or what is wrong with it.
- `{"cell": [op, property, dtype, device, subject], "settings": {...}}`: `{"verdict": {...}, "notes": [...]}`.
- the same with `"retell": path`: the case file of each sample is written to that file before the sample is judged, and
  with it the program that it makes; `{"retold": true}`, if the process lives.
- `{"replay": path}`: judge the sample of a case file; `{"verdict": {...}}`, or `{"refused": why}` for no case file.
- `{"runner": "module:function", "item": {...}}`: call that function with an item of other work; `{"result": {...}}`, or
  `{"error": what it raised}`.
"""

from __future__ import annotations

import importlib
import json
import resource
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...oracles.verdicts.cleaning import error_lines, error_name
from ...oracles.verdicts.verdict import CHECKED, Cell, Code, Failure, Outcome, Verdict, as_data, without_requests
from .. import worlds
from ..catalog.loading import load_op
from ..names import PluginError, SelectionError
from ..places.serving import serve
from ..table import PROPERTIES, Where


def _enter_world(hello: dict[str, Any]) -> dict[str, str]:
    """Imports torch and goes where the owner says; what this process is."""
    limit = int(hello["memory"])
    if limit:
        # A hard limit of -1 is no limit; a soft limit above a hard one would be refused.
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
    _prefer_to_die()
    import torch  # after the limits above, which hold for what it takes

    from .. import verification  # noqa: F401 (so that the first cell does not pay for it)
    from ..engine.environment import environment

    torch.set_num_threads(1)
    world = worlds.World(*hello["world"])
    if hello["join"] and worlds.launched():  # rank 0 of those that torchrun started: the others wait for it
        from ..places.gathering import join

        join(world)
    else:
        worlds.enter(world)
    return environment()


def _prefer_to_die() -> None:
    """Where memory runs out all the same, the kernel is to end this process, not one of the user's."""
    try:
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")
    except OSError:
        return  # a system that does not allow it: the limits above hold all the same


def _answered(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question. Whatever imports torch is imported here, once the limits of `_enter_world` hold."""
    if "load" in question:
        return {"loaded": _loaded(question["load"])}
    if "replay" in question:
        return _replayed(Path(question["replay"]))
    if "runner" in question:
        return _item_result(question["runner"], question["item"])
    from ..verification import Settings, run_cell

    cell = Cell(*question["cell"])
    if "retell" in question:
        return _retold(cell, question["settings"], Path(question["retell"]))
    verdict = _timed(cell, lambda: run_cell(cell, Settings(**question["settings"])))
    return {"verdict": as_data(verdict), "notes": _predicted(cell, verdict)}


def _item_result(runner: str, item: dict[str, Any]) -> dict[str, Any]:
    """What a function of the address `runner` makes of an item; what it raises is a fault of the program."""
    module, _, function = runner.partition(":")
    try:
        return {"result": getattr(importlib.import_module(module), function)(item)}
    except Exception as err:
        return {"error": f"{type(err).__name__}: {err}"}


def _loaded(name: str) -> str:
    """What is wrong with an op's declaration; empty if it can be loaded.

    Everything is caught: a module that calls `sys.exit` while it is imported must not end the run quietly.
    """
    try:
        load_op(name)
    except (SelectionError, PluginError) as err:
        return str(err)
    except BaseException as err:
        return f"{type(err).__name__}: {err}{_raised_at(err)}"
    return ""


def _raised_at(err: BaseException) -> str:
    """Where in a file of the op's author an exception was raised; empty where it was raised in ours alone."""
    ours = Path(__file__).resolve().parents[2]
    frames = [frame for frame in traceback.extract_tb(err.__traceback__) if Path(frame.filename).is_file()]
    found = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(ours)]
    # A failed import ends in lines of importlib, which are in no file that the author could mend.
    theirs = [frame for frame in found if Path(frame.filename).parent.name != "importlib"]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _replayed(path: Path) -> dict[str, Any]:
    from ..verification import replay_case

    try:
        return {"verdict": as_data(replay_case(path.read_text(encoding="utf-8")))}
    except (ValueError, OSError) as err:  # a CaseError is a ValueError, and so is a text that is not UTF-8
        return {"refused": str(err)}


def _retold(cell: Cell, settings: dict[str, Any], told: Path) -> dict[str, Any]:
    from ...oracles.programs.ending import ending
    from ...oracles.verdicts.case import case_id, load_case
    from ..verification import Settings, retell_cell

    def tell(case: str) -> None:
        name = case_id(cell, case)
        program = ending(load_op(cell.op), cell, load_case(case)[1], name)
        told.write_text(json.dumps([name, case, program]), encoding="utf-8")

    retell_cell(cell, Settings(**settings), tell)
    return {"retold": True}


def _timed(cell: Cell, run: Callable[[], Verdict]) -> Verdict:
    """The verdict; an exception that comes out of the framework is the verdict `error`, never the end of the worker."""
    start = time.perf_counter()
    try:
        # What runs here has guards of its own, so an exception that comes through is a fault of those guards. It must
        # not end a worker that other ops share.
        verdict = run()
    except Exception as err:
        trace = without_requests("".join(traceback.format_exception(err, limit=-12)))
        lines = error_lines(err) or [""]
        text = f"{error_name(err)}: "
        failure = Failure(Code.HARNESS, text + lines[0], trace)
        verdict = Verdict(cell, Outcome.ERROR, Code.HARNESS, text + "\n".join(lines), failure=failure)
    if verdict.seconds == 0 and (verdict.outcome in CHECKED or verdict.outcome is Outcome.ERROR):
        return verdict.with_seconds(time.perf_counter() - start)
    return verdict


def _predicted(cell: Cell, verdict: Verdict) -> list[str]:
    """What the report says about the cost over many ranks, where an op was judged over ranks."""
    if PROPERTIES[cell.property].where is not Where.WORLD or verdict.outcome not in CHECKED:
        return []
    from ..engine.predictions import predictions

    return predictions(cell.op)


def main() -> None:
    """Serve the pool that started this process."""
    serve(_enter_world, _answered)


if __name__ == "__main__":
    main()
