"""The worker process: a question per line in, an answer per line out, until there are no more questions.

Ops run here and nowhere else; the owner (`process.Process`) only asks. The first line says where to judge:
`{"world": [comm, fabric, size], "memory": bytes, "join": bool}`, where `join` makes it rank 0 of those that torchrun
started; the answer is `{"ready": environment}`. Then comes any of

- `{"load": name}`: import the declaration of an op; `{"loaded": ""}`, or what is wrong with it.
- `{"cell": [op, property, dtype, device, subject], "settings": {...}}`: `{"verdict": {...}, "notes": [...]}`.
- `{"replay": path}`: judge the sample of a case file; `{"verdict": {...}}`, or `{"refused": why}` for no case file.
"""

from __future__ import annotations

import faulthandler
import importlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..oracles.properties import PROPERTIES, Where
from ..oracles.verdict import CHECKED, Cell, Code, Failure, Outcome, Verdict, as_data
from .lifeline import end_with
from .plan import PluginError, SelectionError, load_op
from .worlds import World, enter, launched

#: The exit status of a worker that an error ends, such as an owner's pipe that an op has closed.
_BROKEN = 70


def main() -> None:
    """Serve the owner that started this process; the arguments are those that `process.Process` gives."""
    owner, questions, answers, stacks, manner = sys.argv[1:6]
    end_with(int(owner))
    for handle in (questions, answers, stacks):
        os.set_inheritable(int(handle), False)  # what an op starts must not hold the owner's pipes
    faulthandler.enable(int(stacks))
    faulthandler.register(signal.SIGUSR1, int(stacks), all_threads=True)
    if manner != "attached":
        # The owner hears the user's interrupt and ends this process. So a KeyboardInterrupt here is an op's own.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.argv[1:] = []
    with os.fdopen(int(questions), "rb") as asked:
        _serve(asked.readline, int(answers), os.getpid())


def _serve(asked: Callable[[], bytes], answers: int, pid: int) -> None:
    status = _BROKEN
    try:
        _answer(answers, pid, {"ready": _prepare(json.loads(asked()))})
        while line := asked():
            _answer(answers, pid, _answered(json.loads(line)))
        status = 0
    except KeyboardInterrupt:
        status = 0  # the user's, in a process that shares the terminal: the owner has heard it too
    except BaseException:
        traceback.print_exc()  # the owner keeps the end of what is printed here, and shows it
    finally:
        _leave(status)


def _answer(answers: int, pid: int, answer: dict[str, Any]) -> None:
    if os.getpid() != pid:
        os._exit(1)  # a copy of this process that an op made by fork: it must not answer in its place
    content = memoryview(json.dumps(answer, allow_nan=False).encode() + b"\n")
    while content:
        content = content[os.write(answers, content) :]


def _prepare(hello: dict[str, Any]) -> dict[str, str]:
    """Imports torch and goes where the owner says; what this process is."""
    limit = int(hello["memory"])
    if limit:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (limit if hard < 0 else min(limit, hard), hard))
    _prefer_to_die()
    importlib.import_module("torch").set_num_threads(1)
    importlib.import_module("opassay.properties.cells")
    world = World(*hello["world"])
    if hello["join"] and launched():  # rank 0 of those that torchrun started: the others wait for it
        importlib.import_module("opassay.properties.team").join(world)
    else:
        enter(world)
    found: dict[str, str] = importlib.import_module("opassay.properties.environment").environment()
    return found


def _prefer_to_die() -> None:
    """Where memory runs out all the same, the kernel is to end this process, not one of the user's."""
    try:
        Path("/proc/self/oom_score_adj").write_text("900", encoding="ascii")
    except OSError:
        return  # a system that does not allow it: the limits above hold all the same


def _answered(question: dict[str, Any]) -> dict[str, Any]:
    if "load" in question:
        return {"loaded": _loaded(question["load"])}
    cells: Any = importlib.import_module("opassay.properties.cells")
    if "replay" in question:
        return _replayed(cells, Path(question["replay"]))
    cell = Cell(*question["cell"])
    verdict = _timed(cell, lambda: cells.run_cell(cell, cells.Settings(**question["settings"])))
    return {"verdict": as_data(verdict), "notes": _predicted(cell, verdict)}


def _loaded(name: str) -> str:
    """What is wrong with an op's declaration; empty if it can be loaded.

    Everything is caught: a module that calls `sys.exit` while it is imported must not end the run quietly.
    """
    try:
        load_op(name)
    except (SelectionError, PluginError) as err:
        return str(err)
    except BaseException as err:
        return f"{type(err).__name__}: {err}{_place(err)}"
    return ""


def _place(err: BaseException) -> str:
    """Where in a file of the op's author an exception was raised; empty where it was raised in ours alone."""
    ours = Path(__file__).resolve().parents[1]
    frames = [frame for frame in traceback.extract_tb(err.__traceback__) if Path(frame.filename).is_file()]
    found = [frame for frame in frames if not Path(frame.filename).resolve().is_relative_to(ours)]
    theirs = [frame for frame in found if Path(frame.filename).parent.name != "importlib"]
    return f" ({theirs[-1].filename}:{theirs[-1].lineno})" if theirs else ""


def _replayed(cells: Any, path: Path) -> dict[str, Any]:
    broken: type[Exception] = getattr(cells, "CaseError", ValueError)
    try:
        return {"verdict": as_data(cells.replay_case(path.read_text(encoding="utf-8")))}
    except (broken, OSError, UnicodeDecodeError) as err:
        return {"refused": str(err)}


def _timed(cell: Cell, run: Callable[[], Verdict]) -> Verdict:
    """The verdict; an exception that comes out of the framework is the verdict `error`, never the end of the worker."""
    start = time.perf_counter()
    try:
        verdict = run()
    except Exception as err:
        said = f"{type(err).__name__}: {err}"
        trace = "".join(traceback.format_exception(err, limit=-12))
        failure = Failure(Code.HARNESS, said.partition("\n")[0], trace)
        verdict = Verdict(cell, Outcome.ERROR, Code.HARNESS, said, failure=failure)
    if verdict.seconds == 0 and (verdict.outcome in CHECKED or verdict.outcome is Outcome.ERROR):
        return verdict.with_seconds(time.perf_counter() - start)
    return verdict


def _predicted(cell: Cell, verdict: Verdict) -> list[str]:
    """What the report says about the cost over many ranks, where an op was judged over ranks."""
    if PROPERTIES[cell.property].where is not Where.WORLD or verdict.outcome not in CHECKED:
        return []
    found: list[str] = importlib.import_module("opassay.properties.predictions").predictions(cell.op)
    return found


def _leave(status: int) -> None:
    """Let the other ranks go, if there are any, and end: what an op left running must not keep this process alive."""
    team = sys.modules.get("opassay.properties.team")
    try:
        if team is not None:
            team.disband()
        forward_ad = sys.modules.get("opassay.properties.forward_ad")
        if forward_ad is not None:
            forward_ad.BEFORE.close()
            forward_ad.AFTER.close()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    main()
