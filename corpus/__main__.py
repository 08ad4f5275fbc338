"""The corpus as a command: which bugs the installed versions have, and what of opassay sees each.

    python -m corpus [NAME]...        # a table: present, fixed, not run (and why), or error where a program broke
    python -m corpus --seen           # and, for each, whether opassay refuses the fault and accepts what is right
    python -m corpus --json FILE      # the same for programs; "-" is standard output
    python -m corpus --seen --write   # and docs/corpus.md anew

The programs of benchmarks/findings, which opassay found itself, are run with those of this folder; `--threads` leaves
them out. Exit codes: 0; 2 for a mistake in the command line; 3 where a program broke or a claim does not hold; 130.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from .page import RESULTS, pages
from .programs import Program, programs
from .running import ERROR


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was asked for, and say what came of it; returns the exit code."""
    options = _options(arguments)
    selection = [each for each in programs() if not (options.threads and each.found_here)]
    unknown = sorted(set(options.names) - {each.name for each in selection})
    if unknown:
        print(f"corpus: no program is named {', '.join(unknown)}; python -m corpus --list shows them", file=sys.stderr)
        return 2
    selection = [each for each in selection if not options.names or each.name in options.names]
    if options.list:
        print(*(f"{each.name:36} {each.title}" for each in selection), sep="\n")
        return 0
    done, code = [], 0
    try:
        for result in results(selection, options.seen, options.jobs):
            done.append(result)
            if options.write:
                keep(result)
            print(line(result), flush=True, file=sys.stderr if options.json == "-" else sys.stdout)
    except KeyboardInterrupt:
        print(f"corpus: interrupted after {len(done)} of {len(selection)}", file=sys.stderr)
        code = 130
    _print_counts(done, options)
    return code or (3 if any(wrong(each) for each in done) else 0)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m corpus", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="programs; all without one")
    parser.add_argument("--list", action="store_true", help="say which programs there are, and run none")
    parser.add_argument("--seen", action="store_true", help="check what opassay sees of each, too")
    parser.add_argument("--threads", action="store_true", help="only bugs of public threads, no findings of opassay")
    parser.add_argument("--json", metavar="FILE", help="write the results as JSON")
    parser.add_argument("--write", action="store_true", help="write docs/corpus.md with the results of this run")
    parser.add_argument("-n", "--jobs", type=int, default=1, metavar="N", help="programs at a time (default 1)")
    options = parser.parse_args(arguments)
    if options.write and not options.seen:
        parser.error("--write needs --seen, because the page says what sees each bug")
    return options


def results(programs: Sequence[Program], sight: bool, jobs: int) -> Iterator[dict[str, Any]]:
    """The results of programs, in their order, each as soon as it is there."""
    with ThreadPoolExecutor(max(1, jobs)) as pool:
        try:
            yield from pool.map(lambda each: each.result(sight), programs)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def wrong(result: dict[str, Any]) -> bool:
    """Whether a program broke, or claims what does not hold."""
    return result["state"] in (ERROR, "disagreed") or result.get("seen", {}).get("holds") is False


def line(result: dict[str, Any]) -> str:
    """A result in the table; what was said follows where something is wrong."""
    sight = result.get("seen", {})
    verdict = {True: "", False: " CLAIM DOES NOT HOLD", None: " (not shown here)"}[sight.get("holds", True)]
    by = f"gap: {sight['gap']}" if "gap" in sight else sight.get("by", "")
    about = f"{result['package']} {result['version']}".strip()
    text = f"{result['state']:8} {result['name']:36} {about:22} {by}{verdict}".rstrip()
    more = result["observation"] if result["state"] in (ERROR, "not run", "disagreed") else ""
    more = "\n".join(filter(None, (more, sight.get("said", "") if verdict else "")))
    return text + ("\n         " + more.replace("\n", "\n         ") if more else "")


def _print_counts(done: Sequence[dict[str, Any]], options: argparse.Namespace) -> None:
    states = [each["state"] for each in done]
    counts = ", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(sorted(states)))
    print(f"{len(done)} programs: {counts}", file=sys.stderr if options.json == "-" else sys.stdout)
    text = json.dumps(list(done), indent=1, ensure_ascii=False) + "\n"
    if options.json == "-":
        sys.stdout.write(text)
    elif options.json:
        Path(options.json).write_text(text, encoding="utf-8")
    if options.write:
        for path, text in pages().items():
            path.write_text(text, encoding="utf-8")


def keep(result: dict[str, Any]) -> None:
    """Keep the result of a bug for the page, as soon as it is there; of a program that broke the former one is kept."""
    if "thread" not in result or wrong(result):
        return
    rows = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else []
    new = {each["name"]: each for each in [*rows, result]}
    text = json.dumps([new[name] for name in sorted(new)], indent=1, ensure_ascii=False) + "\n"
    RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
