"""What the framework found in public kernels: runs a program for each finding, and says what is there still.

    python benchmarks/findings.py [NAME]...      # a table: finding, library and version, present or fixed or not run
    python benchmarks/findings.py --write        # and docs/findings.md, with the figures of this run

The programs are in `benchmarks/findings/`; each runs on its own, too. They need the libraries that they judge. One that
is not installed makes its findings `not run`. Exit codes: 0, or 3 where mpmath and opassay disagree or a program broke.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import sys
import textwrap
import tomllib
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))  # a script finds the modules of its own folder alone
from benchmarks.losses import LOSSES  # noqa: E402
from corpus.running import ERROR, run_program  # noqa: E402

PROGRAMS, FIGURES, FAR = HERE / "findings", HERE / "findings" / "figures.json", HERE / "findings" / "far.json"
DOSSIERS = HERE.parent / "corpus" / "upstream"
PAGE = HERE.parent / "docs" / "findings.md"
KINDS, SEVERITIES = ("wrong result", "less accurate"), ("high", "medium", "low")
_SECONDS = 300.0

_INTRODUCTION = """\
# What opassay found in public kernels

Each section is a program that a reader can run: it calls the installed library, computes the exact values of the same
inputs with mpmath, which shares no code with opassay, and has opassay judge the output by a spec. The program fails if
mpmath's values do not lie in opassay's balls, or if the two judge differently. The figures were taken with one thread
on: {machine}.

```
python benchmarks/findings.py              # all of them: present, fixed, or not run
python benchmarks/findings/torch_ndtr.py   # one; exit code 1 while the fault is there, 0 without it, 2 if not run
```

*Wrong result*: on inputs of the documented domain the output is wrong in its first digits, or has none that is right,
and is of use by itself (a probability, a distance, a gradient). *Less accurate*: it is off by more than roundings of
the documented formula can make it, but the error is small beside the tensors that it commonly stands in. Severity is
high where a training or an inference goes wrong in silence, low where few will ever see it. A bound is opassay's: the
furthest that an evaluation of the spec by the terms may be off.

A bound is as sharp as its spec. The specs here are the documented formulas, written so that nothing cancels or
overflows needlessly. Torch's own function as the spec brings what torch's algorithms are allowed, and where that is as
wide as the fault, opassay accepts the fault, or judges nothing where an evaluation may overflow. Sections on functions
of torch, and on group norm, say how that ended.
"""

_WRAPS = """\
## Indices of 32 bits: kernels that are wrong beyond 2^31 elements

