"""The league as a page and as data, and its line in the README."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .libraries import LIBRARIES, NOT_HERE
from .replays import CONTRACT, DOCUMENTED, FAULT, FINDINGS, OURS, read_causes

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE, README = ROOT / "docs" / "league.json", ROOT / "docs" / "league.md", ROOT / "README.md"
SCHEMA = "opassay-league/1"
RED = ("rejected", "raised", "ended", "suspect")
_VERDICTS = ("accepted", "weak", "suspect", "rejected", "error", "raised", "ended")
_TITLES = {
    FAULT: "Faults of the libraries", DOCUMENTED: "Documented otherwise than the spec",
    CONTRACT: "Less accurate than the contract allows, where no accuracy is documented", OURS: "Ours",
}  # fmt: skip
#: How the line of the README begins.
_TALLY = "**Found so far:**"

_HEAD = """\
# A league of public kernels

Each row is a kernel of a public library, judged by plain PyTorch with the questions of `opassay judge`, in float32 on
the CPU. Kernels in Triton are compiled for `sm_80`, and their PTX is executed, in half types for `sm_90`. Libraries
whose host code asks for a GPU run on the [rehearsal device](rehearsed.md). {day}.

```
python benchmarks/league.py --log league.jsonl     # judge all that the log does not have, two processes at a time
python benchmarks/league.py --dtype bfloat16 --dtype float16 --log league.jsonl  # the compiled ones in half types
python benchmarks/league_mutants.py triton --dtype bfloat16 --most 3 --json mutants.json  # planted mistakes, refused?
python benchmarks/league.py --log league.jsonl --mutants mutants.json --write  # this page, its data, README's line
python benchmarks/league.py LIBRARY --call TEXT    # judge a row again, and print the whole report
python benchmarks/league.py --replay               # every red row's cause, by the library alone and mpmath
```

The first command judged 1,132 rows in 54 minutes, by 1,425 seconds of the processor. [league.json](league.json) has all
rows, and the cause of each red one, read by hand, with a program that imports neither opassay nor a spec. *Keeps* is
the strictest arithmetic whose bound every value keeps; *sees* is the smallest error that would have been seen, in units
in the last place (median). The contract is `torch` where none is named ([its words](contracts.md)). Where the spec is
*itself*, the function is read as what its own operations mean, and what torch's algorithms may do is in its bound.

## Totals
"""

_ROWS = """
## All rows

On the built site a table stands here that is filtered by library, verdict, dtype and text; a row opens to its cause. In
a checkout, [league.json](league.json) is the same.
"""


def write_page(records: Sequence[Mapping[str, Any]], mutants: Path | None = None) -> None:
    """Write the data, the page and the line of the README, of these records and those that there are of other kernels.

    Args:
        mutants: what `league_mutants.py` wrote; None for what there is.
    """
    before = json.loads(DATA.read_text(encoding="utf-8"))
    data = data_of([*before["kernels"], *records])
    data["mutants"] = before.get("mutants", {}) if mutants is None else fates_of(mutants)
    DATA.write_text(text_of(data), encoding="utf-8")
    PAGE.write_text(page_of(data), encoding="utf-8")
    text, line = README.read_text(encoding="utf-8"), tally(data)
    README.write_text(re.sub(rf"^{re.escape(_TALLY)}.*\n", lambda _: line + "\n", text, flags=re.MULTILINE))


def text_of(data: Mapping[str, Any]) -> str:
    """The text of docs/league.json."""
    return json.dumps(data, indent=0, ensure_ascii=False) + "\n"


def data_of(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The last record of every kernel in the order of the tables, and why libraries were not run."""
    last = {key_of(each): each for each in records if "call" in each}
    order = list(LIBRARIES)
    kernels = sorted(last.values(), key=lambda each: order.index(each["library"]))
    absent = {each["library"]: each["not_run"] for each in records if "not_run" in each}
    judged = {each["library"] for each in kernels}
    return {
        "schema": SCHEMA, "day": max((each.get("day", "") for each in kernels), default=""), "kernels": kernels,
        "not_run": {**{name: why for name, why in absent.items() if name not in judged}, **NOT_HERE},
        "how": {name: library.how for name, library in LIBRARIES.items() if name in judged},
        "causes": [{**asdict(each), "calls": list(each.calls)} for each in read_causes()],
    }  # fmt: skip


