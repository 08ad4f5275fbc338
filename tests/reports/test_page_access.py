"""The page in a browser: what axe-core finds against WCAG 2.2 AA, and what the keyboard reaches.

What is needed is in `browsing`; without it the tests are not run, and say what is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.reports.gate import GateFinding
from opassay.reports.page.html import render
from opassay.reports.page.matrix import Gated
from tests.reports.browsing import STOPS, find_browser, find_in_page, find_violations, read_axe
from tests.reports.conftest import failed, make_run, verdict


@pytest.fixture(name="browser", scope="module")
def _browser() -> str:
    return find_browser()


@pytest.fixture(name="axe", scope="module")
def _axe() -> str:
    return read_axe()


def _page(ops: int = 1) -> str:
    """A page with every kind of part: causes, a gate, failures with programs, gaps, two subjects."""
    outcomes = [verdict(f"P{i}", outcome, Code.NO_DEVICE) for i, outcome in enumerate(Outcome)]
    several = [verdict(name, op=f"op{i}", subject=who) for i in range(ops) for name in ("FWD", "SIZE") for who in "ab"]
    known, over = failed("VJP"), verdict("FWD")
    findings = (GateFinding("known", known.cell.key, "upstream"), GateFinding("budget", over.cell.key, "above", 1))
    return render(make_run(*outcomes, *several, known, over, failed("JVP")), Gated(findings, 1))


@pytest.mark.parametrize(("ops", "theme"), [(8, 1), (1, 0)], ids=["many ops, light", "few ops, dark"])
def test_axe_finds_nothing(browser: str, axe: str, tmp_path: Path, ops: int, theme: int) -> None:
    scheme = f"--blink-settings=preferredColorScheme={theme}"
    assert find_violations(browser, axe, _page(ops), tmp_path, "--window-size=1400,2000", scheme) == []


def test_axe_sees_planted_faults(browser: str, axe: str, tmp_path: Path) -> None:
    page = _page()
    for right, wrong in (
        ("--dim: #5c6269", "--dim: #b9bec4"),
        ('<html lang="en">', "<html>"),
        ('aria-label="fail (known)"', 'aria-label=""'),
        ('<output aria-live="polite"></output>', '<select name="nameless"><option>1</option></select>'),
    ):
        assert right in page
        page = page.replace(right, wrong)
    rules = {rule for rule, *_ in find_violations(browser, axe, page, tmp_path, "--window-size=1400,2000")}
    assert {"color-contrast", "html-has-lang", "select-name"} <= rules


@pytest.mark.parametrize("width", [400, 1400])
def test_the_keyboard_reaches_what_matters_and_the_page_fits(browser: str, tmp_path: Path, width: int) -> None:
    result = find_in_page(browser, _page(8), STOPS, tmp_path, "--window-size=1600,2000", width=width)
    assert result["inner"] == width
    assert result["first"] == "Skip to the report"
    assert result["nameless"] == []
    assert 0 < result["squares"] < 20  # those that lead to a failure, of all
    assert result["buttons"] > 0
    assert result["wide"] <= 0


_SORTED = """
  const table = document.querySelector("table.causes"), body = table.tBodies[0];
  const buttons = [...table.querySelectorAll("thead button")];
  const button = (words) => buttons.find((node) => node.textContent.startsWith(words));
  const texts = (at) => [...body.rows].map((row) => row.cells[at].textContent);
  const place = button("cells").parentNode.cellIndex, before = texts(2);
  button("cells").click();
  const up = texts(place).map(Number);
  button("cells").click();
  const down = texts(place).map(Number), said = button("cells").parentNode.getAttribute("aria-sort");
  button("severity").click();
  found = { before, after: texts(2), up, down, said };
"""


def test_a_table_is_sorted_by_the_head_that_is_pressed(browser: str, tmp_path: Path) -> None:
    result = find_in_page(browser, _page(3), _SORTED, tmp_path, "--window-size=1400,2000")
    assert len(result["up"]) > 1
    assert result["up"] == sorted(result["up"])
    assert result["down"] == result["up"][::-1]
    assert (result["said"], result["after"]) == ("descending", result["before"])


_FOLLOWED = """
  const form = document.getElementById("filters");
  form.elements.text.value = "jvp";
  form.dispatchEvent(new Event("input", { bubbles: true }));
  const link = document.querySelector("table.causes a");
  link.click();
  found = { at: location.hash, id: link.getAttribute("href").slice(1), text: form.elements.text.value };
"""


def test_a_link_to_a_cell_keeps_the_filter(browser: str, tmp_path: Path) -> None:
    result = find_in_page(browser, _page(3), _FOLLOWED, tmp_path, "--window-size=1400,2000")
    assert result["at"] == f"#text=jvp&at={result['id']}"
    assert result["text"] == "jvp"
