"""One session of a campaign: what the log has is taken from there, and the rest is asked of a cluster."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ....properties.campaign.bench import ItemLost
from ....properties.campaign.performing import Item, ItemLimits, ItemReport
from ....properties.engine.environment import source_digest
from ....properties.places.crash_limit import CrashLimit
from ....properties.places.pool import LOUD, describe_leftovers, describe_printing
from ... import exit_codes
from ...exit_codes import Reason
from ...merge import DECISIVE
from ...progress import Teller
from ...store import journal, log
from ...text import one_line
from .cluster import WORKERS_ENDED, Cluster, ClusterError
from .work import Work, WorkError


class _Unlike(ValueError):
    """A worker has another source, or other libraries, than the campaign began with."""


@dataclass
class Conduct:
    """Asks what is missing, and tells the works, the log and the user what comes of it.

    Attributes:
        works: by kind. book: the log. teller: who tells the user. maxfail: failures after which to stop; 0: never.
        ending: why the user has asked for the end; empty if not.
        environment: where items were run; empty while none was. seconds: of this session and those before it.
    """

    works: dict[str, Work]
    book: journal.Journal
    teller: Teller
    ending: Callable[[], str]
    maxfail: int = 0
    environment: dict[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    _finished_items: set[tuple[str, str]] = field(default_factory=set)
    _deaths: CrashLimit = field(default_factory=CrashLimit)
    _printed: Counter[str] = field(default_factory=Counter)
    _abandoned_items: list[Item] = field(default_factory=list)
    _failures: int = 0

    def resume(self) -> int:
        """Take in the results that the log has; returns how many items those are."""
        items = {(item.kind, item.name): item for work in self.works.values() for item in work.items()}
        last = 0.0
        for line in self.book.lines:
            match line:
                case log.Environment(environment=environment):
                    self.environment = self.environment or dict(environment)
                case journal.Done() | journal.Lost():
                    # Times of one session only grow, so a smaller one begins another session.
                    self.seconds, last = self.seconds + (last if line.at < last else 0.0), line.at
                    item = items.get((line.kind, line.item))
                    more = isinstance(line, journal.Lost) and bool(line.case)
                    if item is not None and (more or (line.kind, line.item) not in self._finished_items):
                        self._take(item, line)
        self.seconds += last
        return len(self._finished_items)

    def run(self, cluster: Cluster, manner: ItemLimits) -> list[Reason]:
        """Ask the items that are not done.

        Returns:
            Why some were not asked, if so, each reason with its exit code.
        """
        items = [item for work in self.works.values() for item in work.items()]
        missing = [item for item in items if (item.kind, item.name) not in self._finished_items]
        reasons: list[Reason] = []
        began = time.monotonic()
        try:
            for event in cluster.run(missing, manner, self._may_run, self._must_stop):
                if event is not None:
                    item, outcome = event
                    self._write(item, outcome, time.monotonic() - began)
            for work in self.works.values():
                for item, lost in work.inquire(self._must_stop):
                    self._take(item, lost)
                    self.book.write(lost)
        except KeyboardInterrupt:
            pass  # heard while a crash was looked into; `ending` says so below
        except (ClusterError, WorkError) as err:
            reasons.append((exit_codes.INTERNAL, one_line(str(err), 500)))
        except _Unlike as err:
            reasons.append((exit_codes.USAGE, str(err)))
        if self.ending():
            reasons.append((exit_codes.INTERRUPT, f"interrupted ({self.ending()}); the same command goes on"))
        self._leave()
        took = time.monotonic() - began
        self.seconds += took
        self.book.write(log.Ended(took, [*reasons]))
        return reasons

    def _must_stop(self) -> bool:
        return bool(self.ending()) or bool(self.maxfail and self._failures >= self.maxfail)

    def _may_run(self, item: Item) -> bool:
        """Whether an item may still be asked: not if items of its group have ended too many processes."""
        if not self._deaths.why(*item.group):
            return True
        self._abandoned_items.append(item)
        return False

    def _leave(self) -> None:
        groups = dict.fromkeys((item.kind, item.group) for item in self._abandoned_items)
        for kind, group in groups:
            items = [item for item in self._abandoned_items if (item.kind, item.group) == (kind, group)]
            self.works[kind].leave(items, self._deaths.why(*group))

    def _write(self, item: Item, outcome: ItemReport | ItemLost, at: float) -> None:
        """Take what came of an item `at` seconds to the log, and to its work; the log survives this process."""
        line: journal.Done | journal.Lost
        if isinstance(outcome, ItemLost):
            ended = outcome.how == WORKERS_ENDED
            line = journal.Lost(item.kind, item.name, outcome.how, outcome.details, False, at, with_worker=ended)
        else:
            self._require_alike(outcome)
            if outcome.lost is None:
                notes = self._notes(item, outcome)
                line = journal.Done(item.kind, item.name, outcome.answer, outcome.worker, at, outcome.seconds, notes)
            else:
                how, details = outcome.lost
                line = journal.Lost(item.kind, item.name, how, details, True, at)
        # An answer that is no result is not written: the item is then asked again by the next session.
        self._take(item, line)
        if self.book.write(line):
            self.teller.say(f"the log cannot be written any more ({self.book.broken}); the campaign goes on without it")

    def _take(self, item: Item, line: journal.Done | journal.Lost) -> None:
        work = self.works[item.kind]
        if isinstance(line, journal.Done):
            try:
                self._failures += work.take(item, line.answer, line.notes)
            except WorkError as err:
                raise WorkError(f"{item.name}: a process answered {err}") from err
        else:
            if (item.kind, item.name) not in self._finished_items:
                self._deaths.note(*item.group)
                self._failures += 1
            work.lose(item, line)
        self._finished_items.add((item.kind, item.name))

    def _notes(self, item: Item, answer: ItemReport) -> list[str]:
        """What a process did beside answering, as the sentences that a run would have of it."""
        op = item.group[0]
        before = self._printed[op]
        self._printed[op] += answer.printed
        notes = [describe_leftovers(item.owner, answer.left)] if item.owner and answer.left else []
        return [*notes, *([describe_printing(op, answer.began)] if before <= LOUD < self._printed[op] else [])]

    def _require_alike(self, answer: ItemReport) -> None:
        """Raises `_Unlike` for a worker whose answers cannot stand in one record with those of the others."""
        if not self.environment:
            self.environment = dict(answer.environment)
            self.book.write(log.Environment(self.environment))
        if answer.source != source_digest():
            raise _Unlike(f"worker {answer.worker} has another source of opassay; install the same everywhere")
        for name in DECISIVE:
            here, there = self.environment.get(name, "none"), answer.environment.get(name, "none")
            if here != there:
                rule = "need workers that are alike, or another log"
                raise _Unlike(f"worker {answer.worker} has {name} {there}, and the campaign began with {here}; {rule}")


def items_digest(works: Sequence[Work]) -> str:
    """SHA-256 of the names of all items, which tells one campaign from another."""
    import hashlib

    names = "\n".join(f"{item.kind} {item.name}" for work in works for item in work.items())
    return hashlib.sha256(names.encode("utf-8", "replace")).hexdigest()
