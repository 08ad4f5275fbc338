"""The two files a repository keeps: `known.json`, accepted failures, and `budget.json`, accuracy reached so far.

A known failure is accepted with its reason code and its size: a cell that fails in another way, or worse, is new.
Both are canonical JSON, one entry per line and sorted, so that reviews and merges work. A budget only
goes down, unless a raise is allowed by name and with a reason, and never above 1: the bound itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from datetime import date
from decimal import ROUND_CEILING, Context, Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec

from ..oracles.verdicts.verdict import HELD, Cell, Code, Verdict
from .record import RecordError, Run
from .store.files import read_capped
from .text import number

BUDGET_SCHEMA = 1
KNOWN_SCHEMA = 2
CAP = 1.0  # error/bound that no budget may exceed: the contract
METRIC = "max error/bound"

_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]
_Ratio = Annotated[float, msgspec.Meta(ge=0, le=CAP)]
_Size = Annotated[float, msgspec.Meta(ge=0)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
#: Codes of failures that have a size: how far an element lay outside its bound.
_SIZED = frozenset({Code.VALUE, Code.SPECIAL, Code.ADJOINT})


class KnownEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A failure, or a loss of coverage, that is accepted for a while."""

    cell: _Text
    code: Code
    at_most: _Size | Literal["inf"] | None  # largest error/bound accepted; None: the code has no measure
    reason: _Text
    issue: _Text
    owner: _Text
    expires: date


class BudgetEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The largest error/bound that a cell may show, and how it was found."""

    cell: _Text
    device_class: _Text
    metric: str
    budget: _Ratio
    kind: str  # "searched": a lower bound of the true maximum
    profile: str
    seed: int
    samples: _Count
    judged: _Count
    commit: str
    date: date
    raised: str = ""  # why the budget went up, if it did


class _KnownFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal[2]
    known: list[KnownEntry]


class _BudgetFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    schema: Literal[1]
    budget: list[BudgetEntry]


BudgetKey = tuple[str, str]  # cell, device class
Budget = dict[BudgetKey, BudgetEntry]
Known = dict[str, KnownEntry]
_F = TypeVar("_F", _KnownFile, _BudgetFile)


def load_known(path: Path) -> Known:
    """Entries by cell; RecordError for a broken file or a cell twice."""
    entries = _load(path, _KnownFile, KNOWN_SCHEMA).known
    known = {entry.cell: entry for entry in entries}
    if len(known) != len(entries):
        raise RecordError(f"{path.name}: a cell is listed twice")
    return known


def load_budget(path: Path) -> Budget:
    """Entries by cell and device class; RecordError for a broken or not canonical file, or an entry twice."""
    entries = _load(path, _BudgetFile, BUDGET_SCHEMA).budget
    budget = {(entry.cell, entry.device_class): entry for entry in entries}
    if len(budget) != len(entries):
        raise RecordError(f"{path.name}: an entry is listed twice")
    # `known.json` may be edited by hand, so its form is free. This file is written by `gate update` alone: another
    # form comes from an editor or a merge, and the next update would then change every line of it.
    if dump_budget(budget) != read_capped(path):
        raise RecordError(f"{path.name}: not canonical; need one sorted entry per line, as `baseline update` writes")
    return budget


def dump_budget(budget: Budget) -> bytes:
    return _dump("budget", BUDGET_SCHEMA, [budget[key] for key in sorted(budget)])


def dump_known(known: Known) -> bytes:
    return _dump("known", KNOWN_SCHEMA, [known[key] for key in sorted(known)])


def known_schema() -> dict[str, Any]:
    """JSON Schema of what `load_known` reads."""
    return msgspec.json.schema(_KnownFile)


def budget_schema() -> dict[str, Any]:
    """JSON Schema of what `load_budget` reads."""
    return msgspec.json.schema(_BudgetFile)


def device_class(cell: Cell, environment: Mapping[str, str]) -> str:
    """`cpu-x86_64`, `sm90`: what an accuracy may depend on beside the code."""
    if cell.device == "cpu":
        machine = environment.get("platform", "").split()
        return f"cpu-{machine[-1]}" if machine else "cpu"
    return environment.get("gpu capability", cell.device)


def size_of(verdict: Verdict) -> float | None:
    """How far the violation lay outside its bound, as error/bound; None where it has no measure."""
    ratio = verdict.measure.max_ratio
    # A ratio of 1 or less is that of the elements inside their bounds: the violation itself was not measured.
    if verdict.code not in _SIZED or ratio <= 1:
        return None
    # An error that is not a number counts as larger than every number, so that an entry with a
    # finite size never covers it.
    return math.inf if math.isnan(ratio) else ratio


def why_not_covered(entry: KnownEntry, verdict: Verdict) -> str:
    """Why an entry does not cover a verdict of its cell: what was known and what it is now; empty if it does."""
    size = size_of(verdict)
    most = None if entry.at_most is None else float(entry.at_most)
    if entry.code is verdict.code and (size is None if most is None else size is not None and size <= most):
        return ""
    was = entry.code if most is None else f"{entry.code} of at most {number(most, 4)} times its bound"
    now = verdict.code if size is None else f"{verdict.code} of {number(size, 4)} times its bound"
    return f"known was {was}, now it is {now}"


def can_have_budget(verdict: Verdict) -> bool:
    """Whether a verdict can have a budget: it held, and its largest error/bound is known."""
    return verdict.outcome in HELD and math.isfinite(verdict.measure.max_ratio)


def update(run: Run, budget: Budget, *, allow_raise: Iterable[str] = (), reason: str = "") -> tuple[Budget, list[str]]:
    """The budget after a run, and its changes in words.

    Args:
        run: verdicts that held enter; others leave their entries as they are.
        budget: before.
        allow_raise: keys of cells whose budget may go up.
        reason: why; kept in the entry.

    Raises:
        ValueError: a raise without a reason, or of a cell that the run does not have.
    """
    raises = set(allow_raise)
    if raises and not reason.strip():
        raise ValueError("baseline: --allow-raise needs --reason")
    absent = raises - {verdict.cell.key for verdict in run.verdicts}
    if absent:
        raise ValueError(f"baseline: got --allow-raise={min(absent)!r}, which is not in the run")
    after, changes = dict(budget), []
    for verdict in run.verdicts:
        if not can_have_budget(verdict):
            continue
        entry = _entry(verdict, run, reason if verdict.cell.key in raises else "")
        key = (entry.cell, entry.device_class)
        before = after.get(key)
        # A larger error of a cell that may not be raised changes nothing here. The budget stays,
        # and the gate tells the excess.
        change = _change(before, entry, verdict.cell.key in raises)
        if change:
            after[key] = entry
            changes.append(f"{entry.cell}: {change}")
    return after, changes


def prune(run: Run, budget: Budget, known: Known) -> tuple[Budget, Known, list[str]]:
    """Both without entries that the run's plan does not have, and known failures that have held."""
    # A cell that the selection of a run left out counts as gone, so this function needs the record of a whole run.
    outcomes = {verdict.cell.key: verdict.outcome for verdict in run.verdicts}
    lost = [key for key in budget if key[0] not in outcomes]
    healed = [cell for cell in known if cell not in outcomes or outcomes[cell] in HELD]
    changes = [f"budget {cell}: not in the plan" for cell, _ in lost]
    changes += [f"known {cell}: {'held' if cell in outcomes else 'not in the plan'}" for cell in healed]
    remaining = {key: entry for key, entry in budget.items() if key not in lost}
    return remaining, {cell: entry for cell, entry in known.items() if cell not in healed}, changes


