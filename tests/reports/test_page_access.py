"""The page in a browser: what axe-core finds against WCAG 2.2 AA, and what the keyboard reaches.

Needs Chromium (`apt-get install chromium`) and axe-core (`npm install axe-core`; OPASSAY_NODE_MODULES names the folder
node_modules where npm did not install for all). Without them the tests are not run, and say what is missing.
"""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.reports.gate import GateFinding
from opassay.reports.page.html import render
from opassay.reports.page.matrix import Gated
from tests.reports.conftest import failed, make_run, verdict

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_AXE = """
  document.querySelectorAll("details").forEach((node) => { node.open = true; });
  document.head.insertAdjacentHTML("beforeend", "<style>* { content-visibility: visible !important; }</style>");
  found = axe.run({ runOnly: RULES }).then((result) => result.violations.map(
    (rule) => [rule.id, rule.nodes.length, rule.nodes[0].html.slice(0, 200), rule.nodes[0].failureSummary]));
"""
_STOPS = """
  const stops = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex]")]
    .filter((node) => node.tabIndex >= 0 && node.checkVisibility({ visibilityProperty: true }));
  found = {
    first: stops[0].textContent,
    squares: stops.filter((node) => node.classList.contains("k")).length,
    nameless: stops.filter((node) => !/[A-Za-z]/.test(node.getAttribute("aria-label") || node.textContent
      || (node.labels && node.labels[0] && node.labels[0].textContent) || "")).map((node) => node.outerHTML),
    buttons: stops.filter((node) => node.tagName === "BUTTON").length,
    inner: window.innerWidth,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
  };
"""


@pytest.fixture(name="browser", scope="module")
def _browser() -> str:
    result = next((path for path in map(shutil.which, _BROWSERS) if path), None)
    if result is None:
        pytest.skip("not run: no Chromium on PATH; apt-get install chromium")
    return result


@pytest.fixture(name="axe", scope="module")
def _axe() -> str:
    named = os.environ.get("OPASSAY_NODE_MODULES")
    folders = (*([named] if named else []), "node_modules", "/usr/lib/node_modules", "/usr/local/lib/node_modules")
    result = next((path for path in (Path(name, "axe-core", "axe.min.js") for name in folders) if path.is_file()), None)
    if result is None:
        pytest.skip("not run: no axe-core; npm install axe-core, and set OPASSAY_NODE_MODULES to its node_modules")
    return result.read_text(encoding="utf-8")


def _page(ops: int = 1) -> str:
    """A page with every kind of part: causes, a gate, failures with programs, gaps, two subjects."""
    outcomes = [verdict(f"P{i}", outcome, Code.NO_DEVICE) for i, outcome in enumerate(Outcome)]
    several = [verdict(name, op=f"op{i}", subject=who) for i in range(ops) for name in ("FWD", "SIZE") for who in "ab"]
    known, over = failed("VJP"), verdict("FWD")
    findings = (GateFinding("known", known.cell.key, "upstream"), GateFinding("budget", over.cell.key, "above", 1))
    return render(make_run(*outcomes, *several, known, over, failed("JVP")), Gated(findings, 1))


def _find(browser: str, page: str, program: str, folder: Path, *options: str, width: int = 0) -> Any:
    """What a program assigns to `found` when it runs in the page, once the page's own script has run.

    A window has a least width of its own, so a page of another `width` is shown in a frame.
    """
    # The page's own policy admits its own script alone, so the copy that is tested goes without it.
    page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    # The page does a part of its work after its first frame, and a browser whose time is virtual may draw none.
    at_once = "<script>window.requestAnimationFrame = (then) => setTimeout(then);</script>"
    assert "<head>" in page
    page = page.replace("<head>", f"<head>{at_once}", 1)
    tell = "top.document.title = 'found:' + encodeURIComponent(JSON.stringify(await found));"
    script = f"<script>setTimeout(async () => {{ let found; {program} {tell} }}, 500);</script>"
    text = page.replace("</body>", f"{script}</body>")
    if width:
        frame = f'<iframe width="{width}" height="2000" style="border: 0" srcdoc="{html.escape(text)}"></iframe>'
        text = f"<!doctype html><html><head><title></title></head><body>{frame}</body></html>"
    (folder / "page.html").write_text(text, encoding="utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"]
    command += ["--virtual-time-budget=30000", *options, "--dump-dom", (folder / "page.html").as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    title = re.search(r"<title>found:([^<]*)</title>", done.stdout)
    assert title, f"the program did not finish: {done.stderr[-2000:]}"
    return json.loads(urllib.parse.unquote(title[1]))


def _violations(browser: str, axe: str, page: str, folder: Path, *options: str) -> Any:
    return _find(browser, page, f"{axe};{_AXE.replace('RULES', json.dumps(RULES))}", folder, *options)


@pytest.mark.parametrize(("ops", "theme"), [(8, 1), (1, 0)], ids=["many ops, light", "few ops, dark"])
def test_axe_finds_nothing(browser: str, axe: str, tmp_path: Path, ops: int, theme: int) -> None:
    scheme = f"--blink-settings=preferredColorScheme={theme}"
    assert _violations(browser, axe, _page(ops), tmp_path, "--window-size=1400,2000", scheme) == []


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
    rules = {rule for rule, *_ in _violations(browser, axe, page, tmp_path, "--window-size=1400,2000")}
    assert {"color-contrast", "html-has-lang", "select-name"} <= rules


@pytest.mark.parametrize("width", [400, 1400])
def test_the_keyboard_reaches_what_matters_and_the_page_fits(browser: str, tmp_path: Path, width: int) -> None:
    result = _find(browser, _page(8), _STOPS, tmp_path, "--window-size=1600,2000", width=width)
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
    result = _find(browser, _page(3), _SORTED, tmp_path, "--window-size=1400,2000")
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
    result = _find(browser, _page(3), _FOLLOWED, tmp_path, "--window-size=1400,2000")
    assert result["at"] == f"#text=jvp&at={result['id']}"
    assert result["text"] == "jvp"
