"""The server over HTTP: requests, refusals, judges that die, and a server that is killed."""

from __future__ import annotations

import asyncio
import json
import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response

from opassay.properties.candidates.host.isolation import offer
from opassay.reports.cli.serving.judges import require_request
from opassay.reports.cli.serving.queue import JudgementQueue
from opassay.reports.cli.serving.web import Service

ODD = Path(__file__).with_name("server_of_odd_judges.py")
SPEC = "import torch\ndef reference(x): return torch.softmax(x, -1)\ndef inputs(): return (torch.ones(4, 9),)\n"
RIGHT = "import torch\ndef reference(x): return torch.softmax(x, -1)\n"
#: A candidate that is right unless it can read the token of the server.
THIEF = """import torch
def reference(x):
    try:
        open("TOKEN").read()
    except OSError:
        return torch.softmax(x, -1)
    return x
"""


class Client:
    def __init__(self, port: int, token: str = "secret") -> None:
        self.url, self.token = f"http://127.0.0.1:{port}", token

    def ask(self, path: str, body: Any = None, token: str | None = None) -> tuple[int, Any]:
        content = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token if token is None else token}"}
        request = urllib.request.Request(self.url + path, content, headers)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as err:
            return err.code, json.load(err)

    def judge(self, text: str, spec: str = "", **fields: Any) -> Any:
        status, item = self.ask("/judgements", {"candidate": text, "spec": spec, **fields})
        assert status == 202, item
        return self.wait(item["id"])

    def wait(self, name: str) -> Any:
        while True:
            status, item = self.ask(f"/judgements/{name}?wait=10")
            assert status == 200, item
            if item["state"] == "done":
                return item


