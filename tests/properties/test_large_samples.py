"""Large samples: which are drawn, and that faults which begin at a length are seen.

Run with `-s` to see the table of faults.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter
from typing import Any

import pytest
import torch
from hypothesis import strategies as st

from opassay import Cell, Code, Draft, Op, Outcome, Sample, Settings, Unsupported, replay_case, run_cell
from opassay.oracles.judge import judge
from opassay.oracles.judge.tally import Tally
from opassay.oracles.verdicts.case import load_case
from opassay.oracles.verdicts.verdict import MAX_CASE
from opassay.properties.catalog import CATALOG
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks import CHECKS
from opassay.properties.checks.determinism import SINGLE_SUM
from opassay.properties.declaring import kinds
from opassay.properties.engine import draws
from opassay.properties.engine.draft_filters import longest
from opassay.reports.exit_codes import NOTHING, USAGE, run_reasons

from .planted_sizes import AXES, long_diagonal, many_rows, stops_at

pytestmark = pytest.mark.slow

FIRSTS = (73, 129, 1025, 4097)
HOW = {"forward": "FWD", "backward": "VJP"}


@pytest.fixture
def large_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cells draw their large samples alone, the same as ever, and a failing one is reported as it was found.

    The ordinary samples have 72 elements at most, where the planted faults do not show; shrinking is tested apart.
    """

    def stages(judge: Any, sampling: Any, examples: int, draw: Any) -> None:
        choice = draws.Large(judge, sampling.large_of(examples), sampling.most)
        draws._draw_large(judge, choice, draw)

    monkeypatch.setattr(draws, "stages", stages)


def caught_by(op: Op, code: str, dtype: str = "float32") -> str:
    """How a cell of the faulty subject ends, in short."""
    verdict = run_cell(Cell(op.name, code, dtype, "cpu", "faulty"), Settings("commit", simpler=False), op)
    if verdict.outcome != Outcome.FAIL:
        return f"{verdict.outcome}: {verdict.reason}"
    assert verdict.code in (Code.VALUE, Code.SPECIAL), verdict.reason
    return "caught"


@pytest.mark.usefixtures("large_alone")
@pytest.mark.parametrize("name", AXES)
def test_a_fault_that_begins_at_a_length_is_caught(name: str) -> None:
    missed = []
    for axis in AXES[name].names:
        for how, code in HOW.items():
            results = [caught_by(stops_at(name, axis, first, how), code) for first in FIRSTS]
            print(
                f"\n{name:16s} {axis:10s} {how:9s} {code}", *(f"{n}: {f}" for n, f in zip(FIRSTS, results, strict=True))
            )
            missed += [(axis, how, n, f) for n, f in zip(FIRSTS, results, strict=True) if f != "caught"]
    assert not missed


@pytest.mark.usefixtures("large_alone")
def test_a_fault_of_trace_that_begins_at_a_length_is_caught() -> None:
    # A diagonal of 265 elements would take a matrix of more than 70,000, the most that is drawn.
    for first in (73, 129):
        results = {how: caught_by(long_diagonal(first, how), code) for how, code in HOW.items()}
        print(f"\ntrace            diagonal   {first}: {results}")
        assert results == {"forward": "caught", "backward": "caught"}
    for axis, name in enumerate(("rows", "columns")):
        results = {str(first): caught_by(many_rows(axis, first), "FWD") for first in FIRSTS}
        print(f"\ntrace            {name:10s} {results}")
        assert set(results.values()) == {"caught"}


def test_a_failing_large_sample_shrinks_to_the_length_at_which_the_fault_begins_and_replays() -> None:
    op = stops_at("layer_norm", "row", 73, "forward")
    verdict = run_cell(Cell("layer_norm", "FWD", "float32", "cpu", "faulty"), Settings("commit"), op)
    assert verdict.outcome == Outcome.FAIL
    assert verdict.failure is not None
    _, sample = load_case(verdict.failure.case)
    assert math.prod(sample.args[1]) == 73, "the simplest large row should have been found"
    assert len(verdict.failure.case) < 2**16
    assert replay_case(verdict.failure.case.replace('"faulty"', '"opassay"')).outcome == Outcome.VERIFIED


