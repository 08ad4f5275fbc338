"""A page in a browser: what a program finds in it, and what axe-core says of it.

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

RULES = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
_AXE = """
  document.querySelectorAll("details").forEach((node) => { node.open = true; });
  document.head.insertAdjacentHTML("beforeend", "<style>* { content-visibility: visible !important; }</style>");
  found = axe.run({ runOnly: RULES }).then((result) => result.violations.map(
    (rule) => [rule.id, rule.nodes.length, rule.nodes[0].html.slice(0, 200), rule.nodes[0].failureSummary]));
"""
STOPS = """
  document.head.insertAdjacentHTML("beforeend", "<style>* { content-visibility: visible !important; }</style>");
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


def find_browser() -> str:
    """The path of Chromium."""
    result = next((path for path in map(shutil.which, _BROWSERS) if path), None)
    if result is None:
        pytest.skip("not run: no Chromium on PATH; apt-get install chromium")
    return result


def read_axe() -> str:
    """The program of axe-core."""
    named = os.environ.get("OPASSAY_NODE_MODULES")
    folders = (*([named] if named else []), "node_modules", "/usr/lib/node_modules", "/usr/local/lib/node_modules")
    result = next((path for path in (Path(name, "axe-core", "axe.min.js") for name in folders) if path.is_file()), None)
    if result is None:
        pytest.skip("not run: no axe-core; npm install axe-core, and set OPASSAY_NODE_MODULES to its node_modules")
    return result.read_text(encoding="utf-8")


def find_in_page(browser: str, page: str, program: str, folder: Path, *options: str, width: int = 0) -> Any:
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


def find_violations(browser: str, axe: str, page: str, folder: Path, *options: str) -> Any:
    """The rules that a page breaks: name, how often, the first place, and what is wrong there."""
    return find_in_page(browser, page, f"{axe};{_AXE.replace('RULES', json.dumps(RULES))}", folder, *options)
