"""The page of a large run in a real browser: its size, the time to write it, and the time to its first paint.

    python benchmarks/page_speed.py [run.json] [--cells 4000] [--apart] [--failing] [--loads 7]

The run is made of copies of a record's verdicts under other names of ops, `--apart` each under a name of its own,
`--failing` of those that failed alone; without a record, of three ops that are judged first, which takes a minute.
Chromium is spoken to over its debugging pipe, and tells itself when it first painted something
(`first-contentful-paint`), which counts from the navigation on. Without Chromium the paint is "not run".
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from opassay.reports import record
from opassay.reports.page.html import render
from opassay.reports.record import Run, plan_digest

#: What a page of so many cells may have at most: bytes, seconds of the processor to write it, and to its first paint.
MOST = {4_000: (3_000_000, 2.0, 1.0), 20_000: (20_000_000, 10.0, 10.0)}
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PROGRAM = """new Promise((tell) => requestAnimationFrame(() => setTimeout(() => {
  const paint = performance.getEntriesByName("first-contentful-paint")[0];
  tell({ paint: paint ? paint.startTime / 1000 : null, load: performance.timing.loadEventEnd / 1000
    - performance.timing.navigationStart / 1000, elements: document.querySelectorAll("*").length });
}, 300)))"""


def copied(run: Run, cells: int, apart: bool = False, failing: bool = False) -> Run:
    """A run of so many cells: the verdicts again and again, each time under other names of ops.

    Args:
        run: whose verdicts. cells: how many. apart: whether each cell has an op of its own.
        failing: whether only verdicts with a failure are copied.
    """
    every = [verdict for verdict in run.verdicts if verdict.failure is not None or not failing]
    copies = []
    for number in range(cells):
        turn, place = divmod(number, len(every))
        name = f"{every[place].cell.op}_{number if apart else turn}"
        copies.append(replace(every[place], cell=replace(every[place].cell, op=name)))
    return replace(run, verdicts=tuple(copies), plan_digest=plan_digest(verdict.cell for verdict in copies))


def judge(folder: Path) -> Path:
    """The record of three ops in all properties and dtypes."""
    words = ("run", "layer_norm", "softmax", "trace", "--profile", "brief", "-n", "1", "--max-examples", "5")
    subprocess.run([sys.executable, "-m", "opassay", *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return folder / "opassay-report" / "run.json"


class Pipe:
    """Chromium's debugging protocol over two pipes: JSON messages that end with a zero byte."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read, self._rest, self._last = write, read, b"", 0

    def ask(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        """The result of a command; events that come before it are dropped."""
        self._last += 1
        message = {"id": self._last, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._write, json.dumps(message).encode() + b"\0")
        result: dict[str, Any] = next(one for one in self._messages() if one.get("id") == self._last)
        if "error" in result:
            raise RuntimeError(f"{method}: {result['error']}")
        return dict(result["result"])

    def wait(self, event: str) -> None:
        next(one for one in self._messages() if one.get("method") == event)

    def _messages(self) -> Iterator[dict[str, Any]]:
        while True:
            while b"\0" not in self._rest:
                part = os.read(self._read, 1 << 16)
                if not part:
                    raise RuntimeError("the browser ended")
                self._rest += part
            text, _, self._rest = self._rest.partition(b"\0")
            yield json.loads(text)


@contextmanager
def browser(program: str, profile: Path) -> Iterator[Pipe]:
    """A Chromium without a window; it reads commands at descriptor 3 and answers at 4."""
    (ours_in, theirs_out), (theirs_in, ours_out) = os.pipe(), os.pipe()

    def place() -> None:
        # Both are moved out of the way first, because one of them may be 3 or 4 itself.
        read, write = os.dup(theirs_in), os.dup(theirs_out)
        high = [os.dup2(one, 50 + i) for i, one in enumerate((read, write))]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [program, "--headless", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe"]
    command += [f"--user-data-dir={profile}", "--window-size=1400,1000", "about:blank"]
    running = subprocess.Popen(
        command, preexec_fn=place, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        yield Pipe(ours_out, ours_in)
    finally:
        running.terminate()
        running.wait()


def painted(program: str, page: Path, loads: int, folder: Path) -> list[dict[str, Any]]:
    """What the browser tells of each load of the page: seconds to its first paint and to its load, and elements."""
    times = []
    with browser(program, folder / "profile") as pipe:
        for _ in range(loads):
            target = pipe.ask("Target.createTarget", url="about:blank")["targetId"]
            session = pipe.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
            pipe.ask("Page.enable", session)
            pipe.ask("Page.navigate", session, url=page.as_uri())
            pipe.wait("Page.loadEventFired")
            expression = {"expression": _PROGRAM, "awaitPromise": True, "returnByValue": True}
            times.append(pipe.ask("Runtime.evaluate", session, **expression)["result"]["value"])
            pipe.ask("Target.closeTarget", targetId=target)
    return times


def _place(value: float, most: float) -> str:
    return "within" if value <= most else "more than"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("record", nargs="?", type=Path)
    parser.add_argument("--cells", type=int, default=4000)
    parser.add_argument("--apart", action="store_true")
    parser.add_argument("--failing", action="store_true")
    parser.add_argument("--loads", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = copied(record.load(options.record or judge(folder)), options.cells, options.apart, options.failing)
        start = time.process_time()
        content = render(run).encode()
        seconds = time.process_time() - start
        page = folder / "report.html"
        page.write_bytes(content)
        size, writing, painting = next((most for cells, most in MOST.items() if options.cells <= cells), MOST[20_000])
        print(f"cells          {len(run.verdicts)}")
        print(f"size           {len(content)} bytes, {_place(len(content), size)} {size}")
        print(f"rendering      {seconds:.2f} s of CPU, {_place(seconds, writing)} {writing:g}")
        program = next((path for path in map(shutil.which, _BROWSERS) if path), None)
        if program is None:
            print("first paint    not run: no Chromium on PATH")
            return
        loads = painted(program, page, options.loads, folder)
        paints = [load["paint"] for load in loads if load["paint"] is not None]
        median = statistics.median(paints)
        text = f"{_place(median, painting)} {painting:g} s; from {min(paints):.2f} to {max(paints):.2f} s"
        print(f"first paint    {median:.2f} s, {text}")
        print(f"loaded         {statistics.median(load['load'] for load in loads):.2f} s")
        print(f"elements       {loads[0]['elements']}")
        print(f"load average   {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
