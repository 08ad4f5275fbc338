"""docs/corpus.md, made of the programs' texts and of the results that were kept."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .programs import CORPUS, Program, programs, themes
from .running import ROOT

RESULTS, PAGE = CORPUS / "results.json", ROOT / "docs" / "corpus.md"
TABLE = ROOT / "docs" / "tables" / "corpus.txt"

_TITLES = {
    "compiled": "Compiled code",
    "gradients": "Gradients",
    "invariance": "Equal bits: rows, batches, training and serving",
    "kernels": "Kernels of networks",
    "libraries": "Other libraries",
    "memory": "Memory: strides, overlaps, caches",
    "reductions": "Sums, scans and functions",
    "transforms": "Transforms and higher derivatives",
}

_INTRODUCTION = """\
# Known bugs of torch and of other libraries, and what sees them

{count} bugs from public issue threads, each a program of at most 30 lines in `corpus/` that says what was observed, and
how it is known to be wrong. They are run from the top of the repository, in an environment that has opassay:

```
python -m corpus                             # which of them the installed versions have
python -m corpus --seen                      # and whether opassay sees each
python -m corpus.kernels.attention_of_nan    # one: exit code 1 while the bug is there, 0 without it, 2 if not run
```

A bug is `present`, `fixed`, `not run` (the library is not installed, or there is no GPU), or `error` where the program
itself broke. An observation counts as right if half of its digits are: these bugs are wrong in the first digits.

`--seen` checks a claim by running it. If the bug is present, opassay has to refuse the library's function. If it is
fixed, opassay has to accept that function and to refuse a few lines that behave as the bug did (`planted`). In both
cases the same question has to accept an implementation without the fault. A *gap* is a bug that no question sees, with
the reason; what came nearest to it is asked as well, and a gap that has closed is told as a claim that does not hold.
Exit code 3 means that a claim does not hold, or that a program broke; a bug that is present is no failure.

{present} are present, {fixed} fixed and {rest} not run; {gaps} are gaps. *Said of* is the version that the thread
names, or its date. What opassay found by itself is on [a page of its own](findings.md); `python -m corpus` runs those
programs, too.

## All bugs

On the built site a table stands here that is filtered by theme, state and text. In a checkout it is
[tables/corpus.txt](tables/corpus.txt).
"""


def pages() -> dict[Path, str]:
    """The page and its table by their paths, from the results in `RESULTS`."""
    results = {each["name"]: each for each in json.loads(RESULTS.read_text(encoding="utf-8"))}
    bugs = [each for each in programs() if not each.found_here and each.name in results]
    states = [results[each.name]["state"] for each in bugs]
    text = _INTRODUCTION.format(
        count=len(bugs), present=states.count("present"), fixed=states.count("fixed"),
        rest=states.count("not run"), gaps=sum("gap" in results[each.name]["seen"] for each in bugs),
    )  # fmt: skip
    parts = [f"## {_TITLES[theme]}\n\n{_table(group, results)}" for theme, group in themes(bugs).items()]
    return {PAGE: text, TABLE: "\n".join(parts)}


def _table(programs: Sequence[Program], results: dict[str, dict[str, Any]]) -> str:
    lines = ["| bug | thread | said of | here | seen by |", "|---|---|---|---|---|"]
    for each in programs:
        result = results[each.name]
        owner, _, number = result["thread"].partition("#")
        link = f"[{owner.rpartition('/')[2]}#{number}](https://github.com/{owner}/issues/{number})"
        cells = [
            f"[{each.title}](../../corpus/{each.theme}/{each.name}.py)",
            link,
            result["said_of"],
            _here(result),
            _by(result),
        ]
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _here(result: dict[str, Any]) -> str:
    if result["state"] == "not run":
        return f"not run: {result['observation']}"
    return f"{result['state']} in {result['package']} {result['version']}"


def _by(result: dict[str, Any]) -> str:
    sight = result["seen"]
    return f"**gap**: {sight['gap']}" if "gap" in sight else f"{sight['by']}: {sight['said']}"
