"""Rewards of candidates by a real server, and by rollouts of the libraries that train models, without a model."""

from __future__ import annotations

import asyncio
import http.server
import importlib.util
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from opassay.reports.rewards.for_openenv import kernel_environment
from opassay.reports.rewards.for_verifiers import kernel_taskset
from opassay.reports.rewards.reward import NoVerdictError, ServedJudge, grade, is_accepted

SPEC = "import torch\ndef reference(x): return torch.softmax(x, -1)\ndef inputs(): return (torch.ones(4, 9),)\n"
RIGHT = "import torch\ndef kernel(x): return torch.softmax(x, -1)\n"
#: Right without negative numbers, which the given inputs have none of.
WRONG = "import torch\ndef kernel(x): return torch.softmax(x.abs(), -1)\n"
#: It makes every comparison of torch hold, and ends the process that calls it as if all were well.
HOSTILE = """import os, sys, torch
torch.equal = torch.allclose = lambda *_, **__: True
print('{"verdict": "accepted"}')
def kernel(x): os._exit(0)
"""
ANSWERS = {"right": f"So:\n```python\n{RIGHT}```", "wrong": WRONG, "hostile": HOSTILE, "broken": "def kernel(x:"}


def test_a_grade_grows_with_what_is_answered_well() -> None:
    codes = ["FWD:given", "FWD:wide", "SIZE:sizes", "VJP:grad"]
    lines = [{"verdict": "rejected", "asked": codes, "causes": [{"question": each}]} for each in codes[:2]]
    lines += [{"verdict": "weak", "asked": codes, "causes": []}, {"verdict": "rejected", "asked": [], "causes": []}]
    lines += [{"verdict": "accepted", "asked": codes, "causes": []}]
    assert [grade(each) for each in lines] == [0.0, 0.375, 0.5, 0.0, 1.0]
    assert [is_accepted(each) for each in lines] == [0.0, 0.0, 0.0, 0.0, 1.0]
    assert "secret" not in repr(ServedJudge("http://127.0.0.1:1", "secret"))


