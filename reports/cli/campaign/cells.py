"""The cells of a plan as work of a campaign: each is asked with every seed, and its verdicts become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import msgspec

from ....oracles.verdicts.verdict import HELD, Bin, Cell, Failure, Measure, Verdict, quantity
from ....properties.campaign.performing import Item
from ....properties.places.crash_search import find_culprit
from ....properties.places.pool import owner_of
from ...certificate.statement import extents
from ...collect import Account, make_death_verdict, worse
from ...exit_codes import Reason
from ...progress import Teller
from ...store import log
from ...store.journal import Lost
from ...text import BAD, by_key, number
from ..session import Request, read_verdict
from .work import WorkError

#: How far the seeds of two draws of a cell are apart. A cell whose errors lean to one side is drawn once more, with
#: the next seed (`properties.engine.cells`), which must not be the first seed of another draw.
STEP = 2
_MOST = 64  # of regimes, sizes and failures in a record


def seeds_of(first: int, count: int) -> list[int]:
    """The seeds of `count` draws of every cell; the first is that of a run."""
    return [first + STEP * draw for draw in range(count)]


def join_verdicts(verdicts: Sequence[Verdict]) -> Verdict:
    """The verdict on a cell that was drawn several times: the worst of all, and the measures of all together.

    Counts are sums, errors and ratios the largest. Of widths and typical errors each draw has a median, from
    which the median over all draws cannot be had; the largest stands for it.
    """
    worst = reduce(worse, verdicts)
    if len(verdicts) == 1:
        return worst
    return replace(
        worst,
        measure=_together([verdict.measure for verdict in verdicts]),
        seconds=sum(verdict.seconds for verdict in verdicts),
        timing=_summed_seconds(pair for verdict in verdicts for pair in verdict.timing),
        changed=tuple(dict.fromkeys(line for verdict in verdicts for line in verdict.changed))[:_MOST],
        others=_other_failures(worst, verdicts),
    )


def _other_failures(worst: Verdict, verdicts: Sequence[Verdict]) -> tuple[Failure, ...]:
    if worst.failure is None:
        return ()
    every = [failure for verdict in (worst, *verdicts) for failure in verdict.causes]
    by_kind = {(failure.code, failure.signs.path, failure.signs.output, failure.signs.error): failure for failure in
               reversed(every)}  # fmt: skip
    return tuple(failure for failure in by_kind.values() if failure is not worst.failure)[:_MOST]


#: Counts of a measure, and errors, ratios and widths.
_SUMMED = ("samples", "discarded", "judged", "not_judged", "refused")
_LARGEST = ("max_ulp", "max_ratio", "detect_median", "detect_worst", "ulp_median", "ulp_p99", "scaled_median",
            "scaled_p99", "scaled_max")  # fmt: skip


def _together(measures: Sequence[Measure]) -> Measure:
    worst = max(measures, key=lambda measure: (measure.worst is not None, measure.max_ratio))
    together: dict[str, Any] = {name: sum(getattr(measure, name) for measure in measures) for name in _SUMMED}
    together |= {name: _largest_number(getattr(measure, name) for measure in measures) for name in _LARGEST}
    sizes = extents(size for measure in measures for size in measure.sizes)[:_MOST]
    return replace(worst, **together, regimes=_regimes(measures), bins=_bins(measures), sizes=sizes)


def _bins(measures: Sequence[Measure]) -> tuple[str, ...]:
    bins = by_key((Bin.of(text) for measure in measures for text in measure.bins), lambda one: (one.kind, one.low))
    return tuple(reduce(Bin.joined, bins[key]).text for key in sorted(bins))


def _largest_number(values: Iterable[float]) -> float:
    """The largest of the numbers; NaN where all are."""
    return max((value for value in values if not math.isnan(value)), default=math.nan)


def _summed_seconds(pairs: Iterable[tuple[str, float]]) -> tuple[tuple[str, float], ...]:
    groups = by_key(pairs, lambda pair: pair[0])
    return tuple((name, sum(seconds for _, seconds in group)) for name, group in groups.items())


def _regimes(measures: Sequence[Measure]) -> tuple[tuple[str, int, int], ...]:
    groups = by_key((regime for measure in measures for regime in measure.regimes), lambda regime: regime[0])
    counts = {name: (sum(one[1] for one in group), sum(one[2] for one in group)) for name, group in groups.items()}
    # Where there are too many regimes, those with the fewest judged elements are kept, as in the tally of one draw.
    least = sorted(counts, key=lambda name: counts[name])[:_MOST]
    return tuple((name, *counts[name]) for name in sorted(least))


class CellWork:
    """Cells, and the account in which their verdicts end.

    Args:
        cells: those that are judged. request: settings and limits of time. seeds: how many draws of each cell.
        account: of the record. teller: prints progress.
    """

    def __init__(self, cells: Sequence[Cell], request: Request, seeds: int, account: Account, teller: Teller) -> None:
        self._account, self._teller, self._seeds, self._request = account, teller, seeds, request
        self._losses: dict[tuple[str, ...], tuple[Item, Lost]] = {}  # one of each group of items
        self._verdicts: dict[str, dict[int, Verdict]] = {cell.key: {} for cell in cells}
        self._cells: dict[str, tuple[Cell, int]] = {}  # by name of an item: its cell, and the number of its draw
        self._items: list[Item] = []
        self._worst: tuple[float, str] = (0.0, "")
        self._failing: dict[str, None] = {}
        self.lines: list[str] = []  # cells have a report of their own
        # Every cell is asked once before any is asked a second time, so that what is plainly wrong is seen early.
        for draw, seed in enumerate(seeds_of(request.terms.settings["seed"], seeds)):
            for cell in cells:
                self._plan(cell, draw, seed, request)

    def items(self) -> Sequence[Item]:
        return self._items

    def take(self, item: Item, answer: dict[str, Any], notes: Sequence[str]) -> bool:
        cell, draw = self._cells[item.name]
        try:
            verdict = read_verdict(cell, answer.get("verdict"))
        except ValueError as err:
            raise WorkError(f"something that is no verdict on its cell ({err})") from err
        for note in (*map(str, answer.get("notes", ())), *notes):
            self._account.take(log.Noted(note))
        return self._enter(draw, verdict)

    def lose(self, item: Item, lost: Lost) -> None:
        cell, draw = self._cells[item.name]
        case_fields = (lost.case_id, lost.case, lost.program)
        verdict = make_death_verdict(cell, log.CellDied(cell.key, lost.timed_out, lost.how, lost.details, *case_fields))
        if lost.case:
            self._account.on_case(lost.case_id, lost.case, lost.program)
        if draw not in self._verdicts[cell.key]:
            self._enter(draw, verdict)
        else:
            self._verdicts[cell.key][draw] = verdict
            self._finish(cell.key)
        # `inquire` looks into the first loss of a group, until one with its case is there: then the culprit is known.
        if not lost.timed_out:
            self._losses[item.group] = self._losses.get(item.group, (item, lost)) if not lost.case else (item, lost)

    def inquire(self, stopped: Callable[[], bool]) -> Iterator[tuple[Item, Lost]]:
        # For one cell of each op, property and subject the call that ended the worker is searched, as in a run: the
        # dtypes of a cell hardly matter for that.
        for item, lost in list(self._losses.values()):
            if stopped():
                return
            # A call that ended also the parent of its process might end this process, too.
            if lost.case or lost.with_worker:
                continue
            cell, terms = self._cells[item.name][0], self._request.terms
            case = find_culprit(cell, item.question["settings"], terms.timeout, terms.command, stopped)
            if case is not None:
                case_fields = {"case_id": case.case_id, "case": case.case, "program": case.program}
                yield item, msgspec.structs.replace(lost, **case_fields)

    def leave(self, items: Sequence[Item], why: str) -> None:
        keys = dict.fromkeys(self._cells[item.name][0].key for item in items)
        self._account.take(log.CellsGivenUp(list(keys), why))
        self._teller.skip(len(items), why)

    def finish(self, interrupted: str) -> list[Reason]:
        # A cell that was not asked with every seed is entered where one of its draws failed. Otherwise it stays without
        # a verdict, because fewer draws were judged than were asked for.
        for by_draw in self._verdicts.values():
            verdicts = [by_draw[draw] for draw in sorted(by_draw)]
            if 0 < len(verdicts) < self._seeds and any(verdict.outcome not in HELD for verdict in verdicts):
                self._account.take(log.verdict_event(join_verdicts(verdicts)))
        return []

    def worst(self) -> str:
        ratio, key = self._worst
        parts = [f"largest error/bound {number(ratio)}, {key}"] if key else []
        if self._failing:
            last = list(self._failing)[-1]
            parts.append(f"{quantity(len(self._failing), 'failing cell')}, last {last}")
        return "; ".join(parts)

    def _plan(self, cell: Cell, draw: int, seed: int, request: Request) -> None:
        settings = {**request.terms.settings, "seed": seed}
        question = {"cell": [cell.op, cell.property, cell.dtype, cell.device, cell.subject], "settings": settings}
        group, topic = (cell.op, cell.subject, cell.property), f"{cell.op} {draw}"
        item = Item("cell", f"{cell.key} seed {seed}", group, owner_of(cell.op), question, topic)
        self._items.append(item)
        self._cells[item.name] = (cell, draw)

    def _finish(self, key: str) -> None:
        """Once every draw of a cell has a verdict, record their joint verdict in place of an earlier one."""
        by_draw = self._verdicts[key]
        if len(by_draw) == self._seeds:
            self._account.finished.pop(key, None)
            self._account.take(log.verdict_event(join_verdicts([by_draw[draw] for draw in sorted(by_draw)])))

    def _enter(self, draw: int, verdict: Verdict) -> bool:
        key = verdict.cell.key
        by_draw = self._verdicts[key]
        by_draw[draw] = verdict
        self._finish(key)
        if verdict.measure.judged and verdict.outcome in HELD and verdict.measure.max_ratio > self._worst[0]:
            self._worst = (verdict.measure.max_ratio, key)
        failed = verdict.outcome in BAD
        if failed and key in self._failing:
            self._teller.count_outcome(str(verdict.outcome))  # the first draw that failed has been told at length
        else:
            self._teller.count_verdict(verdict)
        if failed:
            self._failing[key] = None
        return failed
