"""The page: one file, no network, whole without scripts, harmless with hostile names."""

from __future__ import annotations

import html
import itertools
import math
import re
from dataclasses import replace

import pytest

from opassay.oracles.verdicts.verdict import Cell, Code, Failure, Measure, Outcome, Verdict
from opassay.reports.gate import GateFinding
from opassay.reports.page.chart import ChartRow, accuracy_plot
from opassay.reports.page.html import render
from opassay.reports.page.matrix import Gated
from tests.reports.conftest import HOSTILE, failed, make_run, verdict
from tests.reports.pages import Page


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
        "Checked 3 of 3 cells that apply",
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


def test_a_judgement_is_a_list_of_questions_below_its_first_card() -> None:
    cells = [
        Cell("mine.py:kernel", code, "float32", "cpu", "candidate") for code in ("FWD:given", "FWD:small", "VJP:grad")
    ]
    first, worse, right = (replace(item, cell=cell) for item, cell in zip(
        (failed(ratio=3.9), failed(ratio=2.0**30), verdict()), cells, strict=True))  # fmt: skip
    command = ("opassay", "judge", "mine.py:kernel", "--spec", "mine.py:reference")
    run = replace(make_run(first, worse, right), profile="judge", command=command, exit_code=1,
                  exit_reasons=("rejected: FWD:given, FWD:small",))  # fmt: skip
    page = Page(render(run))
    assert page.text.startswith("mine.py:kernel rejected: 2 of 3 questions")
    assert "Answered 3 of 3 questions that apply" in page.text
    anchors = [value for name, value in page.attributes if name == "id"]
    assert [each for each in anchors if each.startswith(("f-", "questions"))] == [
        f"f-{first.cell.id}", "questions", f"f-{worse.cell.id}"]  # fmt: skip
    assert not {"matrix", "accuracy", "ops", "failures"} & {*anchors}
    assert {value[1:] for name, value in page.attributes if name == "href"} <= {*anchors}
    levels = [int(tag[1]) for tag in page.tags if re.fullmatch("h[1-6]", tag)]
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))
    bars = [float(value[:-1]) for name, value in page.attributes if name == "width" and value.endswith("%")]
    assert {39.88, 100.0} <= {*bars}  # 100 (log2(3.9) + 10) / 30, and the end of the scale


def test_every_outcome_has_a_sign_and_a_word() -> None:
    items = [verdict(f"P{i}", outcome, Code.NO_DEVICE) for i, outcome in enumerate(Outcome)]
    page = Page(render(make_run(*items)))
    squares = {value for name, value in page.attributes if name == "class" and value.startswith("k ")}
    assert {f"k {str(outcome).replace(' ', '-')}" for outcome in Outcome} <= squares
    assert all(str(outcome) in page.text for outcome in Outcome)


@pytest.mark.parametrize("count", [0, 1])
def test_small_runs(count: int) -> None:
    page = Page(render(replace(make_run(*[verdict()] * count), exit_code=0)))
    assert f"Checked {count} of {count} cells that apply" in page.text


def _op(name: str, *figures: tuple[float, float, float], detect: float = 0.5, subject: str = "torch") -> list[Verdict]:
    """One cell per (median, p99, largest) in unit roundoffs of the scale."""
    return [
        Verdict(
            Cell(name, f"P{i}", "float16", "cpu", subject),
            Outcome.VERIFIED,
            Code.HELD,
            "held",
            Measure(1, 0, 1, 0, 1.0, 0.5, detect, detect, None, 0.5, 0.5, (), 0, (), median, p99, largest),
        )
        for i, (median, p99, largest) in enumerate(figures)
    ]


def test_strange_measures_keep_the_plot_inside() -> None:
    values = (0.0, math.nan, math.inf, 1e-300, 1e300, 0.5)
    figures = [(median, p99, largest) for median in values for p99 in values for largest in values]
    items = [item for detect in values for item in _op("op", *figures, detect=detect)]
    plot = accuracy_plot(items, ["torch cpu"])
    assert plot is not None
    marks = [mark for row in plot.rows for mark in row.marks]
    points = [point for mark in marks for point in (mark.p99, mark.largest) if point is not None]
    assert {point.place for point in points} == {"scale", "zero", "over"}
    assert all(0 <= point.x <= plot.width for point in points)
    assert all(0 <= mark.y <= plot.height for mark in marks)
    assert all(plot.axis[0] <= point.x <= plot.axis[1] for point in points if point.place == "scale")
    Page(render(make_run(*_op("op", *figures))))