@pytest.fixture(name="judge", scope="module")
def _judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedJudge]:
    folder = tmp_path_factory.mktemp("served") / "queue"
    command = [sys.executable, "-m", "opassay", "serve", str(folder), "--port", "0", "--workers", "1"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    with process.stdout:
        port = int(process.stdout.readline().partition(",")[0].rpartition(":")[2])
        names = {"candidate_name": "kernel", "spec_name": "reference", "questions": ["FWD:given", "FWD:seeds", "SIGNS"]}
        try:
            yield ServedJudge(f"http://127.0.0.1:{port}", (folder / "token").read_text(), names)
        finally:
            process.terminate()
            process.wait(60)


@pytest.mark.slow
def test_a_server_judges_completions(judge: ServedJudge) -> None:
    answers = {name: judge.judge(text, SPEC) for name, text in ANSWERS.items()}
    assert [each["verdict"] for each in answers.values()] == ["accepted", "rejected", "rejected", "rejected"]
    rewards = {name: grade(each) for name, each in answers.items()}
    assert rewards["right"] == 1
    assert 0 < rewards["wrong"] < 0.5
    assert rewards["hostile"] == rewards["broken"] == 0
    with pytest.raises(NoVerdictError, match=r"spec/spec\.py"):
        judge.judge(RIGHT, "def reference(x:")


@pytest.mark.slow
def test_openenv_steps_through_candidates(judge: ServedJudge) -> None:
    pytest.importorskip("openenv", reason="openenv is not installed")
    from openenv.core.env_server.http_server import create_app
    from starlette.testclient import TestClient

    environment = kernel_environment(judge, {"softmax": SPEC, "other": SPEC}, attempts=3)
    own = environment()
    assert own.reset(problem="softmax").text == SPEC
    assert own.reset(seed=5).metadata == own.reset(seed=5).metadata
    with pytest.raises(ValueError, match="problem='max': need one of softmax, other"):
        own.reset(problem="max")
    # The same over the package's own server: a session is a connection.
    app = create_app(environment, environment.Action, environment.Observation, env_name="kernels")
    with TestClient(app).websocket_connect("/ws") as session:

        def ask(kind: str, **data: Any) -> Any:
            session.send_json({"type": kind, "data": data})
            return session.receive_json()["data"]

        assert ask("reset", problem="softmax")["observation"]["text"] == SPEC
        steps = [ask("step", candidate=ANSWERS[name]) for name in ("wrong", "hostile", "right")]
        assert [each["done"] for each in steps] == [False, False, True]
        assert 0 < steps[0]["reward"] < 0.5
        assert [each["reward"] for each in steps[1:]] == [0, 1]
        assert "out[" in steps[0]["observation"]["text"]


class _Model(http.server.BaseHTTPRequestHandler):
    """An endpoint that answers as models do, with what the prompt names."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        words = {"role": "assistant", "content": ANSWERS[body["messages"][-1]["content"].split()[0]]}
        choice = {"index": 0, "message": words, "finish_reason": "stop"}
        answer = {"id": "1", "object": "chat.completion", "created": 0, "model": "m", "choices": [choice]}
        content = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.slow
def test_verifiers_rolls_out_candidates(judge: ServedJudge, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment runs an episode for each task: a harness asks the model, and the task scores the trace."""
    vf: Any = pytest.importorskip("verifiers.v1", reason="verifiers is not installed", exc_type=ImportError)
    import httpx

    class Asking(vf.Harness[vf.HarnessConfig]):  # type: ignore[misc]
        EXECUTES_CODE = NEEDS_CONTAINER = False

        async def launch(self, ctx: Any, trace: Any, runtime: Any, endpoint: str, secret: str, *rest: Any) -> Any:
            messages = [{"role": "user", "content": rest[1].prompt}]
            headers = {"Authorization": f"Bearer {secret}"}
            async with httpx.AsyncClient(timeout=120) as client:
                body = {"model": ctx.model, "messages": messages}
                answer = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
            return vf.ProgramResult(0 if answer.is_success else 1, "", answer.text)

    taskset, harness = ModuleType("asked_kernels"), ModuleType("asking")
    taskset.Kernels = kernel_taskset(judge, {"softmax": SPEC, "none": "def reference(x:"}, prompt="right {spec}")  # type: ignore[attr-defined]
    taskset.__all__, harness.__all__, harness.Asking = ["Kernels"], ["Asking"], Asking  # type: ignore[attr-defined]
    for module in (taskset, harness):
        module.__spec__ = importlib.util.spec_from_loader(module.__name__, None)
        monkeypatch.setitem(sys.modules, module.__name__, module)
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Model)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        traces = asyncio.run(_roll_out(vf, f"http://127.0.0.1:{server.server_port}/v1"))
    finally:
        server.shutdown()
        server.server_close()
    assert {name: trace.ok for name, trace in traces.items()} == {
        "right": True, "wrong": True, "hostile": True, "broken": True, "none": False,
    }  # fmt: skip
    rewards = {name: trace.rewards["judged"] for name, trace in traces.items()}
    assert rewards["none"] is None
    assert "spec/spec.py" in str(traces["none"].last_error)
    scores = [rewards[name].score for name in ("right", "wrong", "hostile", "broken")]
    assert scores[0] == 1
    assert 0 < scores[1] < 0.5
    assert scores[2:] == [0, 0]
    assert traces["wrong"].info["opassay"]["verdict"] == "rejected"
    assert judge.token not in "".join(trace.model_dump_json() for trace in traces.values())


async def _roll_out(vf: Any, url: str) -> dict[str, Any]:
    """The traces of the answers to one problem, and of the other problem, by name."""
    fields = vf.SingleAgentEnvConfig.model_fields.items()
    (seat,) = (name for name, each in fields if isinstance(each.default, vf.AgentConfig))
    player = {"harness": {"id": "asking"}, "runtime": {"type": "subprocess"}}
    words = {"taskset": {"id": "asked_kernels"}, seat: player, "interception": {"type": "server"}}
    environment = vf.load_environment(vf.SingleAgentEnvConfig.model_validate(words))
    context = vf.ModelContext(model="m", client=vf.EvalClientConfig(base_url=url, api_key_var="NO_KEY"))
    softmax, none = environment.taskset
    tasks = {name: softmax.with_data(prompt=f"{name} {SPEC}") for name in ANSWERS} | {"none": none}
    async with environment.serving():
        return {name: (await environment.run_episode(each, context)).traces[0] for name, each in tasks.items()}
