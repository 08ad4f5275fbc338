"""The worker process: a question per line in, an answer per line out, until there are no more questions.

Ops run here and in the helpers of this process; the owner, a `places.pool.Pool`, only asks. The first line says where
to judge: `{"world": [comm, fabric, size], "memory": bytes, "join": bool}`, where `join` makes this process rank 0 of
the processes that torchrun started; the answer is `{"ready": environment}`. Each further line is one of

- `{"load": name}`: import the declaration of an op; `{"loaded": text}`, empty or what is wrong with the declaration.
- `{"cell": [op, property, dtype, device, subject], "settings": {...}}`: `{"verdict": {...}, "ends": bool}`, where
  `ends` says that this process can judge no other cell, because it has lost its GPU.
- the same with `"retell": path`: before each sample is judged, its case file and its program are written to that path;
  `{"retold": true}`, if the process survives.
- `{"replay": path}`: judge the sample of a case file; `{"verdict": {...}}`, or `{"refused": why}` if it is none.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ...oracles.verdicts.cleaning import error_lines, error_name
from ...oracles.verdicts.data import as_data
from ...oracles.verdicts.verdict import CHECKED, Cell, Code, Failure, Outcome, Verdict, without_requests
from .. import worlds
from ..catalog.loading import load_op
from ..names import PluginError, SelectionError
from ..places.serving import limit_memory, serve


def _enter_world(hello: dict[str, Any]) -> dict[str, str]:
    """Set the memory limit, import torch and enter the owner's world; the environment of this process."""
    limit_memory(int(hello["memory"]))
    _prefer_to_die()
    import torch  # after the limits above, which must include torch's own memory

    from .. import verification  # noqa: F401 (so that the first cell does not pay for it)
    from ..engine.environment import environment

    torch.set_num_threads(1)
    world = worlds.World(*hello["world"])
    if hello["join"] and worlds.launched():  # this is rank 0, for which the ranks that torchrun started wait
        from ..places.gathering import join

        join(world)
    else:
        worlds.enter(world)
    return environment()


def _prefer_to_die() -> None:
    """Ask the kernel to end this process first where memory runs out, rather than one of the user's."""
    with contextlib.suppress(OSError):  # of a system that does not allow it: the limits above hold all the same
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")


def _answer(question: dict[str, Any]) -> dict[str, Any]:
    """The answer to a question. Modules that import torch are imported here, after `_enter_world` set its limits."""
    if "load" in question:
        return {"loaded": _load(question["load"])}
    if "replay" in question:
        return _replay(Path(question["replay"]))
    from ..verification import Settings, run_cell

    cell = Cell(*question["cell"])
    if "retell" in question:
        return _retell(cell, question["settings"], Path(question["retell"]))
    verdict = _time_verdict(cell, lambda: run_cell(cell, Settings(**question["settings"])))
    return {"verdict": as_data(verdict), "ends": _has_lost_gpu()}


def _has_lost_gpu() -> bool:
    """Whether CUDA refuses all further work of this process, as it does after an assertion or a wrong address."""
    cuda = sys.modules.get("torch.cuda")
    try:
        if cuda is not None and cuda.is_initialized():
            cuda.synchronize()
    except RuntimeError:
        return True
    return False


def _load(name: str) -> str:
    """What is wrong with an op's declaration; empty if it can be loaded.

    Every exception is caught: a module that calls `sys.exit` while it is imported must not end the run silently.
    """
    try:
        load_op(name)
    except (SelectionError, PluginError) as err:
        return str(err)
    except BaseException as err:
        return f"{type(err).__name__}: {err}{_place_of_error(err)}"
    return ""


def _place_of_error(err: BaseException) -> str:
    """The line of the op's author where an exception was raised, in parentheses; empty if it was raised in ours."""
    ours = Path(__file__).resolve().parents[2]
    frames = [frame for frame in traceback.extract_tb(err.__traceback__) if Path(frame.filename).is_file()]
    outside = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(ours)]
    # A failed import ends in lines of importlib, which are in no file that the author could mend.
    theirs = [frame for frame in outside if Path(frame.filename).parent.name != "importlib"]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _replay(path: Path) -> dict[str, Any]:
    from ..verification import replay_case

    try:
        return {"verdict": as_data(replay_case(path.read_text(encoding="utf-8")))}
    except (ValueError, OSError) as err:  # a CaseError is a ValueError, and so is a text that is not UTF-8
        return {"refused": str(err)}


def _retell(cell: Cell, settings: dict[str, Any], path: Path) -> dict[str, Any]:
    from ...oracles.programs.writing import ending
    from ...oracles.verdicts.case import case_id, load_case
    from ..verification import Settings, retell_cell

    def tell(case: str) -> None:
        name = case_id(cell, case)
        program = ending(load_op(cell.op), cell, load_case(case)[1], name)
        path.write_text(json.dumps([name, case, program]), encoding="utf-8")

    retell_cell(cell, Settings(**settings), tell)
    return {"retold": True}


def _time_verdict(cell: Cell, run: Callable[[], Verdict]) -> Verdict:
    """The verdict with its time; an exception of the framework gives the verdict `error`, not the end of the worker."""
    start = time.perf_counter()
    try:
        # `run` has guards of its own, so an exception that passes them is a fault of the guards. It must not end a
        # worker that other ops share.
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


def main() -> None:
    """Serve the pool that started this process."""
    serve(_enter_world, _answer)


if __name__ == "__main__":
    main()
