"""What the framework found in public kernels: runs a program for each finding, and says what is there still.

    python benchmarks/findings.py [NAME]...      # a table: finding, library and version, present or fixed or not run
    python benchmarks/findings.py --write        # docs/findings.md and its data, with the figures of this run

The programs are in `benchmarks/findings/`; each runs on its own, too. They need the libraries that they judge. One that
is not installed makes its findings `not run`. Exit codes: 0, or 3 where mpmath and opassay disagree or a program broke.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import sys
import tomllib
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # a script finds the modules of its own folder alone
from benchmarks.losses import LOSSES  # noqa: E402
from corpus.running import ERROR, run_program  # noqa: E402

PROGRAMS, FIGURES, FAR = HERE / "findings", HERE / "findings" / "figures.json", HERE / "findings" / "far.json"
DOSSIERS = HERE.parent / "corpus" / "upstream"
DATA, PAGE = HERE.parent / "docs" / "findings.json", HERE.parent / "docs" / "findings.md"
SCHEMA = "opassay-findings/1"
KINDS, SEVERITIES = ("wrong result", "less accurate"), ("high", "medium", "low")
_SECONDS = 300.0

_PAGE = """\
# What opassay found in public kernels

Each finding is a program that a reader can run: it calls the installed library, computes the exact values of the same
inputs with mpmath, which shares no code with opassay, and has opassay judge the output by a spec. It fails if mpmath's
values do not lie in opassay's balls, or if the two judge differently. The figures were taken with one thread on:
{machine}.

```
python benchmarks/findings.py              # all of them: present, fixed, or not run
python benchmarks/findings/torch_ndtr.py   # one; exit code 1 while the fault is there, 0 without it, 2 if not run
python -m workshop upstream torch_ndtr     # as an issue for the library, which a person files
python benchmarks/far.py --league          # kernels whose indices of 32 bits wrap beyond 2^31 elements
```

*Wrong result*: on inputs of the documented domain the output is wrong in its first digits, or has none that is right,
and is of use by itself. *Less accurate*: it is off by more than roundings of the documented formula can make it, but
the error is small beside the tensors that it commonly stands in. Severity is high where a training or an inference goes
wrong in silence, low where few will ever see it. The specs are the documented formulas, written so that nothing cancels
or overflows needlessly; torch's own function as the spec would bring what torch's algorithms are allowed.

{table}

