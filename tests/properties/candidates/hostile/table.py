"""What becomes of every attack and of every right candidate, judged several times with other secrets, as a table.

    python -m tests.properties.candidates.hostile.table [--isolation none] [--times 2] [--share K/N] [--honest] [NAME]

A line for each: the verdicts, the first cause, the name. Then the names of those that were accepted wrongly (with
`--honest`: not accepted), which is also the exit code. Some six seconds for each judgement. Without isolation the
attacks come through: run that in a copy of the repository, which they write.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from .attack import Attack
from .honest_candidates import HONEST
from .test_hostile import EVERY, judgement

#: A judge that is stopped never ends; one whose right candidate runs a compiler may take minutes.
_MOST_SECONDS = {False: 120, True: 300}


def verdict_of(attack: Attack) -> tuple[str, str]:
    """The verdict on an attack and its first cause; of a judge that was ended how it was."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        try:
            output, _ = judgement(Path(folder), attack, _MOST_SECONDS[attack.verdict == "accepted"])
        except subprocess.TimeoutExpired:
            return "no end", ""
        except ValueError as err:  # no line of JSON, or more lines than one
            return "no line", str(err)[:60]
    return output["verdict"], next((cause["question"] for cause in output["causes"]), "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--isolation", choices=("auto", "none"), default="auto")
    parser.add_argument("--times", type=int, default=2)
    parser.add_argument("--share", default="1/1", help="K/N: every N-th, from the K-th on")
    parser.add_argument("--honest", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    first, step = map(int, options.share.split("/"))
    every = HONEST if options.honest else EVERY
    names = options.names or list(every)[first - 1 :: step]
    wrong = []
    for name in names:
        attack = replace(every[name], options=(*every[name].options, "--isolation", options.isolation))
        verdicts = [verdict_of(attack) for _ in range(options.times)]
        words = " ".join(dict.fromkeys(verdict for verdict, _ in verdicts))
        print(f"{words:22} {verdicts[0][1]:10} {name}", flush=True)
        bad = [verdict != attack.verdict for verdict, _ in verdicts]
        if any(bad if options.honest or attack.verdict == "rejected" else []):
            wrong.append(f"{name} ({words})")
    print(f"\n{len(names)} candidates, {options.times} times each, isolation {options.isolation}")
    print(f"{len(wrong)} with another verdict than {'accepted' if options.honest else 'rejected'}:", *wrong, sep="\n- ")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
