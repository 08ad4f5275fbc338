"""A million elements of legal evaluations of the whole catalog, none outside its bound; and the command."""

from __future__ import annotations

from typing import Any

import pytest
from click.testing import CliRunner

from opassay.oracles.bound.rounding.ball import RULES, Ball
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.reference.formats import FORMATS
from opassay.reports import exit_codes
from workshop.checking.attacks import CONTRACTS, attack_bounds, cases_of
from workshop.commands.attack import attack_command

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.mark.slow
def test_a_million_elements_of_the_catalog_lie_in_their_bounds() -> None:
    ops = [load_op(name) for name in CATALOG]
    every = cases_of(ops, list(FORMATS), lambda name: True)
    # Every op under every contract; dtypes take turns, so that each op has all of them.
    turns = {name: i for i, name in enumerate(CATALOG)}
    dtypes, contracts = list(FORMATS), [f"{name}/{device}" for name, device in CONTRACTS]
    cases = [
        case
        for case in every
        if (turns[case.op.name] + contracts.index(f"{case.terms}/{case.device}")) % 4 == dtypes.index(case.dtype)
    ]
    *_, attack = attack_bounds(cases, 10**6, seed=0, rounds=1)
    assert attack.examples == []
    assert attack.outside == 0
    assert attack.elements >= 10**6
    assert {op for op, _, _ in attack.rows} == set(CATALOG)
    assert max(row.ratio for row in attack.rows.values()) > 0.5


def test_the_command_prints_ratios_and_fails_for_a_bound_that_is_too_tight(monkeypatch: pytest.MonkeyPatch) -> None:
    runner, arguments = (
        CliRunner(),
        ["cross_map_lrn2d", "--dtype", "float32", "--contract", "strict", "--elements", "3000"],
    )
    run = runner.invoke(attack_command, arguments, standalone_mode=False)
    assert run.return_value == exit_codes.OK, run.output
    assert "0 outside" in run.output
    right = RULES["power"]

    def tight(allowed: Any, *operands: Ball, **params: Any) -> Ball:
        result = right(allowed, *operands, **params)
        return Ball(result.centre, 0.1 * result.radii(), allowed)

    monkeypatch.setitem(RULES, "power", tight)
    wrong = runner.invoke(attack_command, arguments, standalone_mode=False)
    assert wrong.return_value == exit_codes.FAILED
    assert "the bound is" in wrong.output
