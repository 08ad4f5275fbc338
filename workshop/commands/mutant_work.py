"""Mutants of the ops as work of a campaign: an item is some of them for one module's ops, the result `mutate`'s log."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from opassay.properties.campaign.performing import Item
from opassay.reports import exit_codes
from opassay.reports.cli.campaign.work import WorkError
from opassay.reports.exit_codes import Reason
from opassay.reports.progress import Teller
from opassay.reports.store.files import write_atomically

from ..mutation.campaign import MutantFilter, Settings, choose_mutants, every_mutant, groups_of
from ..mutation.equivalents import read_equivalents
from .mutant_log import exclusions_of, fates, graph_mutants_of, heading_of
from .mutant_tables import exclusion_lines, family_table, score_of, survivor_lines
from .one_by_one import OneByOne

#: Mutants of an item: enough that asking takes longer than preparing a process, few enough that little is lost.
TOGETHER = 40
#: Mutants of the graph of each family that an item has of its module's.
OF_GRAPH = 10
#: The score that is needed, as by default of `python -m workshop mutate`.
LEAST = 0.98


#: What a worker calls with an item.
RUNNER = "workshop.mutation.campaign:some_of_a_group"


class MutantWork(OneByOne):
    """Mutants of the ops, each asked by the ops of every module that runs it.

    Args:
        ops: of the catalog, whose questions are asked.
        most: mutants of each family; 0 for all. graph: whether they are those of the graph, and not of the text.
        path: where the log goes. teller: who tells the user.
    """

    noun = "items of mutants"

    def __init__(self, ops: Sequence[str], most: int, graph: bool, path: Path, teller: Teller) -> None:
        self._path, self._teller, self._ops = path, teller, ops
        self._settings, self._table = Settings(most=most, graph=graph), read_equivalents()
        self._mutants = [] if graph else choose_mutants(every_mutant(), self._settings)
        self._records: dict[str, list[dict[str, Any]]] = {}
        shares = self._of_graph() if graph else self._of_text()
        self._items = list[Item]()
        for group, members in groups_of(ops).items():
            base = {"group": group, "ops": members, "seconds": self._settings.seconds}
            for share, what in shares:
                name, question = f"{share} of {group}", {"runner": RUNNER, "item": {**base, **what}}
                # The process of an item keeps what it has prepared, so items of one module have an owner of their own.
                self._items.append(
                    Item("mutants", name, (group, "mutants", name), f"mutants of {group}", question, group)
                )
        self._outcomes = Counter[str]()
        self.lines: list[str] = []

    def _of_text(self) -> list[tuple[str, dict[str, Any]]]:
        """What the items of each module are asked, with a name."""
        is_candidate = MutantFilter(table=self._table)
        mutants = [mutant.data() for mutant in self._mutants if is_candidate(mutant)]
        starts = range(0, len(mutants), TOGETHER)
        return [(f"mutants from {start}", {"mutants": mutants[start : start + TOGETHER]}) for start in starts]

    def _of_graph(self) -> list[tuple[str, dict[str, Any]]]:
        """As `_of_text`; a module's mutants are known where its ops have run, so an item is a share of them."""
        most = self._settings.most
        shares = max(-(-most // OF_GRAPH), 1) if most else OF_GRAPH
        whole = {"seed": self._settings.seed, "most": most}
        return [(f"graph {i + 1}/{shares}", {**whole, "share": [i, shares]}) for i in range(shares)]

    def items(self) -> Sequence[Item]:
        return self._items

    def take(self, item: Item, answer: dict[str, Any], notes: Sequence[str]) -> bool:
        if "error" in answer:
            raise WorkError(str(answer["error"]))
        try:
            records = [{**record} for record in answer["result"]["records"]]
            self._outcomes.update(
                record["outcome"] for record in records if "found" not in record and "excluded" not in record
            )
        except (KeyError, TypeError) as err:
            raise WorkError(f"something that is no result of mutants ({type(err).__name__}: {err})") from err
        self._records[item.name] = records
        self._teller.count_outcome(self.noun)
        return False

    def finish(self, interrupted: str) -> list[Reason]:
        """Write the log, which `python -m workshop mutate --table` reads, and make the table."""
        records = [record for all_fates in self._records.values() for record in all_fates]
        lines = [json.dumps(line) for line in (heading_of(self._ops, self._settings), *records)]
        write_atomically(self._path, ("\n".join(lines) + "\n").encode())
        all_fates = fates([*self._mutants, *graph_mutants_of(records)], records, self._table)
        self.lines = [
            *family_table(all_fates).lines(), *survivor_lines(all_fates), *exclusion_lines(exclusions_of(records)),
        ]  # fmt: skip
        missing, score = len(self._items) - len(self._records), score_of(all_fates)
        reasons = [(exit_codes.INCOMPLETE, f"{missing} {self.noun} were not asked")] if missing else []
        low = f"mutation score {score:.2%}, need {LEAST:.0%}"
        return reasons + ([(exit_codes.FAILED, low)] if score < LEAST else [])

    def worst(self) -> str:
        counts = ", ".join(f"{count} {outcome}" for outcome, count in sorted(self._outcomes.items()))
        return f"mutants, each by one module: {counts}" if counts else ""
