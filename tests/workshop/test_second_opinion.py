"""Both exact readings agree on every formula of the catalog, in every dtype; and the command that says so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.reference.derivative import rules
from opassay.reference.formats import FORMATS
from opassay.reports import exit_codes
from workshop.checking.opinions import WORDS, Account, compare_readings
from workshop.commands.second_opinion import second_opinion_command

#: Of each op and dtype: together as many as there are words of transforms, and one more.
SAMPLES, SEED = 2, 0


def _accounts(name: str, samples: int = SAMPLES) -> list[Account]:
    accounts = []
    for dtype in FORMATS:
        *_, last = compare_readings(load_op(name), dtype, samples, SEED)
        accounts.append(last)
    return accounts


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_both_readings_agree(name: str) -> None:
    accounts = _accounts(name)
    assert [line for account in accounts for line in account.examples] == []
    assert sum(account.samples for account in accounts) >= len(WORDS)
    assert all(account.kinds["wide"] == 0 and not account.unread for account in accounts)
    assert sum(account.kinds["agree"] for account in accounts) > 0


def test_a_planted_rule_of_the_first_reading_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    (right,) = rules.DIAGONAL["log1p"]
    monkeypatch.setitem(rules.DIAGONAL, "log1p", (lambda g, y, xs, p: right(g, y, xs, p) * (1.0 + 2.0**-52),))
    assert sum(account.disagreements for account in _accounts("log_sigmoid", 4)) > 0


def test_the_command_prints_a_table_and_fails_where_the_readings_disagree(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    runner = CliRunner()
    arguments = ["trace", "--dtype", "float32", "--samples", "3", "--json", str(tmp_path / "sums.json")]
    run = runner.invoke(second_opinion_command, arguments, standalone_mode=False)
    assert run.return_value == exit_codes.OK, run.output
    assert "0 disagree" in run.output
    sums = json.loads((tmp_path / "sums.json").read_text())["ops"]["trace"]
    assert (sums["samples"], sums["disagree"], sums["seed"]) == (3, 0, 0)
    (first, *others) = rules.DIAGONAL["exp"]
    monkeypatch.setitem(rules.DIAGONAL, "exp", (lambda g, y, xs, p: first(g, y, xs, p) * 1.5, *others))
    wrong = runner.invoke(second_opinion_command, ["cross_entropy", "--samples", "28"], standalone_mode=False)
    assert wrong.return_value == exit_codes.FAILED
    assert "seed" in wrong.output
    assert "exact" in wrong.output
    unknown = runner.invoke(second_opinion_command, ["lauer_norm"], standalone_mode=False)
    assert "lauer_norm" in str(unknown.exception)
