"""The program of a candidate's process: loads the candidate, and answers calls until there are no more.

The first line says `{"memory": bytes, "interpret": whether Triton's kernels are interpreted, "compiled": whether their
PTX is executed, "rooms": where it may read and write}`, answered by what isolates the process. Then comes
`{"load": address, "made": path, "seed": number}`, answered by
`{"loaded": name, "shapes": {...}, "parameters": {...}, "changed": [...]}` or `{"refusal": why, "beyond": what to do}`;
then any number of `{"call": path}`, answered by `{"done": true}`, and then `{"sequel": what else is asked of it,
"answer": path}`;
`{"fetch": rows, "earlier": false, "answer": path}` and `{"review": true, "answer":
path}`, answered by `{"done": true}`; and `{"operations": path}`, answered by what a call runs.
Tensors go through these files (`calls.py`). A process that is asked nothing else may be asked `{"time": arguments of
"open_pair"}`, answered by a `Timing`, or `{"property": question}`, answered by a verdict: it loads the spec then.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import msgspec

from ....oracles.machine.allocator import keep_freed_memory
from ...places.lifeline import hide_words
from ...places.serving import consult, limit_memory, serve
from .isolation import Rooms, confine

_HOSTS: list[Any] = []


def _with_limits(hello: dict[str, Any]) -> dict[str, Any]:
    # First of all, because a rule of the kernel is of one thread, and libraries start more.
    hide_words()
    isolation = confine(msgspec.convert(hello["rooms"], Rooms))
    keep_freed_memory()
    sys.dont_write_bytecode = True
    limit_memory(int(hello["memory"]))
    if hello["interpret"]:
        from ....oracles.machine.interpreter import prepare, round_as_hardware

        prepare()
        round_as_hardware()
    elif hello["compiled"]:
        from ...places.executing import install_for_others

        install_for_others()
    import torch

    torch.set_num_threads(1)
    if hello["seat"]["ranks"]:
        from ..ranks.seats import Seat, take_seat

        take_seat(msgspec.convert(hello["seat"], Seat), hello["rooms"]["folder"], consult)
    return dict(msgspec.to_builtins(isolation))


def _answer_to(question: dict[str, Any]) -> dict[str, Any]:
    if "load" in question:
        return _loaded(question)
    if "time" in question:
        return _timed(question["time"])
    if "property" in question:
        from ..candidate_op import verdict_of

        return verdict_of(question["property"], _HOSTS[0])
    from ..ranks.seats import begin_call, end_call
    from .calls import CandidateCall, Manner, Sequel, read_message, write

    (host,), pid = _HOSTS, os.getpid()
    if "operations" in question:
        ran = host.operations(read_message(Path(question["operations"]), CandidateCall))
        return dict(msgspec.to_builtins(ran))
    answer = None
    if "review" in question:
        answer = host.review()
    elif "fetch" in question:
        answer = host.fetch(question["fetch"], question["earlier"])
    elif "sequel" in question:
        answer = host.finish(msgspec.convert(question["sequel"], Sequel))
        end_call()
    else:
        call = read_message(Path(question["call"]), CandidateCall)
        begin_call(call.manner is Manner.LATE)
        host.begin(call)
        end_call()
    if os.getpid() != pid:
        os._exit(1)  # a copy of this process that the candidate made
    if answer is None:
        return {"done": True}
    write(Path(question["answer"]), answer)
    return {"done": True}


def _loaded(question: dict[str, Any]) -> dict[str, Any]:
    from ....oracles.machine.limits import beyond_machine
    from ....oracles.verdicts.violation import error_lines, error_name
    from .calls import Making, read_message
    from .changes import watched_making
    from .host import CandidateHost
    from .module_files import GivenError, RaisedError, candidate_of, file_of
    from .sources import sources

    changed: list[str] = []
    making = read_message(Path(question["made"]), Making)
    try:
        finder, file = sources(making.files), file_of(question["load"])
        if file is not None:
            finder.serve_everybody(str(file.parent))
        with watched_making(changed):
            name, function = candidate_of(
                question["load"], tuple(making.call.arguments.args), question["seed"], making.dtype, making.device,
                making.evaluation,
            )  # fmt: skip
    except RaisedError as err:
        return {"refusal": str(err), "beyond": beyond_machine(err)}
    except GivenError as err:
        return {"lacks": str(err)}
    except BaseException as err:
        return {"refusal": ": ".join([error_name(err), *error_lines(err)[:3]])}
    _HOSTS[:] = [CandidateHost(name, function, changed, alone=True)]
    return {"loaded": name, "shapes": {n: list(s) for n, s in _HOSTS[0].shapes.items()},
            "parameters": _HOSTS[0].parameters, "changed": changed}  # fmt: skip


def _timed(pair: dict[str, Any]) -> dict[str, Any]:
    import tempfile

    import msgspec

    from ..suites.opening import open_pair
    from .timing import measure

    with tempfile.TemporaryDirectory() as folder:
        problem = open_pair(**pair, folder=Path(folder)).problem
        timing = measure(problem.spec, _HOSTS[0].function, problem.draw(pair["seed"]))
    answer: dict[str, Any] = msgspec.to_builtins(timing)
    return answer


def main() -> None:
    """Serve the judge that started this process, and will end it: no line of what is printed may wait to be written."""
    # A copy has the objects of its judge, which may write anywhere.
    sys.stdout, sys.stderr = (os.fdopen(handle, "w", buffering=1, closefd=False) for handle in (1, 2))
    serve(_with_limits, _answer_to)


if __name__ == "__main__":
    main()