def test_a_failure_of_the_largest_sample_is_told_without_an_exact_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    def unread(*args: Any) -> Any:
        raise AssertionError("an exact reading of a large sample would take minutes")

    def stages(judge: Any, sampling: Any, examples: int, draw: Any) -> None:
        draws._draw_large(judge, draws.Large(judge, 1, sampling.most, shared=True), draw)

    monkeypatch.setattr(judge, "evaluate", unread)
    monkeypatch.setattr(draws, "stages", stages)
    right = load_op("native_layer_norm_backward")
    subjects = {"faulty": lambda *args: tuple(y if y is None else 2 * y for y in right.subjects["opassay"](*args))}
    op = dataclasses.replace(right, subjects=subjects)
    verdict = run_cell(Cell(op.name, "FWD", "float64", "cpu", "faulty"), Settings("commit", simpler=False), op)
    assert verdict.outcome == Outcome.FAIL, verdict.reason
    assert verdict.failure is not None
    _, sample = load_case(verdict.failure.case)
    assert kinds.largest_of(sample) > draws.SHARED
    assert len(verdict.failure.case) < MAX_CASE


@pytest.mark.parametrize("name", CATALOG)
@pytest.mark.parametrize("code", ["FWD", "DET"])
def test_every_op_has_its_large_samples(name: str, code: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []

    def look(judge: Any, sample: Any) -> None:
        if judge.tally.part == "large":
            sizes.append(kinds.largest_of(sample))

    monkeypatch.setitem(CHECKS, code, look)
    run_cell(Cell(name, code, "float32", "cpu", "opassay"), Settings("brief"))
    wanted = 2  # 8 % of 25 samples; all of DET's
    others, along_one_axis = sizes[:wanted], sizes[wanted:]
    assert len(others) == wanted
    assert all(72 < size <= 70_000 for size in others)
    assert not along_one_axis or (code == "DET" and load_op(name).promises.arithmetic.steady)
    assert all(size >= SINGLE_SUM for size in along_one_axis)
    if code == "DET" and name not in ("broadcast", "reduce_add_coalesced", "gather", "scatter"):  # in so many parts
        assert max(others) > draws.SHARED


def test_each_axis_of_an_op_is_the_long_one_in_a_cell_of_the_commit_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    long: Counter[str] = Counter()

    def note(draft: Any, *args: Any) -> Any:
        name, extent = longest(draft)
        long[name] += extent > 4096
        return make(draft, *args)

    make = kinds.sample_of
    monkeypatch.setattr(kinds, "sample_of", note)
    run_cell(Cell("native_group_norm", "FWD", "float32", "cpu", "opassay"), Settings("commit"))
    assert {name for name, count in long.items() if count} == {"n", "groups", "per_group", "positions"}


def test_a_cell_of_one_or_two_samples_has_no_large_one_and_says_so() -> None:
    verdict = run_cell(Cell("layer_norm", "FWD", "float32", "cpu", "opassay"), Settings("commit", max_examples=2))
    assert verdict.reason.endswith("no large samples: 2 samples in all")


# ---------------------------------------------------------------------------------- samplers that are not of a kind


def declared(samples: Any) -> Op:
    op: Op = load_op("layer_norm")
    return dataclasses.replace(op, samples=samples)


def verdict_of(code: str, samples: Any) -> Any:
    return run_cell(Cell("layer_norm", code, "float32", "cpu", "opassay"), Settings("commit"), declared(samples))


def of_three(dtype: str, kind: str = "ordinary") -> Any:
    """Rows of three, whatever kind is asked for."""

    def fill(rng: Any) -> Any:
        return torch.from_numpy(rng.standard_normal((2, 3))).to(getattr(torch, dtype)), (3,), None, None, 1e-5

    return st.just(Draft(fill, "benign"))


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("FWD", "kind 'large' gave tensors of at most 6 elements in 8 samples, need more than 72"),
        ("DET", "kind 'large' gave tensors of at most 6 elements in 10 samples, need more than 72"),
        ("EMPTY", "kind 'empty' gave tensors of shapes (2, 3), need one of no elements"),
        ("DATA", "kind 'integers' gave floating tensors of shapes (2, 3), none of which holds integers"),
    ],
)
def test_a_sampler_that_ignores_the_kind_is_a_wrong_declaration(code: str, says: str) -> None:
    verdict = verdict_of(code, of_three)
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.DECLARATION)
    assert says in verdict.reason
    assert [code for code, _ in run_reasons([verdict])] == [USAGE, NOTHING]


