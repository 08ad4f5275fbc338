"""Every capability has at most the lines of its budget, and a line more is seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import budget, house
from tests.house import Module

REPOSITORY = Path(__file__).resolve().parents[1]


def _beyond(counts: dict[str, int]) -> dict[str, int]:
    """The capabilities with more lines than they may have."""
    return {name: counts[name] for name, (_, most) in budget.CAPABILITIES.items() if counts[name] > most}


def test_no_capability_has_more_lines_than_its_budget() -> None:
    counts = budget.count_lines(REPOSITORY)
    assert _beyond(counts) == {}, "lower the budget of another capability by as much"
    most = budget.CAPABILITIES["norms"][1]
    assert _beyond({**counts, "norms": most + 1}) == {"norms": most + 1}


def test_the_budgets_are_those_of_the_total() -> None:
    assert sum(most for _, most in budget.CAPABILITIES.values()) == budget.TOTAL


def test_no_distribution_has_more_lines_than_it_may() -> None:
    counts = budget.count_distributions(REPOSITORY)
    assert sum(counts.values()) == sum(budget.count_lines(REPOSITORY).values())
    assert all(counts[name] <= most for name, most in budget.DISTRIBUTIONS.items()), counts


def test_a_file_belongs_to_the_folder_that_is_nearest(monkeypatch: pytest.MonkeyPatch) -> None:
    paths = ("oracles/bound/a.py", "oracles/bound/rounding/b.py", "impl/norms/kernels_cpu/c.py")
    files = [Module(path, REPOSITORY / path, "x = 1\n" * (i + 1)) for i, path in enumerate(paths)]
    monkeypatch.setattr(house, "modules", lambda root: files)
    counts = {name: count for name, count in budget.count_lines(REPOSITORY).items() if count}
    assert counts == {"accept sets and contracts": 1, "rounding errors": 2, "norms": 3}
    files.append(Module("other", REPOSITORY / "other/a.py", ""))
    with pytest.raises(StopIteration):
        budget.count_lines(REPOSITORY)