def test_the_axis_fits_what_is_near_and_names_what_is_far() -> None:
    plot = accuracy_plot(_op("op", (0.25, 0.5, 1.0), (0.5, 100.0, 1e37)), ["torch cpu"])
    assert plot is not None
    assert [tick.label for tick in plot.ticks] == ["½", "1", "2", "4", "8", "16", "32"]
    first, second = (row.marks[0] for row in plot.rows)
    assert (first.largest.place, first.label) == ("scale", "")
    assert second.p99 is not None
    assert (second.p99.place, second.largest.place, second.label) == ("over", "over", "1e37 u")
    assert plot.one == first.largest.x


def test_a_percentile_beyond_every_axis_does_not_stretch_it() -> None:
    plot = accuracy_plot(_op("op", (0.25, 0.5, 0.5), (0.5, 1e30, 1e37)), ["torch cpu"])
    assert plot is not None
    assert len(plot.ticks) <= 14
    assert plot.rows[1].marks[0].label == "1e37 u"


def test_one_row_per_property_and_dtype_subjects_side_by_side() -> None:
    items = _op("op", (0.2, 0.5, 1.0)) + _op("op", (0.2, 0.5, 2.0), subject="opassay")
    plot = accuracy_plot(items, ["opassay cpu", "torch cpu"])
    assert plot is not None
    assert [[mark.series for mark in row.marks] for row in plot.rows] == [[1, 0]]
    assert len({mark.y for mark in plot.rows[0].marks}) == 2
    assert {stroke.series for stroke in plot.strokes} == {0, 1}


def test_subjects_with_other_samples_do_not_share_a_row() -> None:
    ours, theirs = _op("op", (0.2, 0.5, 1.0), subject="opassay"), _op("op", (0.2, 0.5, 2.0))
    stopped = replace(theirs[0], measure=replace(theirs[0].measure, samples=7))
    plot = accuracy_plot([*ours, stopped], ["opassay cpu", "torch cpu"])
    assert plot is not None
    results = [(row.series, len(row.marks)) for row in plot.rows]
    assert results == [("opassay", 1), ("torch", 1)]
    assert [row.ratio for row in plot.rows] == ["0.5", "0.5"]
    assert all(isinstance(row, ChartRow) and row.marks[0].y == row.y for row in plot.rows)


def test_what_compares_no_values_has_no_plot() -> None:
    assert accuracy_plot([verdict(judged=0)], ["opassay cpu"]) is None
    bits = replace(verdict(), measure=Measure(8, 0, 100, 0))
    assert accuracy_plot([bits], ["opassay cpu"]) is None


def _hrefs(page: Page) -> list[str]:
    return [value for name, value in page.attributes if name == "href"]


@pytest.mark.parametrize("ops", [1, 8])
def test_the_matrix_stands_first_and_its_squares_lead_on(ops: int) -> None:
    items = [item for i in range(ops) for item in (verdict("FWD", op=f"op{i}"), verdict("VJP", op=f"op{i}"))]
    bad = failed("JVP")
    text = render(make_run(*items, bad))
    assert text.index('id="causes"') < text.index('id="matrix"') < text.index('id="failures"') < text.index('id="ops"')
    page = Page(text)
    assert f"#f-{bad.cell.id}" in _hrefs(page)
    assert all(f"#c-{item.cell.id}" in _hrefs(page) for item in items)
    labels = [value for name, value in page.attributes if name == "aria-label"]
    assert labels.count("verified") == len(items)
    assert labels.count("fail") == 1
    assert "a property" in page.text or "a property" in [value for name, value in page.attributes if name == "title"]


def test_the_headline_says_which_subject_is_not_right() -> None:
    torch = replace(failed("FWD"), cell=replace(verdict().cell, subject="torch"))
    page = Page(render(replace(make_run(verdict(), torch), exit_code=1)))
    assert "opassay: 1 verified torch: 1 of 1 cell failed" in page.text
    assert "computed 3.0 ( 0x1.8p+1 ), exact 3.1" in page.text
    assert "exit 1" in page.text
    assert "The exit code concerns all of them, of opassay and torch together." in page.text


def test_the_gate_is_shown_if_there_was_one() -> None:
    known, over, new = failed("VJP"), verdict("FWD"), failed("JVP")
    findings = (
        GateFinding("new", new.cell.key, "fail: worse", 1),
        GateFinding("budget", over.cell.key, "error/bound 0.5, budget 0.4", 1),
        GateFinding("known", known.cell.key, "upstream (http://example.org/1)"),
        GateFinding("unknown", HOSTILE, "known.json lists a cell that the plan lacks", 1),
    )
    page = Page(render(make_run(over, known, new), Gated(findings, 1)))
    classes = [value for name, value in page.attributes if name == "class"]
    assert {"k fail known", "k verified budget", "k fail new"} <= set(classes)
    assert "gate exit 1" in page.text
    assert "1 known (not blocking)" in page.text
    assert "1 ● of them known" in page.text
    kinds = ["new", "budget", "unknown", "known"]
    assert [finding.kind for finding in Gated(findings, 1).listed] == kinds
    assert f"#f-{known.cell.id}" in _hrefs(page)
    assert 'id="gate"' not in render(make_run(over))


