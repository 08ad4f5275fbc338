"""The page of contracts has every name of the code once, with what the code says today."""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.oracles.bound.terms import PRESETS
from tests.specs import contracts

DOCS = Path(__file__).parents[2] / "docs"
TABLE = (DOCS / "tables" / "contracts.txt").read_text()
AGAIN = "run python benchmarks/contracts.py"


def test_the_page_has_every_preset_allowance_and_algorithm() -> None:
    assert (DOCS / "contracts.md").read_text() == contracts.page(), AGAIN
    figures = TABLE.rpartition("---:|\n")[2]
    assert [row.split("`")[1] for row in figures.splitlines()] == contracts.contracts(), AGAIN


def test_a_name_without_a_sentence_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contracts, "PRESETS", {**PRESETS, "loose": PRESETS["strict"]})
    with pytest.raises(KeyError, match="loose"):
        contracts.description()


@pytest.mark.parametrize("name", ["strict", "tensor_core", "strict+bfloat16_partials"])
def test_figures_are_those_of_the_page(name: str) -> None:
    (row,) = (line for line in TABLE.splitlines() if line.startswith(f"| `{name}` |"))
    for column in (0, 1, 2):
        assert row.split("|")[2 + column].strip() == contracts.show(name, *contracts.COLUMNS[column]), AGAIN
