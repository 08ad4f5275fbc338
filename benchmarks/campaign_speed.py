"""How much of a campaign's time is work: the same items with one worker and with two.

    python benchmarks/campaign_speed.py [--cells OP...] [--profile brief] [--examples N] [--items 60]

Two plans. Of one the items sleep for 0.25 s each, so their time does not depend on what else the machine does: what is
missing to a share of 1 is what scheduling costs. The items of the other are real cells, and their processor time over
wall time times workers says what the machine has left for them; its load is printed beside it.

The share is of a session, which begins when the cluster stands; the start of the processes that judge is in it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opassay.oracles.verdicts.data import as_data
from opassay.oracles.verdicts.verdict import Cell, Code, Outcome, Verdict
from opassay.properties.places.serving import serve
from opassay.reports.cli.main import main as opassay

#: Seconds that an item of the first plan sleeps.
NAP = 0.25


def sleep(question: dict[str, Any]) -> dict[str, Any]:
    """The answer of a process whose items sleep."""
    time.sleep(NAP)
    return {"verdict": as_data(Verdict(Cell(*question["cell"]), Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, "slept"))}


def campaign(words: Sequence[str], workers: int, *, asleep: bool) -> tuple[int, float, float, float]:
    """Items, their processor time, the seconds of the session, and those of the whole command.

    Args:
        words: of the command line. workers: of the cluster. asleep: whether items sleep instead of being judged.
    """
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        command = [sys.executable, __file__, "sleeping" if asleep else "judging", "campaign", *words, f"-n{workers}"]
        subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=False)
        whole = time.monotonic() - begin
        lines = [json.loads(line) for line in Path(folder, "campaign.jsonl").read_text().splitlines()]
    done = [line for line in lines if line["event"] == "done"]
    session = next(line["seconds"] for line in lines if line["event"] == "ended")
    return len(done), sum(line["seconds"] for line in done), session, whole


def compared(title: str, words: Sequence[str], *, asleep: bool) -> None:
    """Print one plan with one worker and with two."""
    print(title, flush=True)
    walls = {}
    for workers in (1, 2):
        items, busy, session, whole = campaign(words, workers, asleep=asleep)
        busy = items * NAP if asleep else busy
        walls[workers] = session
        load = ", ".join(f"{value:.1f}" for value in os.getloadavg()[:2])
        print(
            f"  {workers} workers: {items} items of {busy:.1f} s, session {session:.1f} s, command {whole:.1f} s, "
            f"share {busy / (session * workers):.1%}; load {load} on {len(os.sched_getaffinity(0))} processors",
            flush=True,
        )
    print(f"  two workers take {walls[1] / walls[2]:.2f} times less time than one")


def main() -> None:
    """Measure both plans."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--cells", nargs="*", default=["layer_norm"], help="Ops of the second plan; none for no such plan."
    )
    parser.add_argument("--profile", default="brief", help="Of the second plan.")
    parser.add_argument("--examples", type=int, default=5)
    parser.add_argument("--items", type=int, default=60, help="Of the first plan, rounded to whole ops.")
    options = parser.parse_args()
    draws = max(1, options.items // 12)
    idle = ["softmax", "--property=FWD", "--property=VJP", "--property=LAW", f"--seeds={draws}"]
    compared(f"Items that sleep for {NAP} s", idle, asleep=True)
    if options.cells:
        cells = [
            *options.cells,
            f"--profile={options.profile}",
            f"--max-examples={options.examples}",
            "--dtype=float32",
        ]
        compared(f"Cells of {', '.join(options.cells)} in float32", cells, asleep=False)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["sleeping", *words]:
            sys.exit(opassay(words, worker=[sys.executable, __file__, "serving"]))
        case ["judging", *words]:
            sys.exit(opassay(words))
        case ["serving", *_]:
            # What follows are the handles of the owner's pipes, which `serve` takes from the same place.
            sys.argv[1:2] = []
            serve(lambda hello: {"torch": "none"}, sleep)
        case _:
            main()
