"""FWAD: the processes that judge torch's forward AD, and faults planted in the decompositions."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from opassay import Cell, Code, Outcome, Settings, replay_case, run_cell
from opassay.properties import worlds
from opassay.properties.catalog.loading import load_op
from opassay.properties.engine.guard import guard
from opassay.properties.places import prepared as places
from opassay.properties.places.prepared import PreparedPlace, Worker, WorkerError

pytestmark = pytest.mark.slow

OP = "native_layer_norm_backward"
SETTINGS = {"profile": "commit", "seed": 0, "max_examples": 6}
#: Wrong decompositions of layer norm's backward, as changes of what a right one returns.
FAULTS = {
    "rstd without a tangent": "from opassay.impl.norms import expressions as norms; statistics = norms.row_statistics;"
    " norms.row_statistics = lambda *args: (lambda row: row._replace(r=row.r.detach()))(statistics(*args))",
    "masked outputs are zeros": "change = lambda args, out: tuple(args[1].new_zeros(()) if y is None else y"
    " for y in out)",
    "a bit of the value": "change = lambda args, out: (out[0] * (1 + 2.0**-20), *out[1:])",
    "dtype of the statistics": "change = lambda args, out: tuple(y if y is None else y.to(args[3].dtype) for y in out)",
}
PLANT = """
import torch
from opassay.impl import decompositions
op = torch.ops.aten.native_layer_norm_backward.default
real = decompositions.decomposition_table_for_jvp[op]
change = lambda args, out: out
{fault}

def planted():
    def faulty(*args):
        return change(args, real(*args))

    decompositions.decomposition_table_for_jvp[op] = faulty
    decompositions.install_jvp_decompositions()


def nothing():
        time.sleep(60)


def dies():
    raise SystemExit("a planted end")
"""


@pytest.fixture
def prepared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Worker]]:
    """Workers that end with the test, and a folder on their path."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    workers: list[Worker] = []
    yield workers
    for worker in workers:
        worker.close()


def _question(dtype: str = "float32", subject: str = "opassay") -> dict[str, object]:
    return {"cell": [OP, "FWAD", dtype, "cpu", subject], "settings": SETTINGS}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_wrong_decomposition_is_found(fault: str, prepared: list[Worker], tmp_path: Path) -> None:
    (tmp_path / "planted_decomposition.py").write_text(PLANT.format(fault=FAULTS[fault]))
    prepared.append(Worker("planted_decomposition:planted"))
    dtype = "bfloat16" if "dtype" in fault else "float32"
    prepared[0].ask(**{**_question(dtype), "settings": {**SETTINGS, "max_examples": 18}})
    verdict = prepared[0].answer()
    assert verdict.outcome is Outcome.FAIL, verdict.reason
    assert verdict.code in (Code.VALUE, Code.BITS, Code.ATTRIBUTE), verdict.reason


def test_torch_s_own_fails_and_ours_holds_and_says_so() -> None:
    settings = Settings("commit", max_examples=6)
    theirs = run_cell(Cell(OP, "FWAD", "float32", "cpu", "torch"), settings)
    ours = run_cell(Cell(OP, "FWAD", "float32", "cpu", "opassay"), settings)
    assert theirs.outcome is Outcome.FAIL
    assert theirs.failure is not None
    assert theirs.failure.snippet.startswith("# No program: It takes a process in which")
    assert ours.outcome is Outcome.VERIFIED
    assert "without our decomposition: fail" in ours.reason
    # The same sample, in the other process.
    assert replay_case(theirs.failure.case).outcome is Outcome.FAIL
    assert replay_case(theirs.failure.case.replace('"torch"', '"opassay"')).outcome is Outcome.VERIFIED


@pytest.mark.parametrize(
    ("op", "subject", "says"),
    [
        ("layer_norm", "opassay", "no decomposition for forward AD is registered for layer_norm"),
        ("trace", "opassay", "torch has a forward-AD formula of its own for aten.trace.default"),
        (OP, "compiled", "FWAD is not asked of compiled code"),
    ],
)
def test_what_is_not_asked_has_a_reason(op: str, subject: str, says: str) -> None:
    verdict = run_cell(Cell(op, "FWAD", "float32", "cpu", subject), Settings())
    assert verdict.outcome is Outcome.UNSUPPORTED
    assert says in verdict.reason


def test_an_op_that_only_this_process_has_is_not_asked() -> None:
    verdict = run_cell(Cell(OP, "FWAD", "float32", "cpu", "opassay"), Settings(), load_op(OP))
    assert (verdict.outcome, verdict.code) == (Outcome.UNSUPPORTED, Code.NOT_APPLICABLE)


@pytest.mark.parametrize(("prepare", "says"), [("nothing", "did not answer within 1 s"), ("dies", "a planted end")])
def test_a_worker_that_does_not_answer_is_an_error(
    prepare: str, says: str, prepared: list[Worker], tmp_path: Path
) -> None:
    (tmp_path / "planted_decomposition.py").write_text(PLANT.format(fault=""))
    deadline = 1.0 if prepare == "nothing" else places.DEADLINE
    prepared += [Worker(f"planted_decomposition:{prepare}", deadline), Worker("planted_decomposition:planted")]
    place, cell = PreparedPlace(*prepared), Cell(OP, "FWAD", "float32", "cpu", "opassay")
    verdict = guard(cell, lambda: place.judge(cell, Settings("commit", max_examples=2), None))
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.HARNESS)
    assert says in verdict.reason
    assert [worker.process for worker in prepared] == [None, None]  # nothing is left that could answer the next one


def test_a_worker_that_was_killed_is_started_again(prepared: list[Worker]) -> None:
    prepared.append(Worker())
    worker = prepared[0]
    worker.ask(**_question(subject="torch"))
    process = worker.process
    assert process is not None
    os.kill(process.pid, signal.SIGKILL)
    with pytest.raises(WorkerError, match="died"):
        worker.answer()
    worker.ask(**_question(subject="torch"))
    assert worker.answer().outcome is Outcome.FAIL


def test_a_worker_ends_with_its_input_and_ignores_the_terminal(prepared: list[Worker]) -> None:
    prepared.append(Worker())
    worker = prepared[0]
    worker.ask(**_question(subject="torch"))
    worker.answer()
    process = worker.process
    assert process is not None
    assert os.getsid(process.pid) != os.getsid(0)
    process.dismiss()
    process.settle(20.0)
    assert process.how() == "exit status 0"


def test_every_question_is_answered_in_order(prepared: list[Worker]) -> None:
    prepared.append(Worker())
    for op in ("layer_norm", "softmax", "trace"):
        # Not asked in this dtype, so that the answer comes at once.
        prepared[0].ask(cell=[op, "ORD3", "float32", "cpu", "opassay"], settings=SETTINGS)
    assert [prepared[0].answer().cell.op for _ in range(3)] == ["layer_norm", "softmax", "trace"]


def test_the_processes_are_kept_for_the_next_cell_and_end_when_this_process_leaves() -> None:
    cell = Cell(OP, "FWAD", "float32", "cpu", "torch")
    run_cell(cell, Settings("commit", max_examples=2))
    first = places.prepared_place().before.process
    run_cell(cell, Settings("commit", max_examples=2))
    assert first is not None
    assert places.prepared_place().before.process is first
    worlds.leave()
    assert first.ended
