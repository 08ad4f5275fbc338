"""Errors by size: what a tally keeps, what a record holds of it, and where the plot puts it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from opassay import Cell, Settings, run_cell
from opassay.oracles.bound.rounding import lengths
from opassay.oracles.verdicts.verdict import Bin, Verdict
from opassay.reports.page.curves import HEIGHT, WIDTH, Panel, figures
from opassay.reports.page.html import render
from opassay.reports.record import RecordError, decode, encode
from tests.reports.conftest import make_run, verdict

BINS = (
    Bin("length", 0, 5, 0.0, 0.0),
    Bin("length", 10, 2, 3.0, 0.25),
    Bin("magnitude", -160, 1, 0.5, 0.5),
    Bin("magnitude", 0, 9, 40.0, 1.0),
    Bin("magnitude", 960, 1, 1e9, 0.125),
)


def _binned(*bins: Bin, subject: str = "opassay") -> Verdict:
    result = verdict(subject=subject)
    return replace(result, measure=replace(result.measure, bins=tuple(one.text for one in bins)))


@pytest.mark.parametrize("value", [0.0, 1.0, 0.1, 1e-300, 5e-324, 1e300, 3.0])
def test_a_bin_survives_its_text_and_no_error_becomes_smaller(value: float) -> None:
    one = Bin("magnitude", -1024, 7, value, min(value, 1.0))
    back = Bin.of(one.text)
    assert replace(back, scaled=value, ratio=one.ratio) == one
    assert value <= back.scaled <= value * (1 + 2.0**-7)
    run = decode(encode(make_run(_binned(one))))
    assert run.verdicts[0].measure.bins == (one.text,)


@pytest.mark.parametrize("text", ["", "depth 0 1 0x0p+0 0x0p+0", "length 0 1 0x0p+0", "length 0 1 nan 0x0p+0", 3])
def test_what_is_no_bin_is_refused(text: object) -> None:
    data = json.loads(encode(make_run(verdict())))
    data["verdicts"][0]["measure"]["bins"] = [text]
    with pytest.raises(RecordError):
        decode(json.dumps(data).encode())


def test_bins_of_several_samples_are_added() -> None:
    assert BINS[1].joined(replace(BINS[1], outputs=3, scaled=2.0, ratio=0.5)) == Bin("length", 10, 5, 3.0, 0.5)


def _panels(*verdicts: Verdict) -> tuple[Panel, ...]:
    return tuple(panel for one in figures(verdicts, ("float64", "float32")) for panel in one.panels)


def test_the_plot_shows_both_measures_by_magnitude_and_by_length() -> None:
    by_magnitude, by_length = _panels(_binned(*BINS))
    assert (by_magnitude.words, by_length.words) == ("largest operand", "terms of the longest sum")
    (curve,) = by_length.curves
    low, high = (tuple(map(int, point.split())) for point in curve.scaled.removeprefix("M").split("L"))
    assert low[0] < high[0]
    assert low[1] > by_length.one > high[1]  # 3 u stand above the line of 1, an exact result below it
    assert [grid.label for grid in by_length.across] == ["1", "4", "16", "64", "256", "1024"]
    points = [tuple(map(float, part.split())) for part in by_magnitude.curves[0].scaled[1:].split("L")]
    assert all(0 <= x <= WIDTH and 0 <= y <= HEIGHT for x, y in points)
    assert points == sorted(points)


def test_subjects_have_panels_of_their_own_and_one_length_has_none() -> None:
    flat = _binned(Bin("length", 0, 5, 0.5, 0.5), *BINS[2:])
    assert [panel.words for panel in _panels(flat)] == ["largest operand"]
    assert [one.series for one in figures([_binned(*BINS), _binned(*BINS, subject="torch")], ("float32",))] == [
        "opassay cpu",
        "torch cpu",
    ]
    page = render(make_run(_binned(*BINS)))
    assert "Numbers of these plots: softmax opassay cpu" in page
    assert "errors against terms of the longest sum" in page
    assert _panels(verdict()) == ()


def test_a_cell_tells_how_its_errors_go_with_length_and_magnitude() -> None:
    """The trace of n x n numbers is a sum of n terms, and larger errors of the scale come with longer ones."""
    measure = run_cell(Cell("trace", "FWD", "float32", "cpu", "opassay"), Settings("brief", max_examples=20)).measure
    bins = [Bin.of(text) for text in measure.bins]
    for kind in ("length", "magnitude"):
        mine = [one for one in bins if one.kind == kind]
        assert len(mine) > 2
        assert max(one.scaled for one in mine) == Bin.of(replace(mine[0], scaled=measure.scaled_max).text).scaled
    other = run_cell(Cell("trace", "JVP", "float32", "cpu", "opassay"), Settings("brief", max_examples=2))
    assert other.measure.bins == ()


def test_a_reading_notes_its_longest_sum_alone() -> None:
    lengths.record_sum(99)
    with lengths.record_lengths() as outer:
        lengths.record_sum(3)
        with lengths.record_lengths() as inner:
            lengths.record_sum(7)
        lengths.record_sum(2)
    assert (outer.longest, inner.longest) == (3, 7)
