"""The league as a page and as data, and its line in the README."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .libraries import LIBRARIES, NOT_HERE
from .replays import CONTRACT, DOCUMENTED, FAULT, FINDINGS, OURS, Cause, read_causes

ROOT = Path(__file__).resolve().parents[2]
DATA, PAGE, README = ROOT / "docs" / "league.json", ROOT / "docs" / "league.md", ROOT / "README.md"
SCHEMA = "opassay-league/1"
RED = ("rejected", "raised", "ended", "suspect")
_VERDICTS = ("accepted", "weak", "suspect", "rejected", "error", "raised", "ended")
_TITLES = {
    FAULT: "Faults of the libraries", DOCUMENTED: "What the libraries document otherwise than the spec",
    CONTRACT: "Less accurate than the contract allows, where no accuracy is documented", OURS: "Ours",
}  # fmt: skip
#: How the line of the README begins.
_TALLY = "**Found so far:**"

_HEAD = """\
# A league of public kernels

Each row is a kernel of a public library, judged by plain PyTorch with the questions of `opassay judge`: values at given
and hostile inputs, sizes, strides, NaN and infinities, gradients where the library has them, what calls leave behind.
float32, on the CPU; kernels in Triton are compiled for `sm_80`, and their PTX is executed, in half types for `sm_90`.
Libraries whose host code asks for a GPU run as they stand on the [rehearsal device](rehearsed.md), in half types.
{day}.

```
python benchmarks/league.py --log league.jsonl     # judge all that the log does not have, two processes at a time
python benchmarks/league.py --dtype bfloat16 --dtype float16 --log league.jsonl  # the compiled ones in half types
python benchmarks/league_mutants.py triton --dtype bfloat16 --most 3 --json mutants.json  # planted mistakes, refused?
python benchmarks/league.py --log league.jsonl --mutants mutants.json --write  # this page, its data, README's line
python benchmarks/league.py --replay               # every red row's cause, by the library alone and mpmath
```

A library that is not installed is shown as not run. [league.json](league.json) has all of it as data, with every
question that was wrong. *Keeps* is the strictest arithmetic whose bound every value keeps; *sees* is the smallest error
that would have been seen at the given inputs, in units in the last place, the median over elements. The contract is
`torch` where none is named; [Judge your kernel](judge_your_kernel.md#what-a-kernel-may-do) says what its words allow.

Where the spec is *itself*, the function is read as what its own operations mean, and what torch's algorithms may do is
in its bound; [findings](findings.md) has what such a bound hides. `python benchmarks/league.py LIBRARY --call TEXT`
judges a row again and prints the whole report.

On 2026-11-27 the first command judged all 1,132 rows in one piece: in 54 minutes, on two cores that five other
programs used, by 1,425 seconds of the processor, 1.3 a row and at most 25.9, and 190 more for the imports of
libraries. A row has fewer elements on a busy machine, because a large call is not made where a small one takes long
by the clock.

A red row was read by hand. Its cause stands below, with a program that imports neither opassay nor a spec.
"""


def write_page(records: Sequence[Mapping[str, Any]], mutants: Path | None = None) -> None:
    """Write the data, the page and the line of the README, of these records and those that there are of other kernels.

    Args:
        mutants: what `league_mutants.py` wrote; None for what there is.
    """
    before = json.loads(DATA.read_text(encoding="utf-8"))
    data = data_of([*before["kernels"], *records])
    data["mutants"] = before.get("mutants", {}) if mutants is None else fates_of(mutants)
    DATA.write_text(json.dumps(data, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page_of(data), encoding="utf-8")
    text, line = README.read_text(encoding="utf-8"), tally(data)
    README.write_text(re.sub(rf"^{re.escape(_TALLY)}.*\n", lambda _: line + "\n", text, flags=re.MULTILINE))


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
    parts = [_HEAD.format(day=data["day"]), *_summary(data), *_causes(read_causes())]
    for name in LIBRARIES:
        if mine := [each for each in data["kernels"] if each["library"] == name]:
            how = LIBRARIES[name].how
            parts.append(f"\n## {name} {mine[0]['version']}\n\n{how[0].upper()}{how[1:]}.\n")
            parts += ["| kernel | spec | contract | verdict | keeps | sees | elements |", "|---" * 7 + "|"]
            # A library that is judged in half types alone has its specs in the rows of those.
            whole = [each for each in mine if dtype_of(each) == "float32"] or mine
            parts += [_row(each) for each in whole]
            if halves := [each for each in mine if each not in whole]:
                parts.append("\nIn half types, forward and backward, compiled for `sm_90`:\n")
                parts += ["| kernel | dtype | verdict | keeps | sees | elements | mutants refused |", "|---" * 7 + "|"]
                parts += [_half_row(each, data.get("mutants", {})) for each in halves]
    return "\n".join(parts) + "\n"


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


def _causes(causes: Sequence[Cause]) -> Iterator[str]:
    for kind, title in _TITLES.items():
        mine = [each for each in causes if each.kind == kind]
        yield f"\n## {title}: {len(mine)}\n"
        for each in mine:
            calls = ", ".join(f"`{call}`" for call in each.calls)
            also = f" It is the finding `{each.finding}`." if each.finding else ""
            yield f"- **{each.library}**, `{each.name}`: {calls}. {each.why}{also}"


def _verdict_of(row: Mapping[str, Any]) -> str:
    questions = ", ".join(each["question"] for each in row.get("causes", ())[:3])
    more = len(row.get("causes", ())) - 3
    return str(row["verdict"]) + (f": {questions}" + (f" and {more} more" if more > 0 else "") if questions else "")


def _row(row: Mapping[str, Any]) -> str:
    meaning = "itself" if row.get("meaning") == "itself" else f"`{row.get('meaning', '')}`"
    contract = row.get("contract", "") if row.get("contract") != "torch" else ""
    contract = f"{dtype_of(row)} {contract}" if dtype_of(row) != "float32" else contract
    contract += " ".join(["", *row.get("where", ())]).replace("may be written", "written")
    sees = "" if row.get("sees") is None else f"{row['sees']:g}"
    columns = (
        f"`{row['call']}`", meaning, contract.strip(), _verdict_of(row), row.get("arithmetic", ""), sees,
        f"{row.get('elements', 0):,}",
    )  # fmt: skip
    return "| " + " | ".join(columns) + " |"


def _half_row(row: Mapping[str, Any], mutants: Mapping[str, Any]) -> str:
    """A row of a half type, with the mistakes that were planted in its compiled kernels, where they were."""
    killed, survived = mutants.get(f"{row['call']} {dtype_of(row)}", (0, 0))
    sees = "" if row.get("sees") is None else f"{row['sees']:g}"
    columns = (
        f"`{row['call']}`", dtype_of(row), _verdict_of(row), row.get("arithmetic", ""), sees,
        f"{row.get('elements', 0):,}", f"{killed} of {killed + survived}" if killed + survived else "",
    )  # fmt: skip
    return "| " + " | ".join(columns) + " |"


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