`python benchmarks/far.py --league` calls each Triton kernel of the [league](league.md)'s libraries with so many rows
that a tensor has more than 2^31 elements ([how](judge_your_kernel.md#beyond-231-elements)), forward: Liger's and fla's
in float32, those of libraries whose host code asks for a GPU in bfloat16 on the [rehearsal device](rehearsed.md). On
{day} of {all} kernels {held} held there and {refused} refused the call by an exception; {unasked} were not asked, most
because their spec mixes rows or their host code copies a tensor, and {failing} are wrong for another reason.
{wraps} wrap, and touch other memory:
"""
_LOSSES = """\
## What torch's kernels lose on CPUs

`benchmarks/torch_against_itself.py` holds every function of torch that opassay reads by its own bound, values and
gradients. Of what is outside there, each is listed here or has a section above, with the number that float64 or mpmath
has. None of it is what the same operations give when each is computed in float64 and rounded once.
"""

_DOSSIERS = """\
## As an issue for the library

Each finding has a dossier in the form that maintainers act on: a program of at most 15 lines that imports the library
alone, what comes and what is right, the same value by another way of the library, the mechanism, who is hurt, versions
with dates, a regression test, and reports of others. `--run` tries the programs with any interpreter and keeps what
came; `--check` says what a dossier lacks. A person files it.

```
python -m workshop upstream                                          # all, with versions and outcomes
python -m workshop upstream torch_ndtr                               # one as Markdown
python -m workshop upstream --run --python OTHER-ENV/bin/python      # try all with what is installed there
python -m workshop upstream --check
```

Of {programs} programs, at the newest release at which each was tried:
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


def table(programs: Sequence[Program]) -> str:
    """The findings in one table."""
    lines = ["| finding | library | | severity |", "|---|---|---|---|"]
    for each in programs:
        anchor = "".join(letter for letter in each.title.lower() if letter.isalnum() or letter in " -_").replace(
            " ", "-"
        )
        lines.append(f"| [{each.title}](#{anchor}) | {each.library} {each.version} | {each.kind} | {each.severity} |")
    return "\n".join(lines)


def section(program: Program, figures: Figures) -> str:
    """A finding in the page."""
    about = f"`benchmarks/findings/{program.name}.py`, {figures.date}, {program.library} {figures.version}"
    return (
        f"## {program.title}\n\n*{program.kind.capitalize()}, severity {program.severity}.*\n\n{program.text}\n\n"
        f"{about}:\n\n```text\n{figures.text}\n```\n"
    )


def page() -> str:
    """The page of the docs: from the texts of the programs, and their figures in `figures.json`."""
    record = json.loads(FIGURES.read_text(encoding="utf-8"))
    figures = {name: Figures(**each) for name, each in record["figures"].items()}
    result = programs()
    parts = [_INTRODUCTION.format(machine=record["machine"]), table(result) + "\n", _dossiers(result), _far()]
    return "\n".join([*parts, *(section(each, figures[each.name]) for each in result), _losses()])


def _far() -> str:
    """The table of kernels whose indices of 32 bits wrap."""
    record = json.loads(FAR.read_text(encoding="utf-8"))
    counts = Counter(record["outcomes"])
    wraps = len({(each["library"], each["call"]) for each in record["wraps"]})
    text = _WRAPS.format(
        day=record["day"], all=counts.total(), held=counts["verified"] + counts["weak"], refused=counts["refused"],
        unasked=counts["unsupported"] + counts["error"], wraps=wraps, failing=counts["fail"] - wraps,
    )  # fmt: skip
    rows = [
        f"| {each['library']} | `{each['call']}` | {each['access']} | {each['product']} |" for each in record["wraps"]
    ]
    head = ["| library | kernel | first access that is wrong | what 32 bits did not hold |", "|---|---|---|---|"]
    return "\n".join([text, *head, *rows, ""])


def _dossiers(programs: Sequence[Program]) -> str:
    """How a finding becomes an issue, and what came of the programs of all."""
    attempts = json.loads((DOSSIERS / "attempts.json").read_text(encoding="utf-8"))
    counts: dict[str, list[str]] = {}
    for each in programs:
        newest = attempts[each.name][-1]
        about = f"{each.library} {newest['version']}" if newest["version"] else newest["output"]
        counts.setdefault(f"{about}, {newest['day']}: {newest['outcome']}", []).append(f"`{each.name}`")
    lines = [f"- {about}: {len(names)}, {', '.join(names)}" for about, names in sorted(counts.items())]
    rows = [row for line in lines for row in textwrap.wrap(line, 120, subsequent_indent="  ", break_on_hyphens=False)]
    return "\n".join([_DOSSIERS.format(programs=len(programs)), *rows, ""])


def _losses() -> str:
    """What else `torch_against_itself.py` shows, a line each."""
    lines = [f"- {loss.of} ({' and '.join(loss.dtypes.split('|'))}): {loss.why}" for loss in LOSSES]
    return "\n".join(
        [_LOSSES, *(line for text in lines for line in textwrap.wrap(text, 120, subsequent_indent="  ")), ""]
    )


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
    parser.add_argument("--write", action="store_true", help="write docs/findings.md with the figures of this run")
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
        PAGE.write_text(page(), encoding="utf-8")
    return 3 if {ERROR, "disagreed"} & set(outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