Of {all} Triton kernels of the [league](league.md)'s libraries that were called with more than 2^31 elements on {day},
{right} held, {refusals} refused the call by an exception, {unasked} were not asked, {failing} are wrong for another
reason, and {wraps} wrap and touch other memory ([how](questions.md#beyond-231-elements)). {losses} further losses of
torch's kernels on CPUs are those that `benchmarks/torch_against_itself.py` shows.

## All findings

On the built site a table stands here that is filtered by library, kind, severity and text; a finding opens to what is
documented, whom it hurts, reports of others, its figures, and at which release its program was tried last. In a
checkout, [findings.json](findings.json) is the same, with the accesses that wrap and the losses.
"""


@dataclass(frozen=True)
class Program:
    """A finding as its program tells it, read without importing anything."""

    name: str
    title: str
    text: str
    library: str
    version: str
    kind: str
    severity: str


@dataclass(frozen=True)
class Figures:
    """What a program printed, when, and with which version."""

    date: str
    version: str
    text: str


def program(path: Path) -> Program | None:
    """The finding of a file; None for a module that programs share."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    results: dict[str, str] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple):
            names = [each.id for each in node.targets[0].elts if isinstance(each, ast.Name)]
            if set(names) & {"LIBRARY", "KIND"}:
                results.update(zip(names, ast.literal_eval(node.value), strict=True))
    if "LIBRARY" not in results:
        return None
    title, _, text = (ast.get_docstring(tree) or "").partition("\n\n")
    dossier = tomllib.loads((DOSSIERS / f"{path.stem}.toml").read_text(encoding="utf-8"))
    text = f"{text.rstrip()}\n\n{dossier['upstream'].strip()}"
    return Program(path.stem, title, text, results["LIBRARY"], results["VERSION"], results["KIND"], results["SEVERITY"])


def programs() -> list[Program]:
    """All findings, the severest first."""
    results = [each for each in map(program, sorted(PROGRAMS.glob("*.py"))) if each is not None]
    return sorted(results, key=lambda each: (SEVERITIES.index(each.severity), KINDS.index(each.kind), each.name))


def data() -> dict[str, Any]:
    """All of docs/findings.json: the findings, the kernels whose indices wrap, and what torch's kernels lose."""
    record = json.loads(FIGURES.read_text(encoding="utf-8"))
    attempts = json.loads((DOSSIERS / "attempts.json").read_text(encoding="utf-8"))
    rows = [
        {**asdict(each), "figures": record["figures"][each.name], "tried": attempts[each.name][-1]}
        for each in programs()
    ]
    losses = [{"of": loss.of, "dtypes": loss.dtypes.split("|"), "why": loss.why} for loss in LOSSES]
    far = json.loads(FAR.read_text(encoding="utf-8"))
    return {"schema": SCHEMA, "machine": record["machine"], "findings": rows, "far": far, "losses": losses}


def page(record: Mapping[str, Any]) -> str:
    """The text of docs/findings.md, from all data."""
    rows, far, counts = record["findings"], record["far"], Counter(record["far"]["outcomes"])
    wraps = len({(each["library"], each["call"]) for each in far["wraps"]})
    lines = ["| library | findings | wrong result | high | medium | low |", "|---|---|---|---|---|---|"]
    for name in [*sorted({each["library"] for each in rows}), "all"]:
        mine = [each for each in rows if name in (each["library"], "all")]
        of = Counter(each["severity"] for each in mine)
        wrong = sum(each["kind"] == KINDS[0] for each in mine)
        lines.append(f"| {name} | {len(mine)} | {wrong} | " + " | ".join(f"{of[each]}" for each in SEVERITIES) + " |")
    return _PAGE.format(
        machine=record["machine"], table="\n".join(lines), all=counts.total(), day=far["day"],
        right=counts["verified"] + counts["weak"], refusals=counts["refused"], wraps=wraps,
        unasked=counts["unsupported"] + counts["error"], failing=counts["fail"] - wraps, losses=len(record["losses"]),
    )  # fmt: skip


def write_page() -> None:
    """Write docs/findings.json and docs/findings.md."""
    record = data()
    DATA.write_text(json.dumps(record, indent=0, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(page(record), encoding="utf-8")


def outcome(path: Path) -> tuple[str, str]:
    """The outcome of a program, and what it printed."""
    return run_program([str(path)], "  opassay ", _SECONDS)


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if "model name" in line
        ),
        platform.machine(),
    )
    return f"{model}, Python {platform.python_version()}"


def main() -> int:
    """Run what was asked for, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="findings; all without one")
    parser.add_argument(
        "--write", action="store_true", help="write docs/findings.md and its data with the figures of this run"
    )
    options = parser.parse_args()
    every = programs()
    if unknown := set(options.names) - {each.name for each in every}:
        parser.error(
            f"no finding is named {', '.join(sorted(unknown))}: need one of {', '.join(x.name for x in every)}"
        )
    record = json.loads(FIGURES.read_text(encoding="utf-8")) if FIGURES.exists() else {"figures": {}}
    outcomes = []
    for each in every:
        if options.names and each.name not in options.names:
            continue
        state, text = outcome(PROGRAMS / f"{each.name}.py")
        outcomes.append(state)
        print(f"{each.name:24} {each.library + ' ' + each.version:22} {state}", flush=True)
        if state in (ERROR, "disagreed", "not run"):
            print("    " + text.replace("\n", "\n    "))
        elif options.write:
            first, _, rest = text.rpartition(f"{each.library} ")[2].partition("\n")
            record["figures"][each.name] = asdict(Figures(datetime.now(UTC).date().isoformat(), first, rest))
    if options.write:
        # Figures of findings that were not asked now are still those of the machines before.
        before = record.get("machine", "").split("; ") if options.names else []
        machine = "; ".join(dict.fromkeys([*filter(None, before), _machine()]))
        record = {"machine": machine, "figures": dict(sorted(record["figures"].items()))}
        FIGURES.write_text(json.dumps(record, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        write_page()
    return 3 if {ERROR, "disagreed"} & set(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
