"""Verdicts per minute of `opassay serve`, and how long one takes: the median and the 95th percentile.

    python benchmarks/serving_speed.py [--workers 2] [--rounds 3] [--waiting 2]

Cut-down problems of the kinds of KernelBench's first level, each with a right candidate and a wrong one, are asked in
turn: the given inputs first, to the first wrong answer; and every question, to its end. So many items wait at a time
(`--waiting`): with one, the time of a verdict is that of a client that is alone. One item of each problem comes before
the measurement, because the first judge imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_HEAD = "import torch\nfrom torch.nn import functional as F\n"
#: name -> a spec's expression, shapes of its arguments, a right candidate's expression and a wrong one.
PROBLEMS = {
    "softmax": ("F.softmax(a, -1)", ("32, 128",), "(a - a.amax(-1, True)).softmax(-1)", "a.exp() / 128"),
    "relu": ("a.relu()", ("64, 64",), "a.clamp(min=0)", "a.abs()"),
    "product": ("a @ b", ("32, 64", "64, 32"), "torch.mm(a, b)", "(a.bfloat16() @ b.bfloat16()).float()"),
    "layer norm": ("F.layer_norm(a, (64,))", ("16, 64",), "F.layer_norm(a, [64])", "a - a.mean(-1, True)"),
    "sum": ("a.sum(-1)", ("32, 256",), "a.flip(-1).sum(-1)", "a[:, 1:].sum(-1)"),
    "gelu": ("F.gelu(a)", ("32, 64",), "F.gelu(a)", "F.gelu(a, approximate='tanh')"),
}
REQUESTS = {"given first, -x": {"questions": ["FWD:given"], "stop": True}, "everything": {}}
#: Verdicts a minute on two cores that are asked for.
GOALS = {"given first, -x": 60, "everything": 15}


class Client:
    """Submits items and waits for their verdicts."""

    def __init__(self, url: str, token: str) -> None:
        self._url, self._headers = url, {"Authorization": f"Bearer {token}"}

    def ask(self, path: str, body: Any = None) -> Any:
        content = None if body is None else json.dumps(body).encode()
        with urllib.request.urlopen(urllib.request.Request(self._url + path, content, self._headers)) as answer:
            return json.load(answer)

    def submit(self, name: str, right: bool, **options: Any) -> str:
        spec, shapes, *candidates = PROBLEMS[name]
        names = "a, b"[: 3 * len(shapes) - 2]
        draws = ", ".join(f"torch.randn({shape})" for shape in shapes)
        texts = {
            "spec": f"{_HEAD}def reference({names}):\n    return {spec}\ndef inputs():\n    return ({draws},)\n",
            "candidate": f"{_HEAD}def candidate({names}):\n    return {candidates[1 - right]}\n",
        }
        item = self.ask("/judgements", {**texts, **options})
        return str(item["id"])

    def wait(self, name: str) -> dict[str, Any]:
        while (item := self.ask(f"/judgements/{name}?wait=30"))["state"] != "done":
            pass
        return dict(item)


@contextmanager
def server(workers: int) -> Iterator[Client]:
    """`opassay serve` at a free port, in a folder of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "opassay", "serve", folder, "--port", "0", "--workers", str(workers)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
            try:
                assert process.stdout is not None
                address = re.search(r"http://\S+:\d+", process.stdout.readline())
                assert address is not None, "the server did not start"
                yield Client(address.group(), (Path(folder) / "token").read_text().strip())
            finally:
                process.terminate()


def measure(client: Client, items: list[tuple[str, bool]], waiting: int, options: dict[str, Any]) -> list[float]:
    """Seconds from the request for each item to its verdict, so many of which wait at a time, and in all, last."""
    begin, seconds, open_ones = time.monotonic(), [], list[tuple[float, str, bool]]()
    for name, right in [*items, *[("", False)] * waiting]:
        if len(open_ones) == waiting or not name:
            start, item, is_right = open_ones.pop(0)
            answer = client.wait(item)
            verdict = answer.get("judgement", {}).get("verdict", answer.get("error"))
            assert verdict == ("accepted" if is_right else "rejected"), (item, verdict)
            seconds.append(time.monotonic() - start)
        if name:
            open_ones.append((time.monotonic(), client.submit(name, right, **options), right))
    return [*seconds, time.monotonic() - begin]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="how often each candidate is asked for")
    parser.add_argument("--waiting", type=int, default=2, help="items that wait at a time")
    options = parser.parse_args()
    items = [(name, right) for name in PROBLEMS for right in (True, False)]
    with server(options.workers) as client:
        measure(client, items[::2], options.workers, REQUESTS["given first, -x"])
        print(f"{options.workers} workers on {os.cpu_count()} cores, load average {os.getloadavg()[0]:.1f}")
        print(f"{'asked':18}{'waiting':>8}{'items':>7}{'a minute':>10}{'goal':>6}{'median s':>10}{'p95 s':>8}")
        for name, words in REQUESTS.items():
            for waiting in dict.fromkeys((1, options.waiting)):
                *seconds, whole = measure(client, items * options.rounds, waiting, words)
                p95 = statistics.quantiles(seconds, n=20, method="inclusive")[-1]
                rate = 60 * len(seconds) / whole
                print(
                    f"{name:18}{waiting:8}{len(seconds):7}{rate:10.1f}{GOALS[name]:6}"
                    f"{statistics.median(seconds):10.2f}{p95:8.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
