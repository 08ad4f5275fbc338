"""The page: one file, no network, whole without scripts, harmless with hostile names."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from opassay.oracles.verdict import Cell, Code, Failure, Measure, Outcome, Verdict
from opassay.reports.chart import accuracy_plot
from opassay.reports.html import render
from tests.reports.conftest import HOSTILE, failed, make_run, verdict

VOID = {"meta", "input", "br", "img", "link"}


class Page(HTMLParser):
    """Elements, attributes and text of a page, with every tag closed in order."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words: list[str] = []
        self.open: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("script", "style"):
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


@pytest.fixture(name="page", scope="module")
def _page() -> Page:
    missing = verdict("ORD2", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0, reason="only first order")
    torch = verdict("FWD", subject="torch", ratio=0.7)
    return Page(render(make_run(verdict("FWD"), failed("VJP"), missing, torch)))


def test_it_is_one_file_without_scripts_or_urls_of_others(page: Page) -> None:
    assert not {"link", "img", "iframe", "object", "base"} & set(page.tags)
    assert page.tags.count("script") == 1
    links = [value for name, value in page.attributes if name in ("href", "src", "action", "xlink:href")]
    assert all(value.startswith("#") for value in links)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


def test_every_link_has_its_target(page: Page) -> None:
    targets = {value for name, value in page.attributes if name == "id"}
    links = {value[1:] for name, value in page.attributes if name == "href"}
    assert links <= targets


def test_it_reads_without_scripts(page: Page) -> None:
    for words in (
        "Checked 3 of 4 planned cells",
        "worse than its bound",
        "line 1 line 2",
        "3.9 times its bound",
        "only first order",
        "the question does not apply",
        "torch 2.13.0",
        "Detectability",
        "exit(1)",
    ):
        assert words in page.text


def test_the_policy_allows_one_script(page: Page) -> None:
    policy = next(value for name, value in page.attributes if name == "content" and "default-src" in value)
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[A-Za-z0-9+/]{43}='", policy)


def test_hostile_names_are_text() -> None:
    failure = Failure(Code.VALUE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    cell = Cell(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE)
    item = replace(failed(), cell=cell, failure=failure, title=HOSTILE, reason=HOSTILE, timing=((HOSTILE, 1.0),))
    run = replace(
        make_run(item),
        environment={HOSTILE: HOSTILE},
        settings={HOSTILE: HOSTILE},
        notes=(HOSTILE,),
        command=(HOSTILE,),
        exit_reasons=(HOSTILE,),
        commit=HOSTILE,
    )
    text = render(run)
    page = Page(text)
    assert "img" not in page.tags
    assert page.tags.count("script") == 1
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\ud800-\udfff]", text)
    assert not [name for name, _ in page.attributes if name == "onerror"]
    assert all(value.startswith("#") for name, value in page.attributes if name == "href")


def test_every_outcome_has_a_sign_and_a_word() -> None:
    items = [verdict(f"P{i}", outcome, Code.NO_DEVICE) for i, outcome in enumerate(Outcome)]
    page = Page(render(make_run(*items)))
    squares = {value for name, value in page.attributes if name == "class" and value.startswith("k ")}
    assert {f"k {str(outcome).replace(' ', '-')}" for outcome in Outcome} <= squares
    assert all(str(outcome) in page.text for outcome in Outcome)


@pytest.mark.parametrize("count", [0, 1])
def test_small_runs(count: int) -> None:
    page = Page(render(replace(make_run(*[verdict()] * count), exit_code=0)))
    assert f"Checked {count} of {count} planned" in page.text


def test_strange_measures_keep_the_plot_inside() -> None:
    values = (0.0, math.nan, math.inf, 1e-300, 1e300, 0.5)
    items = [
        Verdict(
            Cell("op", f"P{i}", "float16", "cpu", "torch"),
            Outcome.VERIFIED,
            Code.HELD,
            "held",
            Measure(1, 0, 1, 0, value, value, detect, detect),
        )
        for i, (value, detect) in enumerate((v, d) for v in values for d in values)
    ]
    plot = accuracy_plot(items, ["torch cpu"])
    assert plot is not None
    marks = [mark for row in plot.rows for mark in row.marks]
    assert {mark.shape for mark in marks} == {"dot", "zero", "over"}
    assert all(0 <= mark.x <= plot.width and 0 <= mark.y <= plot.height for mark in marks)
    assert all(plot.axis[0] <= mark.x <= plot.axis[1] for mark in marks if mark.shape == "dot")
    Page(render(make_run(*items)))


def test_nothing_measured_has_no_plot() -> None:
    assert accuracy_plot([verdict(judged=0)], ["opassay cpu"]) is None
