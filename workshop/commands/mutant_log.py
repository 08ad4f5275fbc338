"""The log of a campaign of mutants: what it was, then a line for each trial; and what the lines say together."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from opassay.reports import exit_codes
from opassay.reports.cli.host import Stop

from ..mutation.campaign import Settings
from ..mutation.equivalents import Equivalent, why_equivalent
from ..mutation.mutants import Mutant

Record = dict[str, Any]
#: What the first line of a log has to say for a campaign to go on in it.
DECISIVE = ("ops", "seed", "most", "version", "torch", "graph")


@dataclass(frozen=True)
class Fate:
    """What became of a mutant.

    Attributes:
        outcome: "killed", "survived", "equivalent", "same" (compiled to the same code), "not reached", or "not
            planted", where no function of the process has the code, or all questions were asked and no call of them was
            changed: tracing lines, by which places of the graph are found, may take torch another way.
        by: the property that refused it. cell: the cell. how: its verdict.
        why: for an equivalent one, the reason that the table gives.
        questions, of: of a survivor, how many questions it got, and how many cells run its lines; each cell
            asks twice.
    """

    mutant: Mutant
    outcome: str
    by: str = ""
    cell: str = ""
    how: str = ""
    why: str = ""
    questions: int = 0
    of: int = 0

    @property
    def short(self) -> bool:
        """Whether a survivor ran out of its time before every question was asked in full."""
        return self.outcome == "survived" and self.questions < 2 * self.of


def heading_of(ops: Sequence[str], settings: Settings) -> dict[str, Any]:
    """The first line of a log: which campaign it is."""
    return {
        "opassay mutate": 1, "ops": list(ops), "seed": settings.seed, "most": settings.most,
        "version": version("opassay"), "torch": version("torch"), **({"graph": True} if settings.graph else {}),
    }  # fmt: skip


def open_log(path: Path, heading: Mapping[str, Any], resume: bool) -> list[Record]:
    """Begin a log, or find what a campaign of the same heading left in it; the last half line of it is dropped.

    Raises:
        Stop: there is a log already, or it is another campaign's.
    """
    if not resume or not path.exists():
        if path.exists():
            raise Stop(exit_codes.USAGE, f"--log: {path} exists; need another file, or --resume to go on in it")
        path.write_text(json.dumps(heading) + "\n", encoding="utf-8")
        return []
    first, *records = _whole_lines(path)
    other = [name for name in DECISIVE if first.get(name) != heading.get(name)]
    if other:
        name = other[0]
        got, need = first.get(name), heading.get(name)
        raise Stop(exit_codes.USAGE, f"{path}: got {name}={got!r}, need {need!r} to go on in it")
    path.write_text("".join(json.dumps(record) + "\n" for record in (first, *records)), encoding="utf-8")
    return records


def _whole_lines(path: Path) -> list[Record]:
    lines = path.read_text(encoding="utf-8").split("\n")[:-1]
    try:
        records: list[Record] = [json.loads(line) for line in lines]
    except ValueError:
        raise Stop(exit_codes.USAGE, f"{path} is no log of opassay mutate") from None
    if not records or "opassay mutate" not in records[0]:
        raise Stop(exit_codes.USAGE, f"{path} is no log of opassay mutate")
    return records


def graph_mutants_of(records: Iterable[Record]) -> list[Mutant]:
    """The chosen mutants of the graph, each once: what they are is known only to the process that ran the ops."""
    mutants = [Mutant.of(data) for record in records for data in record.get("found", ())]
    return list({mutant.key: mutant for mutant in mutants}.values())


def exclusions_of(records: Iterable[Record]) -> list[Record]:
    """The cells that no mutant was asked, because they do not hold without one: each once, as it was seen last."""
    return list({record["excluded"]: record for record in records if "excluded" in record}.values())


def fates(mutants: Sequence[Mutant], records: Iterable[Record], table: Sequence[Equivalent]) -> list[Fate]:
    """What became of each mutant, from all that was recorded of it."""
    # A mutant that was asked again, for longer, has two records of one group, of which the later one counts.
    by_key: dict[str, dict[str, Record]] = {}
    for record in records:
        if "mutant" in record:
            by_key.setdefault(record["mutant"], {})[record["group"]] = record
    return [_fate(one, [*by_key.get(one.key, {}).values()], why_equivalent(one, table)) for one in mutants]


def _fate(mutant: Mutant, records: Sequence[Record], why: str) -> Fate:
    for record in records:
        if record["outcome"] == "killed":
            return Fate(mutant, "killed", record["by"], record["cell"], record["how"], why)
    if any(record["outcome"] == "same" for record in records):
        return Fate(mutant, "same")
    questions, of = (sum(record[name] for record in records) for name in ("asked", "of"))
    if why:
        return Fate(mutant, "equivalent", why=why, questions=questions, of=of)
    if any(record["outcome"] == "survived" and not _is_unchanged(record) for record in records):
        return Fate(mutant, "survived", questions=questions, of=of)
    return Fate(mutant, "not planted" if records else "not reached")


def _is_unchanged(record: Record) -> bool:
    """Whether all questions were asked, and no call of theirs was changed."""
    return record.get("calls") == 0 and bool(record["asked"] >= 2 * record["of"])
