"""Known failures hold for what was seen: their code and their size; and the gate refuses half a run."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from opassay.reports import record
from opassay.reports.baseline import Known, KnownEntry, dump_known, load_known, size_of, update
from opassay.reports.cli.commands import cli
from opassay.reports.gate import Files, accept, exit_code, find_regressions
from opassay.reports.record import RecordError, Run
from tests.reports.conftest import failed, make_run, verdict

WORDS: dict[str, Any] = {"reason": "wide sum", "issue": "#12", "owner": "nobody", "expires": date(2026, 6, 1)}
BAD = failed()
RAISED = verdict("VJP", Outcome.FAIL, Code.RAISED, judged=0)
Call = Callable[..., tuple[int, str]]


def _accepted(run: Run, *cells: str, **words: Any) -> Known:
    return accept(run, {}, cells, **(WORDS | words))[0]


def _find(item: Verdict, entry: KnownEntry) -> tuple[list[str], int, str]:
    findings = find_regressions(make_run(verdict(), item), Files({entry.cell: entry}))
    return [result.kind for result in findings], exit_code(findings), findings[0].text


def _entry(code: Code = Code.VALUE, at_most: Any = 4.0) -> KnownEntry:
    return KnownEntry(BAD.cell.key, code, at_most, **WORDS)


@pytest.mark.parametrize(
    ("item", "entry", "kind", "message"),
    [
        (BAD, _entry(), "known", "wide sum"),
        (failed(ratio=4.0), _entry(), "known", "wide sum"),
        (
            failed(ratio=4.5),
            _entry(),
            "new",
            "known was OA101 of at most 4 times its bound, now it is OA101 of 4.5 times",
        ),
        (failed(ratio=math.inf), _entry(), "new", "now it is OA101 of ∞ times"),
        (failed(ratio=math.inf), _entry(at_most="inf"), "known", "wide sum"),
        (failed(ratio=math.nan), _entry(at_most="inf"), "known", "wide sum"),
        (failed(ratio=0.5), _entry(), "new", "now it is OA101;"),  # the violation was not measured
        (failed(ratio=0.5), _entry(at_most=None), "known", "wide sum"),
        (BAD, _entry(at_most=None), "new", "known was OA101, now it is OA101 of 3.9 times its bound"),
        (BAD, _entry(Code.SPECIAL), "new", "known was OA102 of at most 4 times its bound, now it is OA101"),
        (RAISED, _entry(Code.RAISED, None), "known", "wide sum"),
        (RAISED, _entry(), "new", "now it is OA105;"),
    ],
)
def test_an_entry_holds_for_its_code_and_size(item: Verdict, entry: KnownEntry, kind: str, message: str) -> None:
    kinds, code, text = _find(item, entry)
    assert (kinds, code) == ([kind], 1 if kind == "new" else 0)
    assert message in text


def test_a_loss_of_coverage_is_known_for_its_code_only() -> None:
    lost = verdict("FWD", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0)
    budget = update(make_run(verdict(), verdict("VJP")), {})[0]
    for code, kinds in ((Code.NOT_APPLICABLE, []), (Code.DTYPE_OUTSIDE, ["coverage"])):
        known = {lost.cell.key: KnownEntry(lost.cell.key, code, None, **WORDS)}
        assert [
            result.kind for result in find_regressions(make_run(verdict("VJP"), lost), Files(known, budget))
        ] == kinds


# ---------------------------------------------------------------------------------------------- accepting


def test_accepting_pins_code_and_size() -> None:
    run = make_run(verdict(), BAD, failed("JVP", ratio=math.inf), RAISED_JVP)
    known = _accepted(run, BAD.cell.key)
    (entry,) = known.values()
    assert (entry.code, entry.at_most, entry.expires) == (Code.VALUE, 3.9, WORDS["expires"])
    assert find_regressions(make_run(verdict(), BAD), Files(known))[0].kind == "known"
    result = _accepted(run, "softmax::*[float32-cpu-opassay]")
    assert {key.split("::")[1][:4]: entry.at_most for key, entry in result.items()} == {
        "VJP[": 3.9, "JVP[": "inf", "ORD2": None,
    }  # fmt: skip
    assert all(result.kind == "known" for result in find_regressions(run, Files(_accepted(run, "*"))))


RAISED_JVP = verdict("ORD2", Outcome.FAIL, Code.RAISED, judged=0)


def test_a_size_is_rounded_up_so_that_the_same_run_passes() -> None:
    run = make_run(failed(ratio=3.000_000_1))
    assert [entry.at_most for entry in _accepted(run, "*").values()] == [3.001]
    assert size_of(verdict()) is None


def test_an_entry_is_replaced_and_others_stay() -> None:
    before = _accepted(make_run(failed("JVP"), BAD), "*")
    after, output = accept(make_run(failed(ratio=9.0)), before, ["*VJP*"], **WORDS)
    assert {key: entry.at_most for key, entry in after.items()} == {failed("JVP").cell.key: 3.9, BAD.cell.key: 9.0}
    assert output == [f"{BAD.cell.key}: replaced, OA101, at most 9 times its bound"]


@pytest.mark.parametrize(
    ("cell", "words", "message"),
    [
        ("softmax::LAW*", {}, "no failure of the run matches"),
        ("softmax::LAW", {}, "the run has no such cell"),
        (verdict().cell.key, {}, "is verified, need a cell that failed"),
        ("*", {"expires": date(2026, 2, 28)}, "--expires=2026-02-28, need a day from 2026-03-01"),
        ("*", {"expires": date(2026, 8, 29)}, "to 2026-08-28"),
        ("*", {"reason": " "}, "--reason=' '"),
        ("*", {"owner": ""}, "--owner"),
        ("*", {"issue": "x" * 3000}, "--issue"),
    ],
)
def test_what_the_gate_would_refuse_is_not_written(cell: str, words: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("*", r"\*")):
        _accepted(make_run(verdict(), BAD), cell, **words)


def test_the_last_possible_expiry_passes_the_gate() -> None:
    known = _accepted(make_run(BAD, verdict()), "*", expires=date(2026, 8, 28))
    assert exit_code(find_regressions(make_run(BAD, verdict()), Files(known))) == 0


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({}, None),
        ({"at_most": "inf"}, None),
        ({"at_most": None}, None),
        ({"at_most": "big"}, "at_most"),
        ({"at_most": -1}, "at_most"),
        ({"code": "OA999"}, "code"),
        ({"code": None}, "code"),
    ],
)
def test_the_file_is_read_strictly(tmp_path: Path, entry: dict[str, Any], message: str | None) -> None:
    data = json.loads(dump_known({BAD.cell.key: _entry()}))
    data["known"][0] |= entry
    path = tmp_path / "known.json"
    path.write_text(json.dumps(data))
    if message is None:
        assert len(load_known(path)) == 1
    else:
        with pytest.raises(RecordError, match=message):
            load_known(path)


def test_a_file_of_before_says_what_to_add(tmp_path: Path) -> None:
    path = tmp_path / "known.json"
    path.write_text(
        '{"schema": 1, "known": [{"cell": "a", "reason": "b", "issue": "c", "owner": "d", "expires": "2026-06-01"}]}'
    )
    with pytest.raises(RecordError, match='schema=1, need 2; set "schema": 2 and add to every entry "code"'):
        load_known(path)


# -------------------------------------------------------------------------------------- the commands


@pytest.fixture(name="call")
def _call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    from opassay.reports.cli.host import Host, Stop

    monkeypatch.chdir(tmp_path)

    def call(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(cli, words, standalone_mode=False, obj=Host())
        if isinstance(done.exception, Stop):
            return done.exception.code, str(done.exception)
        if done.exception is not None:
            raise done.exception
        return int(done.return_value or 0), done.output

    return call


ACCEPT = ("--reason=wide sum", "--issue=#12", "--owner=nobody", "--expires=2026-06-01")


def test_accepted_failures_pass_until_they_grow(call: Call, tmp_path: Path) -> None:
    record.save(tmp_path / "run.json", make_run(verdict(), BAD))
    assert call("gate", "run.json")[0] == 1
    assert call("gate", "accept", "run.json", BAD.cell.key, *ACCEPT)[0] == 0
    assert call("gate", "run.json")[0] == 0
    assert "OA101 at most 3.9  until 2026-06-01" in call("gate", "show")[1]
    first = (tmp_path / "known.json").read_bytes()
    assert dump_known(load_known(tmp_path / "known.json")) == first
    assert call("gate", "accept", "run.json", BAD.cell.key, *ACCEPT[:-1], "--expires=2027-06-01")[0] == 2
    assert (tmp_path / "known.json").read_bytes() == first
    record.save(tmp_path / "run.json", make_run(verdict(), failed(ratio=4e10)))
    code, output = call("gate", "run.json")
    assert code == 1
    assert "known was OA101 of at most 3.9 times its bound, now it is OA101 of 4e10 times its bound" in output
    record.save(tmp_path / "run.json", make_run(verdict(), verdict("VJP")))
    assert call("gate", "prune", "run.json")[0] == 0
    assert load_known(tmp_path / "known.json") == {}


@pytest.mark.parametrize("options", [(), ("--partial",), ("--allow-incomplete",), ("--exit-zero",)])
def test_one_shard_is_no_run(call: Call, tmp_path: Path, options: tuple[str, ...]) -> None:
    record.save(tmp_path / "run.json", replace(make_run(verdict()), settings={"shard": "1/3"}))
    code, output = call("gate", "run.json", *options)
    assert (code, "shard 1/3 alone" in output) == (4, True)
    record.save(tmp_path / "run.json", replace(make_run(verdict()), settings={"shard": "1/1"}))
    assert call("gate", "run.json", *options)[0] == 0


def test_deselected_cells_need_partial(call: Call, tmp_path: Path) -> None:
    gap = verdict("VJP", Outcome.NOT_RUN, Code.DESELECTED, judged=0, reason="deselected by -k or -m")
    record.save(tmp_path / "run.json", replace(make_run(verdict(), gap), settings={"keyword": "FWD"}))
    assert call("gate", "run.json")[0] == 4
    assert call("gate", "run.json", "--partial")[0] == 0


def test_a_base_without_a_budget_is_refused(call: Call, tmp_path: Path) -> None:
    record.save(tmp_path / "run.json", make_run(verdict()))
    assert call("gate", "update", "run.json")[0] == 0
    (tmp_path / "budget.json").rename(tmp_path / "base.json")
    code, output = call("gate", "run.json", "--base", "base.json")
    assert (code, "--base: needs budget.json" in output) == (2, True)


def test_cells_taken_from_a_record_are_missed(call: Call, tmp_path: Path) -> None:
    whole = json.loads(record.encode(make_run(verdict(), BAD)))
    del whole["verdicts"][1]
    (tmp_path / "run.json").write_text(json.dumps(whole))
    for words in (("gate", "run.json"), ("report", "merge", "run.json", "-o", "all.json"), ("report", "run.json")):
        code, output = call(*words)
        assert (code, "plan_digest does not match the cells" in output) == (2, True)
    assert not (tmp_path / "all.json").exists()


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_held_cell_without_a_number_has_lost_its_coverage(value: float) -> None:
    budget = update(make_run(verdict()), {})[0]
    findings = find_regressions(make_run(verdict(ratio=value)), Files(budget=budget))
    assert [result.kind for result in findings] == ["coverage"]
    assert exit_code(findings) == 1


@pytest.mark.parametrize("code", [2, 3])
def test_a_run_that_broke_is_not_green(code: int) -> None:
    run = replace(make_run(verdict()), exit_code=code, exit_reasons=("the session broke",))
    findings = find_regressions(run, Files())
    assert (exit_code(findings), "the session broke" in findings[0].text) == (code, True)
