"""Judges candidates on a Ray cluster, without a server: an actor for each judgement at a time.

    python ray_judges.py spec.py candidate.py...       # on the cluster of RAY_ADDRESS, or on this machine

An actor is the judge of one worker of `opassay serve`: it starts a process that has torch, and judges each candidate in
a copy of that. Every node needs `pip install "opassay[verify]" ray`. What Ray asks for again, because a node was lost,
is judged again; a verdict is the same data as `opassay judge --json` says.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import ray
from ray.util import ActorPool

from opassay.reports.cli.serving.judges import LocalJudge, require_request
from opassay.reports.cli.serving.queue import ProblemRequest
from opassay.reports.cli.serving.slots import describe_answer


class RayJudge:
    """One judge; Ray makes an actor of it."""

    def __init__(self) -> None:
        self._judge = LocalJudge()

    def judge(self, request: dict[str, Any]) -> dict[str, Any]:
        """What `GET /judgements/ID` of `opassay serve` has: `judgement`, or `error`.

        Args:
            request: what `POST /judgements` takes.
        """
        try:
            decoded = msgspec.convert(request, ProblemRequest)
            require_request(decoded)
        except ValueError as err:
            return {"error": str(err)}
        return describe_answer(self._judge.ask(decoded, lambda: False))


def judge_all(requests: Iterable[dict[str, Any]], workers: int) -> Iterator[dict[str, Any]]:
    """The answers to requests, in their order; so many are judged at a time, each with a processor of its own."""
    actor = ray.remote(num_cpus=1, max_restarts=-1, max_task_retries=2)(RayJudge)
    pool = ActorPool([actor.remote() for _ in range(workers)])
    yield from pool.map(lambda judge, request: judge.judge.remote(request), list(requests))


def main() -> None:
    spec, *candidates = sys.argv[1:]
    ray.init()
    requests = [{"spec": Path(spec).read_text(), "candidate": Path(path).read_text()} for path in candidates]
    workers = min(len(requests), int(ray.cluster_resources().get("CPU", 1)))
    for path, answer in zip(candidates, judge_all(requests, workers), strict=True):
        print(path, answer.get("judgement", {}).get("verdict", answer.get("error")))


if __name__ == "__main__":
    main()
