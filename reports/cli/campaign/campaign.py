"""`opassay campaign`: cells and seeds over a cluster's workers, with one log from which it goes on."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console

from ....oracles.verdicts.verdict import Cell
from ....properties.campaign.performing import ItemLimits
from ....properties.engine.environment import source_digest, untested
from ....properties.engine.plan import Selection
from ... import exit_codes
from ...collect import Account
from ...exit_codes import Reason
from ...progress import Teller, is_live, make_console
from ...store import journal, log
from ...store.folder import Folder
from ...store.marker import new_run_id
from ..host import Host, Stop, is_installed, require
from ..options import (
    asking_options,
    forgiving_options,
    keyword_option,
    make_request,
    plan_cells,
    selection_of,
    selection_options,
)
from ..reading import as_usage
from ..run import beginning, claim_folder, exclude_cells, first_line, make_record
from ..session import Ending, Request
from ..summary import tell_run, write_step_summary
from ..write import keep_case, write_plan, write_reports
from .cells import CellWork
from .cluster import Cluster, ClusterError
from .conducting import Conduct, items_digest
from .work import Work

#: Makes kinds of work that this package does not know, from what is asked of cells and the teller.
MakesWork = Callable[[Request, Teller], dict[str, Work]]
_INSTALL = 'distributed is not installed; pip install "opassay[verify,cluster]"'


@click.command("campaign")
@selection_options
@asking_options(workers="Workers of a cluster here.", item="item")
@click.option("--seeds", type=click.IntRange(min=1), default=1, show_default=True, help="Draws of each cell.")
@keyword_option
@click.option("--scheduler", default="", metavar="ADDRESS", help="Of a Dask scheduler that is there, instead of -n.")
@click.option("--log", "book", type=click.Path(path_type=Path, dir_okay=False), default=Path("campaign.jsonl"),
              show_default=True, help="The same log goes on where its campaign ended.")  # fmt: skip
@forgiving_options
@click.pass_obj
def campaign_command(host: Host, /, ops: tuple[str, ...], **options: Any) -> int:
    """Spread cells and draws over a cluster; ends with the record, the report and the exit code of `run`.

    The cluster is one on this machine, or that of a Dask scheduler. Every result is a line of the log at once; the same
    command with the same log asks only what is missing.
    """
    return run_campaign(host, ops, options)


def run_campaign(
    host: Host, ops: tuple[str, ...], options: dict[str, Any], *,
    asks_cells: bool = True, words: Sequence[str] = (), more: MakesWork | None = None,
) -> int:  # fmt: skip
    """Run a campaign; its exit code.

    Args:
        host: what surrounds the command. ops, options: those of the command line.
        asks_cells: whether any cells are asked.
        words: of the command line, for the record, about work that is not of this package.
        more: makes that work, by kind.
    """
    if not is_installed("distributed"):
        raise Stop(exit_codes.USAGE, _INSTALL)
    require("torch", "mpmath", "hypothesis")  # of the processes that judge
    selection = selection_of(ops, options)
    cells = plan_cells(selection) if asks_cells else []
    if not cells and more is None:
        raise Stop(exit_codes.NOTHING, "nothing selected: no cell and no other work")
    with as_usage(journal.JournalError), contextlib.ExitStack() as stack:
        book = stack.enter_context(journal.Journal(options["book"]))
        ending = stack.enter_context(Ending())
        request = _request(selection, words, options, host, book)
        exclusions = exclude_cells(cells, request, ending) if cells else {}
        folder = stack.enter_context(claim_folder(options["report_dir"])) if cells else None
        return _Campaign(request, cells, exclusions, options, book, ending, more, make_console(sys.stdout)).run(folder)


@dataclass
class _Campaign:
    """One session of a campaign, from its first line to its exit code."""

    request: Request
    cells: Sequence[Cell]  # the whole plan
    exclusions: dict[str, str]  # key of a cell -> why it is not asked
    options: dict[str, Any]  # of the command line
    book: journal.Journal
    ending: Ending
    more: MakesWork | None  # makes work that is not of this package
    console: Console

    def run(self, folder: Folder | None) -> int:
        """Asks what is missing; the exit code. There is no report folder where no cell is asked, and no record."""
        account = Account(on_case=keep_case(folder)) if folder else Account()
        teller = Teller(self.console, 0, live=is_live(self.console))
        works = self._works(account, teller)
        account.take(self._begin(works))
        for rows in log.plan_events(self.cells, self.exclusions):
            account.take(rows)
        if folder:
            write_plan(folder, account)
        teller.total = sum(len(work.items()) for work in works.values())
        teller.worst = lambda: "; ".join(filter(None, (work.worst() for work in works.values())))
        self.console.print(first_line(self.request, f"{teller.total} items"), soft_wrap=True)
        session = Conduct(works, self.book, teller, lambda: self.ending.signal_name, self.request.maxfail)
        reasons = self._conduct(session, teller)
        for work in works.values():
            reasons += work.finish(next((text for _, text in reasons), ""))
        if self.book.broken:
            reasons.append((exit_codes.INTERNAL, f"the log could not be written: {self.book.broken}"))
        for work in works.values():
            for line in work.lines:
                self.console.print(line, soft_wrap=True)
        if folder is None:
            return self._code_without_cells(reasons)
        account.take(log.Environment(session.environment))
        for text in untested(session.environment):
            account.take(log.Noted(text))
            teller.say(text)
        run = make_record(account, self.request, reasons, session.seconds)
        fault = write_reports(folder, run)
        write_step_summary(run)
        return tell_run(self.console, run, folder.path, fault)

    def _conduct(self, session: Conduct, teller: Teller) -> list[Reason]:
        """Resume and run the session; returns why some items were not asked, if so."""
        with teller:
            count = session.resume()
            teller.begin_pace()
            if count:
                teller.say(f"{count} of {teller.total} items are in {self.book.path} already")
            if self.book.unreadable:
                teller.say(f"{self.book.path}: {self.book.unreadable} unreadable lines; their items are asked again")
            if count == teller.total:
                return []
            terms = self.request.terms
            manner = ItemLimits(terms.timeout, terms.memory, command=self.request.worker)
            try:
                with Cluster(terms.workers, self.options["scheduler"]) as cluster:
                    reasons = session.run(cluster, manner)
            except ClusterError as err:
                return [(exit_codes.INTERNAL, str(err))]
            if self.ending():
                teller.say("interrupted: the report of what is known is being written")
        return reasons

    def _works(self, account: Account, teller: Teller) -> dict[str, Work]:
        """The kinds of work that are asked for, in their order. A further kind has its place here."""
        works = dict[str, Work]()
        if self.cells:
            mine = [cell for cell in self.cells if cell.key not in self.exclusions]
            works["cell"] = CellWork(mine, self.request, self.options["seeds"], account, teller)
        return works if self.more is None else {**works, **self.more(self.request, teller)}

    def _begin(self, works: dict[str, Work]) -> log.Began:
        """The head of the record: that of the log, or a new one, which becomes the log's first line."""
        began = beginning(new_run_id(), self.request, self.cells)
        settings = {**began.settings, **({"seeds": str(self.options["seeds"])} if self.options["seeds"] > 1 else {})}
        began.settings = settings
        head = journal.Campaign(journal.SCHEMA, began, items_digest(list(works.values())), source_digest())
        earlier = _head(self.book)
        if earlier is None:
            self.book.write(head)
            return began
        for what, before, now in (
            ("items", earlier.items, head.items),
            ("profile", earlier.began.profile, began.profile),
            ("max_examples", earlier.began.max_examples, began.max_examples),
            ("source of opassay", earlier.source, head.source),
        ):
            if before != now:
                rule = "need the same, or another --log"
                raise Stop(exit_codes.USAGE, f"{self.book.path}: was begun with other {what}, {before}; {rule}")
        return earlier.began

    def _code_without_cells(self, reasons: Sequence[Reason]) -> int:
        forgiven = {"exit_zero": self.request.exit_zero, "allow_incomplete": self.request.allow_incomplete}
        code = exit_codes.most_urgent(reasons, **forgiven)
        if reasons:
            self.console.print(f"exit {code}: {'; '.join(text for _, text in reasons)}", soft_wrap=True)
        return code


def _head(book: journal.Journal) -> journal.Campaign | None:
    return next((line for line in book.lines if isinstance(line, journal.Campaign)), None)


def _request(
    selection: Selection, words: Sequence[str], options: dict[str, Any], host: Host, book: journal.Journal
) -> Request:
    """What is asked of cells, as `run` would be asked for it.

    Args:
        selection: names on each axis. words, options: of the command line.
        host: what surrounds the command. book: the log, which knows the seed where that was drawn.

    Raises:
        Stop: --workers is no number.
    """
    earlier = _head(book)
    if options["seed"] is None and earlier is not None:
        options = {**options, "seed": earlier.began.seed}
    more = [f"--seeds={options['seeds']}"] if options["seeds"] > 1 else []
    request = make_request(selection, options, host, most=2**20, verb="campaign", more=(*more, *words))
    return replace(request, terms=replace(request.terms, workers=max(request.terms.workers, 1)))
