"""The accuracy table: one line per op and subject, the largest of all ratios, medians of what could be seen."""

from __future__ import annotations

import dataclasses

from opassay.oracles.verdicts.verdict import Code, Outcome, Verdict
from opassay.reports.accuracy import accuracy, markdown_table, text_table
from opassay.reports.page.html import render
from tests.reports.conftest import failed, make_run, verdict


def _measured(item: Verdict, median: float, detect: float) -> Verdict:
    return dataclasses.replace(item, measure=dataclasses.replace(item.measure, ulp_median=median, detect_median=detect))


VERDICTS = (
    _measured(verdict("FWD", ratio=0.25), 0.75, 4.0),
    _measured(verdict("VJP", ratio=0.5), 1.5, 16.0),
    _measured(verdict("JVP", ratio=0.125), 2.5, 8.0),
    verdict("COMP", Outcome.UNSUPPORTED, Code.NOT_APPLICABLE, judged=0),
    failed("FWD2"),
    verdict("FWD", op="trace", subject="torch"),
)


def test_a_line_has_the_largest_ratio_and_the_median_detectability() -> None:
    first, second = accuracy(VERDICTS)
    assert (first.op, first.passing, first.checked, first.ratio) == ("softmax", 3, 4, "3.9")
    assert first.worst is VERDICTS[4]
    (figure,) = first.figures
    assert figure.median == ("0.75", "1.5")
    assert figure.largest == ("0.25", "0.5")
    assert figure.detects == "6"  # the median of 4, 16, 8 and 4
    assert (second.op, second.checked) == ("trace", 1)


def test_subjects_are_compared_on_equal_samples_only() -> None:
    """Where one of two subjects was asked of other samples, its median may be small for that reason alone."""
    ours, theirs = verdict("SIZE"), verdict("SIZE", subject="torch")
    lines = accuracy([ours, theirs, verdict("FWD"), verdict("FWD", subject="torch", ratio=0.1)])
    assert {line.listed for line in lines} == {("SIZE",)}
    assert [line.figures[0].median for line in lines] == [("0.25",), ("0.25",)]
    stopped = dataclasses.replace(theirs, measure=dataclasses.replace(theirs.measure, samples=3))
    other = dataclasses.replace(theirs, measure=dataclasses.replace(theirs.measure, sizes=("x dim 0: 4",)))
    for unequal in (stopped, other):
        assert [line.figures[0].median for line in accuracy([ours, unequal])] == [("–",), ("–",)]
        assert [line.figures[0].largest for line in accuracy([ours, unequal])] == [("–",), ("–",)]


def test_the_markdown_table_has_a_row_per_line() -> None:
    rows = markdown_table(accuracy(VERDICTS)).splitlines()
    assert len(rows) == 4
    assert len({row.count("|") for row in rows}) == 1
    assert "| `softmax` | opassay | 3 of 4 |" in rows[2]
    assert " subject |" not in markdown_table(accuracy(VERDICTS[:3])).splitlines()[0]


def test_a_terminal_has_a_row_per_dtype() -> None:
    lines = accuracy(VERDICTS)
    head, *rows = text_table(lines).lines()
    assert head.split()[:4] == ["op", "subject", "dtype", "error/bound"]
    assert len(rows) == sum(len(line.figures) for line in lines)
    assert text_table(()).lines() == []


def test_the_report_shows_it() -> None:
    page = render(make_run(*VERDICTS))
    assert "largest error/bound" in page
    assert "detects, ulp" in page
    assert "FWD largest, u of the scale" in page
    assert page.count('id="accuracy"') == 1