def test_programs_are_whole_and_only_where_there_are_any() -> None:
    lines = "\n".join(f"x{i} = bits('{'0' * 2000}')" for i in range(400))
    long = Failure(Code.VALUE, "t", "m", "id-1", "{}", lines)
    text = render(make_run(replace(failed(), failure=long)))
    assert html.escape(lines, quote=False) in html.unescape(text)
    none = Failure(Code.VALUE, "t", "m", "id-1", "{}", "# opassay replay id-1")
    assert '<pre class="program" ' in text
    assert '<pre class="program" ' not in render(make_run(replace(failed(), failure=none)))


def test_a_record_without_percentiles_still_has_a_page() -> None:
    old = replace(verdict(), measure=Measure(8, 1, 100, 3, 2.0, 0.5, 4.0, math.inf, verdict().measure.worst))
    assert accuracy_plot([old], ["opassay cpu"]) is None
    Page(render(make_run(old)))


def test_an_op_that_was_measured_in_some_dtypes_only_still_has_a_line() -> None:
    both = [
        replace(v, cell=replace(v.cell, dtype=d)) for d in ("float32", "float64") for v in _op("a", (0.5, 0.4, 0.5))
    ]
    one = [replace(v, cell=replace(v.cell, dtype="float64")) for v in _op("b", (0.5, 0.4, 0.5))]
    page = Page(render(make_run(*both, *one)))
    assert "–" in page.words


def test_every_cause_has_a_text_for_an_issue() -> None:
    page = Page(render(make_run(verdict(), failed())))
    assert "Texts for issues" in page.text
    assert "## Expected and actual ```text worse than its bound line 1 line 2 ```" in page.text
    assert "## Versions - torch: 2.13.0" in page.text
    assert "Texts for issues" not in Page(render(make_run(verdict()))).text


def test_what_was_not_checked_has_no_row_of_its_own() -> None:
    missing = verdict("ORD2", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0, reason="only first order")
    page = Page(render(make_run(verdict(), missing)))
    targets = [value for name, value in page.attributes if name == "id"]
    assert f"c-{missing.cell.id}" not in targets
    assert "only first order" in page.text


def test_the_page_of_a_large_run_shows_the_gravest_failures_and_stays_small() -> None:
    """Of 1,100 cells of which a third fail with a program each, the example of every cause has a card."""
    long = Failure(Code.VALUE, "worse", "m", "id-1", "{}", "x = 1\n" * 2000)
    bad = [replace(failed(f"B{i % 60}", op=f"op{i // 60}"), failure=long) for i in range(360)]
    grave = failed("JVP", op="grave")
    grave = replace(grave, failure=Failure(Code.MUTATED, "changed an input", "m", "id-2", "{}", "print(1)"))
    text = render(make_run(*(verdict(f"R{i % 124}", op=f"op{i // 124}") for i in range(740)), *bad, grave))
    assert len(text) < 1_000_000
    page = Page(text)
    cards = [value for name, value in page.attributes if name == "id" and value.startswith("f-")]
    assert len(cards) == 40
    assert f"f-{grave.cell.id}" in cards
    assert "and 321 more in run.json and cases/" in page.text
    assert {value[1:] for value in _hrefs(page)} <= {value for name, value in page.attributes if name == "id"}


@pytest.mark.slow
def test_ops_of_a_page_of_very_many_share_a_table_and_each_square_says_what_it_is_about() -> None:
    """1,200 cells of an op each: 20,000 of them stay below 20 MB if one takes less than a kilobyte."""
    names = [f"P{i % 33}" for i in range(1200)]
    items = [verdict(name, op=f"op{i}") for i, name in enumerate(names)]
    text = render(make_run(*items))
    assert len(text) < 1200 * 1000
    page = Page(text)
    assert page.tags.count("svg") < 200, "no plot of an op, and no bar of each"
    assert "and 200 more in run.json" in page.text
    assert {value[1:] for value in _hrefs(page)} <= {value for name, value in page.attributes if name == "id"}
    # The script finds the property of a square by its place from the end of its row.
    for i, row in enumerate(re.findall(r'<tr data-s="[^"]*" data-d="[^"]*">(.*?)</tr>', text)):
        spans = [int(span or 1) for span in re.findall(r'<td(?: colspan="(\d+)")?>', row)]
        place = next(at for at, cell in enumerate(row.split("<td")[1:]) if "aria-label" in cell)
        assert sum(spans) == 33
        assert sum(spans[:place]) == i % 33
