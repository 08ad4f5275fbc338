"""The page of a watched program in a browser: WCAG 2.2 AA, the keyboard, a phone, its switches, sorting and filter.

What is needed is in `browsing`; without it the tests are not run, and say what is missing.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from opassay.oracles.verdicts.watched import Watched
from opassay.reports.watch.html import render
from tests.reports.browsing import STOPS, find_browser, find_in_page, find_violations, read_axe
from tests.watch.made import faulty_program, infinite_program


@pytest.fixture(name="browser", scope="module")
def _browser() -> str:
    return find_browser()


@pytest.mark.parametrize(
    ("watched", "theme"), [(faulty_program(2, 1), 1), (infinite_program(), 0)], ids=["light", "dark, a NaN"]
)
def test_axe_finds_nothing(browser: str, tmp_path: Path, watched: Watched, theme: int) -> None:
    scheme = f"--blink-settings=preferredColorScheme={theme}"
    assert find_violations(browser, read_axe(), render(watched), tmp_path, "--window-size=1400,2000", scheme) == []


@pytest.mark.parametrize("width", [400, 1400])
def test_the_keyboard_reaches_what_matters_and_the_page_fits(browser: str, tmp_path: Path, width: int) -> None:
    result = find_in_page(
        browser, render(faulty_program(2, 1)), STOPS, tmp_path, "--window-size=1600,2000", width=width
    )
    assert result["inner"] == width
    assert result["first"] == "Skip to the report"
    assert result["nameless"] == []
    assert result["buttons"] > 0
    assert result["wide"] <= 0


_SWITCHES = """
  const shown = (selector) => [...document.querySelectorAll(selector)].filter((node) => node.checkVisibility()).length;
  const fill = () => getComputedStyle(document.querySelector(".called rect")).fill;
  const before = [shown(".called"), shown(".timed"), shown(".of-module"), shown(".of-line")], colour = fill();
  for (const id of ["w-time", "c-loss", "by-line"]) { document.getElementById(id).click(); }
  const after = [shown(".called"), shown(".timed"), shown(".of-module"), shown(".of-line")];
  found = { before, after, changed: colour !== fill() };
"""


def test_switches_choose_width_colour_and_table(browser: str, tmp_path: Path) -> None:
    result = find_in_page(browser, render(faulty_program(2, 1)), _SWITCHES, tmp_path, "--window-size=1400,2000")
    assert result == {"before": [1, 0, 1, 0], "after": [0, 1, 0, 1], "changed": True}


_FILTERED = """
  const rows = () => [...document.querySelectorAll("#sites-table tbody tr")].filter((row) => !row.hidden);
  const all = rows().length, form = document.getElementById("filters");
  form.elements.state.value = "fail";
  form.dispatchEvent(new Event("input", { bubbles: true }));
  const outside = rows().length;
  form.elements.state.value = "all";
  document.querySelector(".called [data-module='model.layers.1']").dispatchEvent(new Event("click", { bubbles: true }));
  const inside = rows().map((row) => row.querySelector("th").textContent);
  form.elements.text.value = "";
  form.dispatchEvent(new Event("input", { bubbles: true }));
  const calls = [...document.querySelectorAll("#sites-table thead button")].find((b) => b.textContent === "first call");
  calls.click();
  const order = rows().map((row) => Number(row.cells[6].textContent.replace(",", "")));
  found = { all, outside, inside, order };
"""


def test_the_sites_are_filtered_sorted_and_chosen_by_a_box_of_the_tree(browser: str, tmp_path: Path) -> None:
    watched = faulty_program(2, 1)
    result = find_in_page(browser, render(watched), _FILTERED, tmp_path, "--window-size=1400,2000")
    assert result["all"] == len(watched.sites)
    assert result["outside"] == 2
    assert result["inside"]
    assert all(module.startswith("model.layers.1") for module in result["inside"])
    assert result["order"] == sorted(result["order"])


_OPENED = """
  const held = document.querySelector("#sites-table tr.verified a");
  const card = document.querySelector(held.getAttribute("href")), before = card.checkVisibility();
  held.click();
  await new Promise((then) => setTimeout(then, 300));
  found = { before, after: card.checkVisibility(), text: card.textContent.length > 0 };
"""


def test_one_click_opens_the_card_of_a_site(browser: str, tmp_path: Path) -> None:
    result = find_in_page(browser, render(faulty_program(2, 1)), _OPENED, tmp_path, "--window-size=1400,2000")
    assert result == {"before": False, "after": True, "text": True}
