"""The report of a pytest session: every assertion of opassay in it is a cell of a record, as if a run had asked it.

What is hard here is xdist: tests run in other processes, which send nothing home but their reports. So verdicts travel
on these, and the process that started the session writes the record.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from ..oracles.verdicts.data import as_data, decode_verdict
from ..oracles.verdicts.verdict import FAILED, REPORT_FOLDER, Verdict, charged, clean, quantity
from ..oracles.verdicts.witnesses import WITNESSES
from . import exit_codes
from .baseline import Known, why_not_covered
from .cli.write import keep_case, make_record, write_reports
from .collect import worse
from .record import Run
from .store.folder import Folder
from .text import headline

#: Signs of the name of a test that a cell takes; what is longer ends with a digest.
_LONGEST = 400


@dataclass
class SessionReport:
    """A plugin of one session, in each of its processes.

    Attributes:
        path: the report folder. folder: the same, claimed, in the process that writes it; None in others.
        environment: () -> where the tests run. known: failures that are accepted.
    """

    path: Path
    folder: Folder | None
    environment: Callable[[], dict[str, str]]
    known: Known = field(default_factory=dict)
    started: datetime = field(default_factory=lambda: datetime.now(UTC))
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    silent: list[str] = field(default_factory=list)
    _notes: list[Verdict] = field(default_factory=list)
    _test: str = ""
    _number: int = 0

    def __post_init__(self) -> None:
        REPORT_FOLDER.set(str(self.path))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Listen while a test runs."""
        self._test, self._notes, self._number = item.nodeid, [], 0
        WITNESSES.append(self.note)
        try:
            return (yield)
        finally:
            WITNESSES.remove(self.note)

    def note(self, verdicts: Sequence[Verdict]) -> None:
        """Keep the verdicts of an assertion, and end the test where what is known of its failures says how."""
        __tracebackhide__ = True
        own = [self._named(verdict) for verdict in verdicts]
        self._notes += own
        listed = [(verdict, self.known[verdict.cell.key]) for verdict in own if verdict.cell.key in self.known]
        for verdict, entry in listed:
            changed = why_not_covered(entry, verdict)
            if verdict.holds:
                text = "is listed as a known failure, but holds; run `opassay gate prune`"
                pytest.fail(f"{verdict.cell.key} {text}", pytrace=False)
            if verdict.outcome in FAILED and (changed or entry.expires < date.today()):
                why = changed or f"the entry in known.json expired on {entry.expires}"
                pytest.fail(clean(f"{why}\n{verdict.failure.text() if verdict.failure else ''}"), pytrace=False)
        failures = [verdict for verdict in own if verdict.outcome in FAILED]
        if failures and len(failures) == sum(verdict.outcome in FAILED for verdict, _ in listed):
            pytest.xfail(clean("; ".join(f"{entry.reason} ({entry.issue})" for _, entry in listed)))

    def _named(self, verdict: Verdict) -> Verdict:
        """The verdict of an assertion about one output, named after its test, with how to see it again."""
        if verdict.cell.op:
            return verdict
        name = self._test
        if len(name) > _LONGEST:
            name = f"{name[:_LONGEST]}~{hashlib.sha256(name.encode()).hexdigest()[:8]}"
        self._number += 1
        cell = replace(verdict.cell, op=f"{name}#{self._number}" if self._number > 1 else name)
        failure = verdict.failure
        if failure is not None:
            failure = replace(failure, message=f"{failure.message}\n  again      pytest '{self._test}'")
        return replace(verdict, cell=cell, failure=failure)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Send what was told with the report of the test."""
        report: Any = yield
        # A test that passes has expected its failures, as one of a kernel that is wrong on purpose.
        news = [v for v in self._notes if v.outcome not in FAILED or report.outcome != "passed"]
        self._notes = []
        if news:
            self.facts = self.facts or self.environment()
            report.opassay = {"verdicts": [json.dumps(as_data(v)) for v in news], "environment": self.facts}
        return report  # type: ignore[no-any-return]

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Take what a test has told, in the process that writes."""
        news = getattr(report, "opassay", {"verdicts": [], "environment": {}})
        verdicts = [decode_verdict(json.loads(text)) for text in news["verdicts"]]
        self.facts = self.facts or news["environment"]
        for verdict in verdicts:
            key = verdict.cell.key
            self.verdicts[key] = worse(self.verdicts[key], verdict) if key in self.verdicts else verdict
        if report.failed and all(verdict.holds for verdict in verdicts):
            self.silent.append(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the record and its renderings."""
        if self.folder is None:
            return
        run, keep = self._run(session.config, exitstatus), keep_case(self.folder)
        for failure in [failure for verdict in run.verdicts for failure in verdict.causes if failure.case_id]:
            keep(failure.case_id, failure.case, failure.program)
        fault = write_reports(self.folder, run)
        self.folder.release()
        if fault is not None:
            raise pytest.UsageError(f"--opassay-report: {fault[1]}")

    def _run(self, config: pytest.Config, exitstatus: int) -> Run:
        verdicts = tuple(charged(tuple(self.verdicts.values())))
        reasons = exit_codes.run_reasons(verdicts)
        if self.silent:
            text = f"{quantity(len(self.silent), 'test')} failed beside their verdicts: {', '.join(self.silent[:5])}"
            reasons.append((exit_codes.FAILED, text))
        if exitstatus == pytest.ExitCode.INTERRUPTED:
            reasons.insert(0, (exit_codes.INTERRUPT, "the session was interrupted"))
        return make_record(
            verdicts, reasons, self.started,
            profile=config.getoption("opassay_profile"), seed=config.getoption("opassay_seed") or 0,
            command=("pytest", *map(str, config.invocation_params.args)), environment=self.facts,
            seconds=(datetime.now(UTC) - self.started).total_seconds(),
        )  # fmt: skip

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """One line: how many cells, and where the page is."""
        if self.folder is not None:
            summary = headline(tuple(self.verdicts.values()))
            terminalreporter.write_line(f"opassay: {summary}; {self.path}/report.html, {self.path}/run.json")