def key_of(record: Mapping[str, Any]) -> tuple[str, str, str]:
    """Which kernel a record is of, in which dtype."""
    return record["library"], record.get("call", ""), dtype_of(record)


def dtype_of(record: Mapping[str, Any]) -> str:
    return str(record.get("dtype", "float32"))


def tally(data: Mapping[str, Any]) -> str:
    """The line of the README."""
    kernels, causes = _verdict_rows(data), read_causes()
    faults = {(_library_of(path), path.stem) for path in FINDINGS.glob("*.py") if _library_of(path)}
    faults |= {(each.library, each.name) for each in causes if each.kind == FAULT and not each.finding}
    red = sum(each["verdict"] in RED for each in kernels)
    ours = {(each.library, call) for each in causes if each.kind == OURS for call in each.calls}
    return (
        f"{_TALLY} {len(faults)} faults in {len({library for library, _ in faults})} libraries"
        f" ([findings](docs/findings.md)); {len(kernels)} kernels of {len({each['library'] for each in kernels})}"
        f" libraries judged in {sum(each['elements'] for each in kernels):,} elements, of which {red} are red and"
        f" {len(ours)} of these false alarms ([league](docs/league.md), {data['day']})."
    )


def _verdict_rows(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The kernels of which something is said: whose specs are read."""
    return [each for each in data["kernels"] if each["verdict"] not in ("error", "ended")]


def _library_of(path: Path) -> str:
    match = re.search(r'^LIBRARY, VERSION = "([\w-]+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
    return match[1] if match else ""


def page_of(data: Mapping[str, Any]) -> str:
    """The text of docs/league.md."""
    kinds = Counter(each["kind"] for each in data["causes"])
    causes = "\nCauses of red rows: " + "; ".join(f"{title.lower()}, {kinds[kind]}" for kind, title in _TITLES.items())
    return "\n".join([_HEAD.format(day=data["day"]), *_summary(data), causes + ".", _ROWS])


def _summary(data: Mapping[str, Any]) -> Iterator[str]:
    yield "| library | kernels | " + " | ".join(_VERDICTS) + " | elements |"
    yield "|---" * (len(_VERDICTS) + 3) + "|"
    for name in [*LIBRARIES, "all"]:
        mine = [each for each in data["kernels"] if name in (each["library"], "all")]
        if mine:
            counts = Counter(each["verdict"] for each in mine)
            version = f" {mine[0]['version']}" if name != "all" else ""
            elements = sum(each.get("elements", 0) for each in mine)
            columns = " | ".join(str(counts[verdict] or "") for verdict in _VERDICTS)
            yield f"| {name}{version} | {len(mine)} | {columns} | {elements:,} |"
    yield "\nNot run:\n"
    for name, why in data["not_run"].items():
        yield f"- {name}: {why}"


def fates_of(path: Path) -> dict[str, list[int]]:
    """How many mutants of each kernel were killed and how many survived, by its call and dtype."""
    record = json.loads(path.read_text(encoding="utf-8"))
    counts: dict[str, list[int]] = {}
    for fate in record["mutants"]:
        pair = counts.setdefault(fate["mutant"]["family"], [0, 0])
        pair[0] += fate["outcome"] == "killed"
        pair[1] += fate["outcome"] == "survived"
    return counts


def uncaused(data: Mapping[str, Any]) -> list[str]:
    """The red rows that no cause explains."""
    known = {(each.library, call) for each in read_causes() for call in each.calls}
    return [
        f"{each['library']} {each['call']}"
        for each in data["kernels"]
        if each["verdict"] in RED and (each["library"], each["call"]) not in known
    ]