def _entry(verdict: Verdict, run: Run, raised: str) -> BudgetEntry:
    measure = verdict.measure
    return BudgetEntry(
        cell=verdict.cell.key,
        device_class=device_class(verdict.cell, run.environment),
        metric=METRIC,
        budget=min(CAP, round_up(measure.max_ratio)),
        kind="searched",
        profile=run.profile,
        seed=run.seed,
        samples=measure.samples,
        judged=measure.judged,
        commit=run.commit,
        date=date.fromisoformat(run.started[:10]),
        raised=raised,
    )


def _change(before: BudgetEntry | None, entry: BudgetEntry, may_rise: bool) -> str:
    if before is None:
        return f"new, {entry.budget:g}"
    if entry.budget < before.budget:
        return f"{before.budget:g} -> {entry.budget:g}"
    if entry.budget > before.budget and may_rise:
        return f"{before.budget:g} -> {entry.budget:g}, raised: {entry.raised}"
    return ""


def round_up(ratio: float) -> float:
    """Four significant digits, upwards."""
    # Rounded to the nearest, half of the entries would lie below the error that they were made from, and
    # the same run would exceed them.
    return float(Decimal(ratio).normalize(Context(prec=4, rounding=ROUND_CEILING)))


class _Versioned(msgspec.Struct, frozen=True):
    schema: int


def _load(path: Path, kind: type[_F], schema: int) -> _F:
    content = read_capped(path)
    try:
        # The schema is read alone first. Otherwise an older file would be refused for the first field that it lacks,
        # which does not tell its owner what to do.
        version = msgspec.json.decode(content, type=_Versioned).schema
        if version != schema:
            raise RecordError(f"{path.name}: got schema={version}, need {schema}{_UPGRADE.get((kind, version), '')}")
        return msgspec.json.decode(content, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as err:
        raise RecordError(f"{path.name}: {err}") from err


_UPGRADE: dict[tuple[type[Any], int], str] = {
    (_KnownFile, 1): '; set "schema": 2 and add to every entry "code", the reason code of the failure such as "OA101",'
    ' and "at_most", the largest error/bound accepted: a number, "inf", or null where the code has no size.'
    " `opassay gate accept` writes such entries"
}


def _dump(name: str, schema: int, entries: list[Any]) -> bytes:
    lines = ",\n".join(msgspec.json.encode(entry).decode() for entry in entries)
    body = f"[\n{lines}\n]" if entries else "[]"
    return f'{{"schema": {schema}, {json.dumps(name)}: {body}}}\n'.encode()
