"""What is counted of a watched program, the summary for a terminal, and its verdicts."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from opassay.oracles.verdicts.data import as_data, decode_verdict
from opassay.oracles.verdicts.verdict import Code, Outcome
from opassay.oracles.verdicts.watched import LossFacts, Site, SiteTotals, Watched
from opassay.reports.record import decode, encode
from opassay.reports.watch.text import lines_of
from opassay.reports.watch.totals import Totals, headline, loss_sentences, percent, ratio_text
from opassay.reports.watch.verdicts import verdicts_of
from tests.reports.conftest import HOSTILE, make_run
from tests.watch.made import faulty_program, held_program, hostile_program, infinite_program


def test_the_first_line_has_the_verdict_in_numbers() -> None:
    assert lines_of(held_program(2))[0] == "train.py: all 76 computing calls held"
    assert lines_of(faulty_program())[0] == (
        "train.py: 1,179 of 1,188 computing calls held; 6 outside, at 2 sites; 3 not judged"
    )
    assert lines_of(Watched("empty.py"))[0] == "empty.py: no computing call was recorded"


def test_a_site_outside_has_its_module_its_line_its_ratio_and_its_share() -> None:
    lines = lines_of(faulty_program())
    at = next(i for i, line in enumerate(lines) if line.startswith("outside:"))
    for words in ("aten::native_layer_norm (model.layers.6.norm1, model.py:18)", "times its bound, 3 of 3", " % of"):
        assert words in lines[at]
    assert lines[at + 1] == "  opassay watch --call opassay-report/cases/call-000116.bin"


def test_wanted_operators_are_ruled_out_or_not() -> None:
    lines = lines_of(faulty_program(), ("aten::gelu", "add", "mm", "native_layer_norm", "cos"))
    for words in (
        "aten::gelu cannot be the cause: 36 calls, each within its bound",
        "aten::add cannot be the cause",
        "aten::mm cannot be ruled out: 3 of 297 calls not judged",
        "aten::native_layer_norm is outside in 3 of 75 calls",
        "cos: the program makes no call of it",
    ):
        assert any(line.startswith(words) for line in lines), words


def _acquitted(watched: Watched, op: str) -> str:
    return next(doubt for group, doubt in Totals(watched).operators if group.name == op)


def test_an_operator_is_ruled_out_only_where_nothing_of_it_is_open() -> None:
    watched = held_program(2)
    assert watched.loss is not None
    at = next(i for i, site in enumerate(watched.sites) if site.place.op == "aten::gelu")

    def changed(**parts: object) -> Watched:
        sites = list(watched.sites)
        sites[at] = replace(sites[at], **parts)  # type: ignore[arg-type]
        return replace(watched, sites=tuple(sites))

    assert _acquitted(watched, "aten::gelu") == ""
    assert "outside" in _acquitted(changed(outcome=Outcome.FAIL), "aten::gelu")
    assert "no bound" in _acquitted(changed(outcome=Outcome.WEAK), "aten::gelu")
    totals = replace(watched.sites[at].totals, judged=0)
    assert "not judged" in _acquitted(changed(totals=totals), "aten::gelu")
    unknown = replace(watched, loss=replace(watched.loss, unknown=("aten::gelu",)))
    assert "not known" in _acquitted(unknown, "aten::gelu")
    infinite = infinite_program()
    assert infinite.special is not None
    plain = replace(infinite, special=replace(infinite.special, site=at))
    op = plain.sites[at].place.op
    assert _acquitted(plain, op) == "gives the first NaN or infinity"


def test_shares_are_told_as_first_order_from_the_error_on_that_is_half_of_a_value() -> None:
    watched = faulty_program()
    assert not any(map(Totals(watched).is_doubtful, watched.sites))
    for dtype, ratio, expected in (("float32", 2.0**24, True), ("float32", 2.0**23, False), ("bfloat16", 256, True)):
        sites = tuple(replace(s, dtype=dtype, ratio=ratio) if s.ratio > 1 else s for s in watched.sites)
        changed = replace(watched, sites=sites)
        assert any(map(Totals(changed).is_doubtful, sites)) is expected
        assert any("wrong in size and in sign" in line for line in loss_sentences(Totals(changed))) is expected


def test_the_net_and_the_sum_of_the_magnitudes_are_both_told() -> None:
    watched = replace(held_program(1), loss=LossFacts("loss", 2.0, 3e-7, 4e-7))
    text = " ".join(loss_sentences(Totals(watched)))
    for words in ("The loss is 2", "move it by 3e-7", "add up to 4e-7"):
        assert words in text
    large = replace(watched, loss=LossFacts("loss", 1e-7, 3e-7, 4e-7))
    assert "first order says nothing" in " ".join(loss_sentences(Totals(large)))


@pytest.mark.parametrize(("share", "text"), [(1.0, "100 %"), (0.996, "99.6 %"), (0.123, "12 %"), (math.nan, "–")])
def test_shares_are_told_in_percent(share: float, text: str) -> None:
    assert percent(share) == text


@pytest.mark.parametrize(
    ("ratio", "text"), [(1.0, "1"), (0.9996, "< 1"), (1.0004, "> 1"), (0.25, "0.25"), (math.inf, "∞")]
)
def test_a_ratio_says_on_which_side_of_the_bound_it_is(ratio: float, text: str) -> None:
    assert ratio_text(ratio) == text


def test_sites_of_one_operator_are_told_together() -> None:
    watched = faulty_program(2, 1)
    others = [i for i, site in enumerate(watched.sites) if site.place.op == "aten::native_layer_norm"]
    sites = [replace(s, outcome=Outcome.FAIL, ratio=5.0) if i in others else s for i, s in enumerate(watched.sites)]
    lines = lines_of(replace(watched, sites=tuple(sites)))
    assert sum(line.startswith("outside: aten::native_layer_norm (") for line in lines) == 1
    assert any(line.startswith("  aten::native_layer_norm also in ") for line in lines)


def test_calls_that_were_not_kept_are_never_counted_as_held() -> None:
    watched = held_program(2)
    at = next(i for i, site in enumerate(watched.sites) if site.place.op == "aten::gelu")
    unkept = replace(
        watched.sites[at], kind="unkept", outcome=Outcome.NOT_RUN, reason="no call of it was kept", totals=SiteTotals(1)
    )
    changed = replace(watched, sites=(*watched.sites[:at], unkept, *watched.sites[at + 1 :]))
    assert headline(Totals(changed)).endswith("; 1 call not kept")
    assert _acquitted(changed, "aten::gelu") == "cannot be ruled out: 1 of 2 calls not judged"
    assert any("no call of it was kept" in line for line in lines_of(changed))


def test_bits_that_differ_count_as_outside_though_they_have_no_ratio() -> None:
    watched = held_program(1)
    at = next(i for i, site in enumerate(watched.sites) if site.kind == "moves")
    sites = list(watched.sites)
    sites[at] = replace(sites[at], outcome=Outcome.FAIL, reason="bits differ")
    assert "1 of them of bits that must be equal" in headline(Totals(replace(watched, sites=tuple(sites))))


def test_a_terminal_gets_no_control_characters() -> None:
    assert not set("".join(lines_of(hostile_program(HOSTILE), (HOSTILE,)))) & set("\x1b\x00\x07\u202e\n")


@pytest.mark.parametrize(
    "watched", [held_program(2), faulty_program(), infinite_program(), hostile_program("x" * 9000)]
)
def test_verdicts_are_those_of_a_record(watched: Watched) -> None:
    verdicts = verdicts_of(watched, "cpu")
    assert len({verdict.cell.key for verdict in verdicts}) == len(watched.sites)
    for one in verdicts:
        decode_verdict(as_data(one))
    assert len(decode(encode(make_run(*verdicts))).verdicts) == len(verdicts)


def test_a_verdict_has_the_module_the_operation_and_the_failure_of_its_site() -> None:
    watched = faulty_program()
    failed = [verdict for verdict in verdicts_of(watched, "cpu") if verdict.outcome is Outcome.FAIL]
    assert [(v.cell.op, v.cell.property) for v in failed] == [
        ("model.layers.6.norm1", "aten::native_layer_norm"),
        ("model.layers.6.norm1", "aten::native_layer_norm_backward backward"),
    ]
    for verdict in failed:
        assert verdict.failure is not None
        assert verdict.code is Code.VALUE
        assert verdict.measure.samples == 3
        assert verdict.failure.title.endswith("): out[0, 2, 5] is outside")
        assert verdict.failure.message.count("out[0, 2, 5] is outside") == 1
        assert "all in the last rows of dim 1" in verdict.failure.message
        assert "opassay watch --call opassay-report/cases/call-" in verdict.failure.message


def test_equal_names_of_two_nodes_get_numbers_of_their_own() -> None:
    watched = held_program(1)
    twice = replace(watched.sites[3], place=replace(watched.sites[3].place, node="OtherBackward0"))
    once = replace(twice, place=replace(twice.place, node="MmBackward0"))
    names = [v.cell.property for v in verdicts_of(replace(watched, sites=(once, twice), calls=()), "cpu")]
    assert len(set(names)) == 2
    assert names[1].endswith("#2")


def test_a_site_without_elements_is_judged_as_a_whole_and_one_without_calls_is_weak() -> None:
    site = held_program(1).sites[2]
    empty = replace(site, totals=SiteTotals(2, 2, 0), ratio=math.nan)
    none = replace(site, totals=SiteTotals(2, 0, 0), place=replace(site.place, number=5))

    def judged(one: Site) -> Outcome:
        verdict = verdicts_of(Watched("train.py", (one,)), "cpu")[0]
        return decode_verdict(as_data(verdict)).outcome

    assert judged(empty) is Outcome.VERIFIED
    assert judged(none) is Outcome.WEAK


@pytest.mark.parametrize(
    ("kind", "outcome", "judged", "code"),
    [
        ("memory", Outcome.NOT_RUN, 0, Code.NOT_APPLICABLE),
        ("unkept", Outcome.NOT_RUN, 0, Code.DESELECTED),
        ("computes", Outcome.NOT_RUN, 0, Code.INTERRUPTED),
        ("computes", Outcome.UNSUPPORTED, 0, Code.NOT_APPLICABLE),
        ("computes", Outcome.WEAK, 1, Code.FEW_SAMPLES),
        ("computes", Outcome.WEAK, 2, Code.MOSTLY_NOT_JUDGED),
        ("moves", Outcome.FAIL, 2, Code.BITS),
    ],
)
def test_a_verdict_says_why_nothing_or_not_everything_is_known(
    kind: str, outcome: Outcome, judged: int, code: Code
) -> None:
    site = replace(held_program(1).sites[2], kind=kind, outcome=outcome, totals=SiteTotals(2, judged, 8 * judged))
    verdict = verdicts_of(Watched("train.py", (site,)), "cpu")[0]
    assert decode_verdict(as_data(verdict)).code is code
