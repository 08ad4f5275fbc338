"""The cells of a plan as work of a campaign: each is asked with every seed, and its verdicts become one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from ....oracles.verdicts.verdict import HELD, Cell, Verdict, counted
from ....properties.campaign.performing import Item
from ....properties.places.crash_search import find_culprit
from ....properties.places.pool import owner_of
from ...collect import Account, died
from ...exit_codes import Reason
from ...progress import Teller
from ...store import log
from ...store.journal import Lost
from ...text import number
from ..session import FAILURES, Request, accepted
from .draws import joined, seeds_of
from .work import WorkError


class CellWork:
    """Cells, and the account in which their verdicts end.

    Args:
        cells: those that are asked. request: how. seeds: how many draws of each cell. account: of the record.
        teller: who tells the user.
    """

    def __init__(self, cells: Sequence[Cell], request: Request, seeds: int, account: Account, teller: Teller) -> None:
        self._account, self._teller, self._seeds, self._request = account, teller, seeds, request
        self._lost: dict[tuple[str, ...], tuple[Item, Lost]] = {}  # one of each group of items
        self._found: dict[str, dict[int, Verdict]] = {cell.key: {} for cell in cells}
        self._cells: dict[str, tuple[Cell, int]] = {}  # of items, by name: the cell, and its how manieth draw
        self._items: list[Item] = []
        self._worst: tuple[float, str] = (0.0, "")
        self._failing: dict[str, None] = {}
        self.lines: list[str] = []  # cells have a report of their own
        # Every cell is asked once before any is asked a second time, so that what is plainly wrong is seen early.
        for draw, seed in enumerate(seeds_of(request.seed, seeds)):
            for cell in cells:
                self._plan(cell, draw, seed, request)

    def items(self) -> Sequence[Item]:
        return self._items

    def take(self, item: Item, answer: dict[str, Any], notes: Sequence[str]) -> bool:
        cell, draw = self._cells[item.name]
        try:
            verdict = accepted(cell, answer.get("verdict"))
        except ValueError as err:
            raise WorkError(f"something that is no verdict on its cell ({err})") from err
        for note in (*map(str, answer.get("notes", ())), *notes):
            self._account.take(log.Noted(note))
        return self._enter(draw, verdict)

    def lose(self, item: Item, lost: Lost) -> None:
        cell, draw = self._cells[item.name]
        told = (lost.case_id, lost.case, lost.program)
        verdict = died(cell, log.CellDied(cell.key, lost.timed_out, lost.how, lost.details, *told))
        if lost.case:
            self._account.on_case(lost.case_id, lost.case, lost.program)
        if draw not in self._found[cell.key]:
            self._enter(draw, verdict)
        else:
            self._found[cell.key][draw] = verdict
            self._finish(cell.key)
        if not lost.timed_out:
            self._lost[item.group] = self._lost.get(item.group, (item, lost)) if not lost.case else (item, lost)

    def inquire(self, stopped: Callable[[], bool]) -> Iterator[tuple[Item, Lost]]:
        # One cell of each op, property and subject is looked into, as in a run: dtypes hardly differ.
        for item, lost in list(self._lost.values()):
            if stopped():
                return
            # What ended the workers above its process might end this process, too.
            if lost.case or lost.with_worker:
                continue
            cell, terms = self._cells[item.name][0], self._request.terms()
            found = find_culprit(cell, item.question["settings"], terms.timeout, terms.command, stopped)
            if found is not None:
                named = {"case_id": found.case_id, "case": found.case, "program": found.program}
                yield item, msgspec.structs.replace(lost, **named)

    def leave(self, items: Sequence[Item], why: str) -> None:
        keys = dict.fromkeys(self._cells[item.name][0].key for item in items)
        self._account.take(log.CellsGivenUp(list(keys), why))
        self._teller.left_out(len(items), why)

    def finish(self, interrupted: str) -> list[Reason]:
        # Of a cell that was not asked with every seed, what was found wrong is told; that nothing was found says
        # nothing, because less was asked than was asked for.
        for found in self._found.values():
            partly = [found[draw] for draw in sorted(found)]
            if 0 < len(partly) < self._seeds and any(verdict.outcome not in HELD for verdict in partly):
                self._account.take(log.finished(joined(partly)))
        return []

    def worst(self) -> str:
        ratio, key = self._worst
        said = [f"largest error/bound {number(ratio)}, {key}"] if key else []
        if self._failing:
            last = list(self._failing)[-1]
            said.append(f"{counted(len(self._failing), 'failing cell')}, last {last}")
        return "; ".join(said)

    def _plan(self, cell: Cell, draw: int, seed: int, request: Request) -> None:
        settings = {"profile": request.profile, "seed": seed, "max_examples": request.max_examples}
        question = {"cell": [cell.op, cell.property, cell.dtype, cell.device, cell.subject], "settings": settings}
        group, topic = (cell.op, cell.subject, cell.property), f"{cell.op} {draw}"
        item = Item("cell", f"{cell.key} seed {seed}", group, owner_of(cell.op), question, topic)
        self._items.append(item)
        self._cells[item.name] = (cell, draw)

    def _finish(self, key: str) -> None:
        """Give the account the verdict on a cell that every draw has one on, in place of the one that it has."""
        found = self._found[key]
        if len(found) == self._seeds:
            self._account.finished.pop(key, None)
            self._account.take(log.finished(joined([found[draw] for draw in sorted(found)])))

    def _enter(self, draw: int, verdict: Verdict) -> bool:
        key = verdict.cell.key
        found = self._found[key]
        found[draw] = verdict
        self._finish(key)
        if verdict.measure.judged and verdict.outcome in HELD and verdict.measure.max_ratio > self._worst[0]:
            self._worst = (verdict.measure.max_ratio, key)
        failed = verdict.outcome in FAILURES
        if failed and key in self._failing:
            self._teller.counted(str(verdict.outcome))  # the first draw that failed has been told at length
        else:
            self._teller.finished(verdict)
        if failed:
            self._failing[key] = None
        return failed
