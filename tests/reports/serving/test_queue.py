"""The queue on disk: an item is there until it is answered, and answered once."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from opassay.reports.cli.serving import slots
from opassay.reports.cli.serving.judges import JudgeAnswer, question_of, require_request
from opassay.reports.cli.serving.queue import (
    FullError,
    JudgementLimits,
    JudgementQueue,
    OtherContentError,
    ProblemRequest,
    QueueItem,
)


def _request(text: str = "x", **fields: Any) -> ProblemRequest:
    return ProblemRequest(candidate=text, spec="y", **fields)


def _queue(folder: Path, most: int = 10) -> JudgementQueue:
    return JudgementQueue(folder / "queue.sqlite", most)


def test_items_are_taken_in_order_and_answered_once(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    first, second = queue.add([_request("a"), _request("b")])
    pair = queue.take()
    assert pair is not None
    item, request = pair
    assert (item.id, item.state, item.attempts, request.candidate) == (first.id, "running", 1, "a")
    queue.finish(item, b"1")
    queue.finish(item, b"2")
    answered = queue.find(first.id)
    assert answered is not None
    assert (answered.state, answered.answer) == ("done", b"1")
    assert queue.counts() == {"queued": 1, "running": 0, "done": 1}
    other = queue.take()
    assert other is not None
    assert other[0].id == second.id
    assert queue.take() is None
    assert queue.find("none") is None


def test_what_was_running_when_a_server_ended_waits_again(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    (item,) = queue.add([_request()])
    queue.take()
    queue.close()
    later = _queue(tmp_path)
    pair = later.take()
    assert pair is not None
    assert (pair[0].id, pair[0].attempts) == (item.id, 1), "the end of a server is no attempt"
    later.put_back(pair[0])
    pair = later.take()
    assert pair is not None
    assert pair[0].attempts == 1
    later.retry(pair[0])
    assert later.counts()["queued"] == 1


def test_the_same_request_with_an_id_is_one_item_and_another_is_refused(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    queue.add([_request(id="mine")])
    queue.add([_request(id="mine")])
    assert queue.counts()["queued"] == 1
    with pytest.raises(OtherContentError, match="mine"):
        queue.add([_request("z"), _request("other", id="mine")])
    assert queue.counts()["queued"] == 1


def test_no_more_wait_than_may(tmp_path: Path) -> None:
    queue = _queue(tmp_path, most=2)
    queue.add([_request()])
    with pytest.raises(FullError):
        queue.add([_request(), _request()])
    assert queue.counts()["queued"] == 1
    queue.add([_request()])


def test_answers_are_forgotten_after_some_days(tmp_path: Path) -> None:
    queue = _queue(tmp_path)
    (item,) = queue.add([_request()])
    queue.take()
    queue.finish(item, b"1")
    queue.forget(1.0)
    assert queue.find(item.id) is not None
    queue.forget(0.0)
    assert queue.find(item.id) is None


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"questions": ["GIVN"]}, "FWD:given"),
        ({"dtype": "float31"}, "dtype='float31'"),
        ({"candidate_name": "a.b"}, "candidate_name='a.b': need a name of Python"),
        ({"id": "../x"}, "need at most 64 letters"),
        ({"limits": JudgementLimits(total=0.0)}, "total=0.0: need seconds above 0"),
        ({"limits": JudgementLimits(memory=0.0)}, "memory=0.0: need a number from 0.1 to 1024"),
        ({"limits": JudgementLimits(seconds=float("nan"))}, "seconds=nan: need a number from 0.1 to 3600"),
    ],
)
def test_a_request_that_cannot_be_judged_is_refused(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace(".", r"\.")):
        require_request(_request(**fields))


def test_a_question_has_the_texts_as_files(tmp_path: Path) -> None:
    request = _request(
        "a = 1", spec_name="reference", questions=["FWD:given"], dtype="bf16", stop=True, kernels="compiled"
    )
    require_request(request)
    question = question_of(request, tmp_path)
    assert Path(question["candidate"]).read_text() == "a = 1"
    assert question["spec"] == f"{tmp_path}/spec/spec.py:reference"
    assert (question["plan"]["questions"], question["plan"]["stop"]) == (("FWD:given",), True)
    assert question["plan"]["dtype"] == "bfloat16"
    assert question["confinement"] == {"seconds": 20.0, "memory": 4.0, "compiled": True}


def test_the_file_is_for_its_owner_alone_in_a_folder_for_all(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "queue.sqlite").touch(0o644)
    queue = _queue(tmp_path)
    queue.add([_request()])
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("queue.sqlite", "queue.sqlite-wal", "queue.sqlite-shm"), "0o600")


class _Failing(JudgementQueue):
    """Raises once in every method that a slot calls."""

    def __init__(self, path: Path, err: Exception) -> None:
        super().__init__(path, 10)
        self.err, self.failed = err, set[str]()

    def _fail_once(self, name: str) -> None:
        if name not in self.failed:
            self.failed.add(name)
            raise self.err

    def take(self) -> Any:
        self._fail_once("take")
        return super().take()

    def finish(self, item: QueueItem, answer: bytes) -> None:
        self._fail_once("finish")
        super().finish(item, answer)

    def put_back(self, item: QueueItem) -> None:
        self._fail_once("put_back")
        super().put_back(item)


class _Judge:
    """Cannot be started at first, then not asked, and answers."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.closed = list(errors), False

    def prepare(self, stopped: Any) -> None:
        if self.errors:
            raise self.errors.pop(0)

    def ask(self, request: ProblemRequest, stopped: Any) -> JudgeAnswer:
        if request.candidate == "full" and "full" not in vars(self):
            self.full = True
            raise OSError(28, "No space left on device")
        if request.candidate == "odd":
            raise ValueError("odd")
        return {"record": '{"verdict": "accepted"}'}

    def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize("err", [sqlite3.OperationalError("database is locked"), OSError(28, "No space left")])
def test_a_slot_outlives_what_fails_for_a_while(
    err: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(slots, "_AGAIN", 0.01)
    queue, stopped, judge = _Failing(tmp_path / "queue.sqlite", err), threading.Event(), _Judge(OSError("no process"))
    items = queue.add([_request(text) for text in ("full", "odd", "x")])
    slot = slots.Slot(queue, judge, stopped)
    thread = threading.Thread(target=slot.run)
    thread.start()
    until = time.monotonic() + 30
    while queue.counts()["done"] < 3 and time.monotonic() < until:
        time.sleep(0.01)
    stopped.set()
    thread.join()
    assert queue.failed == {"take", "finish", "put_back"}
    full, odd, right = (queue.find(item.id) or item for item in items)
    assert (full.attempts, odd.attempts, right.attempts) == (1, 3, 1)
    assert b"accepted" in full.answer
    assert b"accepted" in right.answer
    assert b"could not be asked: ValueError: odd" in odd.answer
    assert judge.closed
    assert slot.failure == "it has ended"
    assert "no judgement for now: OSError: no process" in capsys.readouterr().err
