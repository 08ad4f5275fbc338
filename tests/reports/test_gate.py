"""The gate and its files: each finding, and that budgets only go down."""

from __future__ import annotations

from dataclasses import replace
from datetime import date
from pathlib import Path

import msgspec
import pytest

from opassay.oracles.verdicts.verdict import Code, Measure, Outcome, Verdict
from opassay.reports import baseline
from opassay.reports.baseline import KnownEntry, dump_budget, dump_known, load_budget, load_known, update
from opassay.reports.gate import Files, exit_code, find_regressions
from opassay.reports.record import RecordError, Run
from tests.reports.conftest import failed, make_run, verdict


def _known(item: Verdict, expires: str = "2026-06-01") -> dict[str, KnownEntry]:
    key = item.cell.key
    size = 4.0 if item.outcome is Outcome.FAIL else None
    return {key: KnownEntry(key, item.code, size, "wide sum", "#12", "nobody", date.fromisoformat(expires))}


def _budget(run: Run) -> baseline.Budget:
    return update(run, {})[0]


def _kinds(run: Run, files: Files, *, partial: bool = False) -> tuple[list[str], int]:
    findings = find_regressions(run, files, partial=partial)
    return [finding.kind for finding in findings], exit_code(findings)


GOOD, BAD = verdict(), failed()
LOST = verdict("FWD", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0)


@pytest.mark.parametrize(
    ("items", "files", "kinds", "code"),
    [
        ([GOOD], Files(), [], 0),
        ([GOOD, BAD], Files(), ["new"], 1),
        ([GOOD, BAD], Files(_known(BAD)), ["known"], 0),
        ([GOOD, BAD], Files(_known(BAD, "2026-02-28")), ["expired", "new"], 1),
        ([GOOD], Files(_known(GOOD, "2026-02-28")), ["healed"], 1),
        ([GOOD, BAD], Files(_known(BAD, "2026-12-31")), ["expiry", "known"], 1),
        ([GOOD], Files(_known(BAD)), ["unknown"], 1),
        ([GOOD], Files(_known(GOOD)), ["healed"], 1),
        ([GOOD, replace(BAD, outcome=Outcome.UNSTABLE)], Files(), ["new"], 1),
        ([GOOD, verdict("VJP", Outcome.CRASH, Code.CRASHED)], Files(), ["incomplete"], 4),
        ([GOOD, verdict("VJP", Outcome.NOT_RUN, Code.NO_DEVICE)], Files(), ["incomplete"], 4),
        ([GOOD, verdict("VJP", Outcome.NOT_RUN, Code.DESELECTED)], Files(), ["incomplete"], 4),
        ([GOOD, verdict("VJP", Outcome.NOT_RUN, Code.RETIRED)], Files(), ["incomplete"], 4),
        ([GOOD, verdict("VJP", Outcome.NOT_RUN, Code.NOT_BUILT)], Files(), [], 0),
        ([GOOD, BAD, verdict("JVP", Outcome.ERROR, Code.HARNESS)], Files(), ["error", "new"], 3),
        ([LOST], Files(), ["nothing"], 5),
        ([GOOD], Files(budget={}), ["missing"], 1),
        ([GOOD], Files(budget=_budget(make_run(GOOD))), [], 0),
        ([verdict(ratio=0.6)], Files(budget=_budget(make_run(GOOD))), ["budget"], 1),
        ([verdict(ratio=0.1)], Files(budget=_budget(make_run(GOOD))), ["improved"], 0),
        ([verdict(judged=20)], Files(budget=_budget(make_run(GOOD))), ["coverage"], 1),
        ([verdict("VJP"), LOST], Files(budget=_budget(make_run(GOOD, verdict("VJP")))), ["coverage"], 1),
        ([verdict("VJP"), LOST], Files(_known(LOST), _budget(make_run(GOOD, verdict("VJP")))), [], 0),
        ([verdict("VJP")], Files(budget=_budget(make_run(GOOD, verdict("VJP")))), ["coverage"], 1),
    ],
)
def test_findings(items: list[Verdict], files: Files, kinds: list[str], code: int) -> None:
    assert _kinds(make_run(*items), files) == (kinds, code)


def test_other_inputs_than_the_budgets_only_warn() -> None:
    files = Files(budget=_budget(make_run(GOOD)))
    run = make_run(verdict(ratio=0.9), profile="nightly")
    assert _kinds(run, files) == (["budget"], 0)
    assert _kinds(make_run(GOOD, profile="nightly"), Files(_known(GOOD))) == (["healed"], 0)


