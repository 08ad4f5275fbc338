"""The page of a watched program: one file, no network, whole without scripts, its numbers, harmless with any names."""

from __future__ import annotations

import math
import re
from dataclasses import replace

import pytest

from opassay.oracles.verdicts.verdict import Outcome
from opassay.oracles.verdicts.watched import LossFacts, Watched
from opassay.reports.templates import source_of
from opassay.reports.text import number
from opassay.reports.watch import html
from opassay.reports.watch.html import render
from opassay.reports.watch.icicle import boxes_of, tree_of
from opassay.reports.watch.step import step_plot, stretches_of
from opassay.reports.watch.totals import Totals
from tests.reports.conftest import HOSTILE, make_run, verdict
from tests.reports.pages import Page
from tests.watch.made import (
    faulty_program,
    held_program,
    hostile_program,
    infinite_program,
    large_program,
)


@pytest.fixture(name="faulty", scope="module")
def _faulty() -> Watched:
    return faulty_program()


@pytest.fixture(name="page", scope="module")
def _page(faulty: Watched) -> Page:
    return Page(render(faulty, make_run(verdict())))


def test_it_is_one_file_that_loads_nothing(page: Page) -> None:
    assert not {"link", "img", "iframe", "object", "base"} & set(page.tags)
    assert page.tags.count("script") == 1
    links = [value for name, value in page.attributes if name in ("href", "src", "action", "xlink:href")]
    assert links
    assert all(value.startswith("#") for value in links)
    assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]


@pytest.mark.parametrize("watched", [faulty_program(), held_program(), infinite_program(), Watched("empty.py")])
def test_every_link_has_its_target_and_every_id_is_one(watched: Watched) -> None:
    page = Page(render(watched))
    targets = [value for name, value in page.attributes if name == "id"]
    links = {value[1:] for name, value in page.attributes if name == "href"}
    assert len(targets) == len(set(targets))
    assert links <= set(targets)


def test_the_first_lines_have_the_numbers(page: Page, faulty: Watched) -> None:
    computing = sum(site.totals.calls for site in faulty.sites if site.kind == "computes")
    head = page.text[: page.text.index("Skip to") + 1500]
    assert "train.py: 2 call sites outside" in head
    assert f"{computing - 9:,} of {computing:,} computing calls held; 6 outside, at 2 sites; 3 not judged" in head
    assert faulty.loss is not None
    assert f"move it by {number(faulty.loss.explained)} to first order" in head


def test_a_card_has_what_is_wrong_and_the_command_that_judges_the_call_alone(page: Page, faulty: Watched) -> None:
    for site in (site for site in faulty.sites if site.outcome is Outcome.FAIL):
        assert f"opassay watch --call opassay-report/cases/{site.case}.bin" in page.text
        assert "all in the last rows of dim 1" in page.text
    assert "input: float32 [8, 64, 48]" in page.text


def test_what_was_not_read_or_has_no_spec_is_told(page: Page) -> None:
    for words in ("no reading of this operation", "rotary::apply", "3 of 297 calls not judged", "Recorded: all calls"):
        assert words in page.text


def test_it_reads_without_scripts(page: Page) -> None:
    hidden = [value for name, value in page.attributes if name == "hidden"]
    assert len(hidden) == 1  # the filters, which do nothing without a script
    for words in ("By module", "By operator", "By line", "By call site", "cannot be the cause", "How to read this"):
        assert words in page.text
    style = render(held_program(1))
    for rule in ("#c-loss:checked ~ .icicles", "#w-time:checked ~ .icicles", "#by-line:checked ~ .of-line"):
        assert rule in style


def test_the_tree_of_modules_has_widths_by_calls_and_by_time(faulty: Watched) -> None:
    tree = tree_of(Totals(faulty))
    for size in (lambda group: float(group.calls), lambda group: group.seconds):
        boxes = boxes_of(tree, size)
        assert boxes[0] == (tree, 0.0, 100.0)
        for branch, left, width in boxes:
            inner = [(x, w) for child, x, w in boxes if child in branch.children.values()]
            # Ends are rounded to thousandths of a percent.
            assert sum(w for _, w in inner) <= width + 1e-3 * (1 + len(inner))
            assert all(left - 1e-3 <= x and x + w <= left + width + 2e-3 for x, w in inner)
    assert tree.group.calls == len(faulty.calls)
    assert [branch.path for branch in tree.within() if branch.own] == ["model.layers.6.norm1"]