def test_a_sampler_that_offers_no_large_samples_is_judged_without_and_says_so() -> None:
    def small(dtype: str, kind: str = "ordinary") -> Any:
        if kind == "large":
            raise Unsupported(Code.NOT_APPLICABLE, "rows of three alone")
        return of_three(dtype)

    for code in ("FWD", "DET"):
        verdict = verdict_of(code, small)
        assert verdict.outcome == Outcome.VERIFIED
        assert verdict.reason.endswith("no large samples: rows of three alone")


def _raises(dtype: str, kind: str) -> Any:
    raise KeyError("rows")


@st.composite
def _raises_in_draw(draw: Any, dtype: str, kind: str) -> Draft:
    raise ValueError(f"no {kind} rows of {draw(st.just(3))}")


def _fills_nothing(rng: Any) -> Any:
    return rng.nothing


def _fills_a_list(rng: Any) -> Any:
    return [1]


WRONG = {
    "raises": (_raises, "samples('float32', 'large'): raised KeyError: 'rows' ("),
    "raises in a draw": (_raises_in_draw, "samples('float32', 'ordinary'): raised ValueError: no ordinary rows of 3 ("),
    "raises in fill": (lambda dtype, kind: st.just(Draft(_fills_nothing, "x")), "Draft: raised AttributeError"),
    "gives no strategy": (lambda dtype, kind: 3, "got int, need a Hypothesis strategy of Draft"),
    "draws no draft": (lambda dtype, kind: st.just((1, 2)), "drew tuple, need Draft"),
    "fills no arguments": (lambda dtype, kind: st.just(Draft(_fills_a_list, "x")), "gave list, need a tuple"),
    "gives nothing to draw": (lambda dtype, kind: st.sampled_from(()), "raised InvalidArgument"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_samples_that_raise_or_are_no_drafts_are_a_wrong_declaration(name: str) -> None:
    samples, says = WRONG[name]
    verdict = verdict_of("FWD", samples)
    assert (verdict.outcome, verdict.code) == (Outcome.ERROR, Code.DECLARATION), verdict.reason
    assert says in verdict.reason
    if "raise" in name:
        assert "test_large_samples.py:" in verdict.reason, "the line of the declaration should be told"


# ------------------------------------------------------------------------------------------ regimes of which nothing


def _overflowing(unjudged: int) -> Any:
    """Rows of ones; in regime "huge", one draft in two, rows that overflow for as many samples."""
    failures = iter(range(unjudged))

    def samples(dtype: str, kind: str = "ordinary") -> Any:
        if kind == "large":
            raise Unsupported(Code.NOT_APPLICABLE, "rows of three alone")

        def fill(huge: bool) -> Any:
            size = 1e38 if huge and next(failures, None) is not None else 1.0
            return torch.tensor([[1.0, 2.0, 3.0]]).to(getattr(torch, dtype)) * size, (3,), None, None, 1e-5

        return st.booleans().map(lambda huge: Draft(lambda rng: fill(huge), "huge" if huge else "benign"))

    return samples


def test_a_regime_that_is_never_judged_makes_a_cell_weak() -> None:
    verdict = verdict_of("ORD2", _overflowing(10**6))
    assert (verdict.outcome, verdict.code) == (Outcome.WEAK, Code.REGIME_NOT_JUDGED)
    assert verdict.reason == "no element could be judged of the regime huge"
    ((_, benign, none), (name, judged, not_judged)) = verdict.measure.regimes
    assert (none, name, judged) == (0, "huge", 0)
    assert benign == verdict.measure.judged
    assert not_judged == verdict.measure.not_judged
    assert verdict.measure.samples >= 20 + draws.FURTHER


def test_a_starved_regime_is_drawn_until_something_of_it_could_be_judged() -> None:
    verdict = run_cell(Cell("layer_norm", "ORD2", "float32", "cpu", "opassay"), Settings("commit", max_examples=4),
                     declared(_overflowing(3)))  # fmt: skip
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    (_, (name, judged, not_judged)) = verdict.measure.regimes
    assert name == "huge"
    assert judged > 0
    assert not_judged > 0


def test_the_regimes_of_several_tensors_count_each() -> None:
    one = Tally()
    with one.sample(Sample((), regime="ties, huge")):
        one.count(not_judged=3)
    with one.sample(Sample((), regime="ties")):
        one.count(2)
    assert one.starved() == ("huge",)
    assert one.measure().regimes == (("huge", 0, 3), ("ties", 2, 3))