def test_a_partial_run_loses_nothing() -> None:
    files = Files(_known(BAD), _budget(make_run(GOOD, verdict("JVP"))))
    assert _kinds(make_run(GOOD), files, partial=True) == ([], 0)


def test_budgets_of_another_device_class_do_not_count() -> None:
    other = replace(make_run(GOOD), environment={"platform": "Linux 6 aarch64"})
    assert _kinds(make_run(GOOD), Files(budget=_budget(other))) == (["missing"], 1)


def test_the_same_input_gives_the_same_answer() -> None:
    files = Files(_known(BAD), _budget(make_run(GOOD)))
    assert find_regressions(make_run(GOOD, BAD), files) == find_regressions(make_run(GOOD, BAD), files)


def test_options_forgive_what_they_name() -> None:
    crashed = find_regressions(make_run(GOOD, verdict("VJP", Outcome.CRASH, Code.CRASHED)), Files())
    assert exit_code(crashed, allow_incomplete=True) == 0
    both = [*crashed, *find_regressions(make_run(BAD), Files())]
    assert (exit_code(both), exit_code(both, allow_incomplete=True), exit_code(both, exit_zero=True)) == (1, 1, 0)


def test_an_update_only_lowers() -> None:
    before = _budget(make_run(GOOD))
    lower, changes = update(make_run(verdict(ratio=0.25)), before)
    assert [entry.budget for entry in lower.values()] == [0.25]
    assert changes == ["softmax::FWD[float32-cpu-opassay]: 0.5 -> 0.25"]
    assert update(make_run(verdict(ratio=0.9)), before) == (before, [])


def test_a_raise_needs_a_name_and_a_reason() -> None:
    before, worse = _budget(make_run(GOOD)), make_run(verdict(ratio=0.875))
    with pytest.raises(ValueError, match="needs --reason"):
        update(worse, before, allow_raise=[GOOD.cell.key])
    with pytest.raises(ValueError, match="not in the run"):
        update(worse, before, allow_raise=["other"], reason="why")
    after, _ = update(worse, before, allow_raise=[GOOD.cell.key], reason="new kernel")
    entry = next(iter(after.values()))
    assert (entry.budget, entry.raised) == (0.875, "new kernel")
    assert _kinds(worse, Files(budget=after, base=before)) == ([], 0)
    silent = {key: msgspec.structs.replace(entry, raised="") for key, entry in after.items()}
    assert _kinds(worse, Files(budget=silent, base=before)) == (["raise"], 1)


def test_no_budget_above_the_bound() -> None:
    assert update(make_run(failed()), {})[0] == {}
    rounded = update(make_run(verdict(ratio=0.999_999)), {})[0]
    assert [entry.budget for entry in rounded.values()] == [1.0]
    exact = replace(GOOD, measure=Measure(1, 0, 1))
    assert [entry.budget for entry in update(make_run(exact), {})[0].values()] == [0.0]


def test_files_are_canonical(tmp_path: Path) -> None:
    budget = _budget(make_run(verdict("VJP"), GOOD))
    path = tmp_path / "budget.json"
    path.write_bytes(dump_budget(budget))
    assert load_budget(path) == budget
    assert len(path.read_text().splitlines()) == 4
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[2] + ",", lines[1].rstrip(","), lines[3]]) + "\n")
    with pytest.raises(RecordError, match="canonical"):
        load_budget(path)


@pytest.mark.parametrize("content", ["", "{}", '{"schema": 2, "budget": []}', '{"schema": 1, "budget": [{}]}'])
def test_a_broken_file_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "budget.json").write_text(content)
    with pytest.raises(RecordError):
        load_budget(tmp_path / "budget.json")


def test_a_cap_in_the_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budget.json"
    path.write_bytes(dump_budget(_budget(make_run(GOOD))).replace(b'"budget":0.5', b'"budget":1.5'))
    with pytest.raises(RecordError):
        load_budget(path)


def test_known_failures_are_read_and_pruned(tmp_path: Path) -> None:
    known = _known(BAD) | _known(GOOD)
    path = tmp_path / "known.json"
    path.write_bytes(dump_known(known))
    assert load_known(path) == known
    budget, remains, output = baseline.prune(make_run(GOOD, BAD), _budget(make_run(verdict("JVP"))), known)
    assert (budget, list(remains)) == ({}, [BAD.cell.key])
    assert len(output) == 2
    path.write_bytes(dump_known(known).replace(b'"expires":"2026-06-01"', b'"expires":"soon"'))
    with pytest.raises(RecordError):
        load_known(path)