def test_a_module_outside_is_drawn_however_narrow_it_is() -> None:
    watched = faulty_program(200, 1)
    paths = [branch.path for branch, _, _ in boxes_of(tree_of(Totals(watched)), lambda group: float(group.calls))]
    assert "model.layers.100.norm1" in paths
    assert "model.layers.99.norm1" not in paths


def test_the_style_is_whole() -> None:
    style = source_of(html.__package__, "watch.css")
    depth = 0
    for sign in re.findall(r"[{}]", style):
        depth += 1 if sign == "{" else -1
        assert 0 <= depth <= 3
    assert depth == 0


def test_the_plot_keeps_the_largest_and_the_smallest_of_a_column() -> None:
    watched = large_program(4)
    plot = step_plot(watched)
    assert plot is not None
    paths = dict(plot.paths)
    assert set(paths) == {"exact", "forward", "backward", "outside", "unread"}
    assert all(path.count("M") <= 700 for path in paths.values())
    assert [name for _, _, name in plot.spans if name != "elsewhere"] == ["forward", "backward"] * 4
    worst = max(call.ratio for call in watched.calls if not math.isnan(call.ratio))
    heights = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)", paths["outside"])]
    assert min(heights) == min(y for _, y, _, _ in plot.dots)
    assert watched.calls[plot.dots[0][3]].ratio == worst
    inside = [float(y) for y in re.findall(r"M[\d.]+ ([\d.]+)", paths["forward"])]
    assert all(y > plot.one for y in inside)


def test_the_step_is_written_in_order_and_what_is_left_out_is_counted() -> None:
    watched = faulty_program()
    stretches, missing = stretches_of(watched)
    assert missing == 0
    assert sum(count for line in stretches for _, count, _ in line.chips) == len(watched.calls)
    large = large_program(60)
    stretches, missing = stretches_of(large)
    count = sum(count for line in stretches for _, count, _ in line.chips)
    assert count + missing == len(large.calls)
    assert sum(count for line in stretches for _, count, kind in line.chips if kind == "outside") == 120


def test_the_first_nan_has_its_reason_and_its_way_to_the_loss() -> None:
    page = Page(render(infinite_program()))
    for words in ("out[3, 4] is NaN", "0/0: the variance of row 3 is 0", "eps: 0.0", "It reaches the loss through"):
        assert words in page.text
    assert "a NaN or an infinity begins" in page.text[:300]
    nothing_else = replace(held_program(), special=infinite_program().special)
    assert "every call held, and a NaN or an infinity begins" in Page(render(nothing_else)).text


def test_a_program_of_which_all_held_says_so() -> None:
    page = Page(render(held_program()))
    assert "train.py: every call held" in page.text
    assert "Outside" not in page.text.split("How to read this")[0]
    assert "Every recorded call with numbers was judged." in page.text


def test_without_a_backward_pass_nothing_is_said_of_a_loss() -> None:
    page = Page(render(replace(held_program(1), loss=None)))
    assert "No backward pass was run" in page.text
    assert "By module" not in page.text


def test_an_empty_record_is_not_a_success() -> None:
    page = Page(render(Watched("empty.py")))
    assert "nothing held" in page.text
    assert "no computing call was recorded" in page.text


def test_hostile_names_stay_text() -> None:
    content = render(hostile_program(HOSTILE))
    page = Page(content)
    assert page.tags.count("script") == 1
    assert "img" not in page.tags
    assert not [name for name, _ in page.attributes if name.startswith("on")]
    assert not set(content) & set("\x1b\x00\x07\u202e\ud800")


def test_an_infinite_share_or_loss_is_drawn() -> None:
    watched = faulty_program(2, 1)
    calls = tuple(replace(call, ratio=math.inf) if call.ratio > 1 else call for call in watched.calls)
    sites = tuple(replace(site, ratio=math.inf) if site.ratio > 1 else site for site in watched.sites)
    odd = replace(watched, calls=calls, sites=sites, loss=LossFacts("loss", math.inf, math.nan, math.inf))
    assert "∞" in Page(render(odd)).text


def test_a_hundred_thousand_calls_are_a_page_of_a_few_megabytes() -> None:
    watched = large_program(95)
    assert len(watched.calls) > 100_000
    assert len(render(watched).encode()) < 4_000_000