@contextmanager
def _server(folder: Path) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    folder.mkdir(exist_ok=True)
    process = subprocess.Popen([sys.executable, str(ODD), str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            yield Client(int(process.stdout.readline())), process
        finally:
            process.terminate()
            process.wait()


def test_requests_and_refusals(tmp_path: Path) -> None:
    with _server(tmp_path / "queue") as (client, process):
        assert client.ask("/health", token="other")[0] == 401
        assert client.ask("/judgements", {"candidate": "x", "spec": ""}, token="")[0] == 401
        assert client.ask("/", token="")[0] == 401
        status, itself = client.ask("/")
        assert status == 200
        assert {"candidate", "spec", "limits"} <= {*itself["request"]["$defs"]["ProblemRequest"]["properties"]}
        assert "verdict" in json.dumps(itself["judgement"])
        assert (itself["reachable"], bool(itself["isolation"])) == (offer().lacks, True)
        for body in (b"{", {"spec": "x"}, {"candidate": "x", "spec": "", "sort": 1}, {"candidate": 3, "spec": ""}):
            assert client.ask("/judgements", body)[0] == 422
        status, output = client.ask("/judgements", {"candidate": "x", "spec": "", "questions": ["GIVN"]})
        assert status == 422
        assert "FWD:given" in output["error"]
        assert client.ask("/judgements", {"candidate": "x" * 2**23, "spec": ""})[0] == 413
        assert client.ask("/judgements/none")[0] == 404
        item = client.judge("right", id="mine")
        assert item == {
            "id": "mine", "state": "done", "attempts": 1, "judgement": {"verdict": "accepted", "text": "right"},
        }  # fmt: skip
        assert client.judge("right", id="mine") == item
        assert client.ask("/judgements", {"candidate": "other", "spec": "", "id": "mine"})[0] == 409
        status, items = client.ask("/judgements", [{"candidate": f"waits 0.0{i}", "spec": ""} for i in range(5)])
        assert status == 202
        texts = [client.wait(each["id"])["judgement"]["text"] for each in items]
        assert texts == [f"waits 0.0{i}" for i in range(5)]
        assert client.ask("/judgements", [{"candidate": "x", "spec": ""}] * 101)[0] == 429
        assert client.ask("/health")[1] == {"queued": 0, "running": 0, "done": 6, "slots": 2}
        process.send_signal(signal.SIGINT)
        assert process.wait(30) == 0


def test_a_judge_that_dies_is_an_error_in_the_end_and_no_other_item_suffers(tmp_path: Path) -> None:
    with _server(tmp_path / "queue") as (client, _):
        died, ended, right = client.judge("dies"), client.judge("ends"), client.judge("right")
    assert (died["attempts"], ended["attempts"], right["attempts"]) == (3, 3, 1)
    assert died["error"].startswith("the judge's process died (exit status 1)")
    assert ended["error"].startswith("the judge's process ended with status -9")
    assert right["judgement"]["verdict"] == "accepted"


def test_a_server_that_is_killed_loses_nothing(tmp_path: Path) -> None:
    with _server(tmp_path / "queue") as (client, process):
        _, items = client.ask("/judgements", [{"candidate": f"waits 0.2{i}", "spec": ""} for i in range(8)])
        client.wait(items[0]["id"])
        process.kill()
        process.wait()
    with _server(tmp_path / "queue") as (client, process):
        texts = [client.wait(each["id"])["judgement"]["text"] for each in items]
    assert texts == [f"waits 0.2{i}" for i in range(8)]


def test_two_servers_do_not_share_a_folder(tmp_path: Path) -> None:
    from opassay.reports.cli.host import Stop
    from opassay.reports.cli.serving.serve import _require_alone

    with open(tmp_path / "lock", "w") as one, open(tmp_path / "lock", "w") as other:
        _require_alone(one.fileno(), tmp_path)
        with pytest.raises(Stop, match="another server uses this folder"):
            _require_alone(other.fileno(), tmp_path)


@pytest.mark.slow
def test_a_stranger_is_judged(tmp_path: Path) -> None:
    """The whole: torch, a process for each judgement, a process for each candidate."""
    command = [sys.executable, "-m", "opassay", "serve", str(tmp_path / "queue"), "--port", "0", "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        try:
            port = int(process.stdout.readline().partition(",")[0].rpartition(":")[2])
            token = tmp_path / "queue" / "token"
            assert token.stat().st_mode & 0o77 == 0
            client = Client(port, token.read_text())
            names = {"spec_name": "reference", "candidate_name": "reference"}
            right = client.judge(RIGHT, SPEC, **names)
            wrong = client.judge(
                RIGHT.replace("-1", "0"), SPEC, stop=True, questions=["FWD:given", "FWD:seeds"], **names
            )
            broken = client.judge("def reference(x:", SPEC, **names)
            thief = client.judge(THIEF.replace("TOKEN", str(token)), SPEC, questions=["FWD:given"], **names)
            page = (Path(__file__).parents[3] / "docs" / "serving.md").read_text()
            program: dict[str, Any] = {}
            for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
                exec(compile(block, "serving.md", "exec"), program)
            candidates = [RIGHT.replace("reference", "kernel"), "def kernel(x): return x"]
            rewards = program["rewards"](client.url, client.token, candidates, SPEC)
        finally:
            process.terminate()
        assert process.wait(60) == 0
    assert right["judgement"]["verdict"] == "accepted"
    assert rewards == [1.0, 0.0]
    if thief["judgement"]["isolation"] != "none":
        assert thief["judgement"]["verdict"] == "accepted"
    assert right["judgement"]["sha256"]["candidate"]
    assert wrong["judgement"]["verdict"] == "rejected"
    assert broken["error"].startswith("candidate/candidate.py does not compile: SyntaxError")


@pytest.mark.slow
def test_workers_of_a_cluster_judge() -> None:
    import distributed

    from opassay.reports.cli.serving.judges import ClusterJudge
    from opassay.reports.cli.serving.queue import ProblemRequest

    command = (sys.executable, str(ODD.with_name("odd_judge.py")))
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        judge = ClusterJudge(client, command)
        right, dead, late = (ProblemRequest(candidate=text, spec="") for text in ("right", "dies", "waits 30"))
        assert json.loads(judge.ask(right, lambda: False)["record"]) == {"verdict": "accepted", "text": "right"}
        assert "died (exit status 1)" in judge.ask(dead, lambda: False)["ended"]
        assert "record" in judge.ask(right, lambda: False)
        with pytest.raises(KeyboardInterrupt):
            judge.ask(late, lambda: True)


@pytest.mark.slow
def test_fifty_kills_of_server_and_judges_lose_nothing(tmp_path: Path) -> None:
    """Under load, at instants that are drawn: every accepted item has one answer, and no process stays."""
    draws = random.Random(17)
    answers: dict[str, set[str]] = {}
    for _ in range(25):
        with _server(tmp_path / "queue") as (client, process):
            status, items = client.ask("/judgements", [{"candidate": "waits 0.05", "spec": ""} for _ in range(4)])
            assert status == 202
            answers |= {each["id"]: set() for each in items}
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            threading.Event().wait(draws.uniform(0, 1))
            if children:
                os.kill(int(draws.choice(children)), signal.SIGKILL)
            threading.Event().wait(draws.uniform(0, 1))
            process.kill()
            process.wait()
    for _ in range(2):
        with _server(tmp_path / "queue") as (client, _process):
            for name, answer in answers.items():
                answer.add(json.dumps(client.wait(name).get("judgement")))
    assert len(answers) == 100
    assert all(len(answer) == 1 for answer in answers.values())
    running = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if path.exists()]
    assert not any(str(ODD.with_name("odd_judge.py")).encode() in words for words in running)


@pytest.mark.parametrize(
    ("failures", "status"), [([""], 200), (["", "locked"], 200), (["locked", "it has ended"], 503), ([], 503)]
)
def test_health_is_what_the_slots_say(failures: list[str], status: int, tmp_path: Path) -> None:
    service = Service(JudgementQueue(tmp_path / "queue.sqlite", 10), "token", require_request, lambda: failures)
    response = asyncio.run(service.health(Request({"type": "http"})))
    assert response.status_code == status
    assert json.loads(bytes(response.body))["slots"] == failures.count("")


def test_a_request_is_asked_to_come_again_where_the_queue_is_locked(tmp_path: Path) -> None:
    queue = JudgementQueue(tmp_path / "queue.sqlite", 10)
    queue._store.execute("PRAGMA busy_timeout = 1")
    service = Service(queue, "", require_request, lambda: [""])
    other = sqlite3.connect(tmp_path / "queue.sqlite", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b'{"candidate": "x", "spec": ""}', "more_body": False}

    request = Request({"type": "http", "headers": [(b"authorization", b"Bearer ")]}, receive)
    response = asyncio.run(_answered(service, request))
    assert (response.status_code, response.headers["Retry-After"]) == (503, "5")
    other.execute("ROLLBACK")
    assert asyncio.run(_answered(service, request.__class__(request.scope, receive))).status_code == 202


async def _answered(service: Service, request: Request) -> Response:
    return await service._guarded(service.add)(request)
