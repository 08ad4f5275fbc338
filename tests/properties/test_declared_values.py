"""That samples have every declared value: faults of one value, or of two together, and values that no sample has."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import strategies as st

from opassay import Cell, Code, Draft, Op, Outcome, Sample, Settings, run_cell
from opassay.oracles.bound.accept import Edges, Elements, Measures
from opassay.oracles.judge import card
from opassay.oracles.judge.tally import Tally
from opassay.oracles.verdicts.verdict import Worst
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks import CHECKS
from opassay.properties.declaring import choices, drawing
from opassay.properties.declaring.declare import declare
from opassay.properties.picking import drafting
from opassay.properties.picking.cover import Cover

When = Callable[..., bool]


def wrong_where(name: str, when: When) -> Op:
    """The op, whose subject "faulty" is twice of what is right where `when` holds of its arguments."""
    declared = load_op(name)
    right = declared.subjects["opassay"]

    def faulty(*args: Any) -> Any:
        result = right(*args)
        if not when(*args):
            return result
        return tuple(2 * y for y in result) if isinstance(result, tuple) else 2 * result

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty, "right": right})
    return fault


#: op, dtype, profile, and where it is wrong
FAULTS: dict[str, tuple[str, str, str, When]] = {
    "bfloat16 results": ("softmax", "float32", "brief", lambda x, dim, to: to is torch.bfloat16),
    "a negative dim": ("log_softmax", "float32", "brief", lambda x, dim, to: dim == -3),
    "no axes": ("softmax", "float32", "brief", lambda x, dim, to: x.dim() == 0),
    "no axes, elementwise": ("log_sigmoid", "float64", "brief", lambda x: x.dim() == 0),
    "no axes, gathered": ("gather", "float32", "brief", lambda dim, *parts: parts[0].dim() == 0),
    "no axes, hooked": ("broadcast", "float32", "brief", lambda places, *args: args[-1].dim() == 0),
    "smoothing of one": ("cross_entropy", "float32", "brief", lambda *args: args[5] == 1.0),
    "targets of bytes": ("cross_entropy", "float16", "brief", lambda *args: args[1].dtype is torch.uint8),
    "a byte that is ignored": (
        "nll_loss", "float32", "commit", lambda *args: args[1].dtype is torch.uint8 and args[3] == 255,
    ),
    "a power and a summand": ("cross_map_lrn2d", "float32", "commit", lambda x, n, a, b, k: (b, k) == (0.5, 2.0)),
    "momentum without weight": (
        "batch_norm", "float32", "commit", lambda x, m, v, w, b, train, mom, eps: mom == 1.0 and w is None and train,
    ),
    "eps and a given bias": (
        "layer_norm", "bfloat16", "commit", lambda x, s, w, b, eps: eps == 1e-12 and b is not None and w is None,
    ),
}  # fmt: skip


@pytest.mark.one_fast_in(6)
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_one_value_or_of_two_is_refused(name: str) -> None:
    op_name, dtype, profile, when = FAULTS[name]
    op = wrong_where(op_name, when)
    assert (
        run_cell(Cell(op.name, "FWD", dtype, "cpu", "faulty"), Settings(profile, simpler=False), op).outcome
        == Outcome.FAIL
    )
    verdict = run_cell(Cell(op.name, "FWD", dtype, "cpu", "right"), Settings("brief"), op)
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason


@pytest.mark.one_fast_in(3)
@pytest.mark.parametrize("code", ["VJP", "LAYOUT", "ORD2"])
def test_a_cell_of_few_samples_has_the_values_that_it_is_asked_for(code: str) -> None:
    verdict = run_cell(Cell("softmax", code, "float32", "cpu", "opassay"), Settings("commit"))
    assert verdict.outcome == Outcome.VERIFIED, verdict.reason
    assert " declared values and " in verdict.reason
    assert "(not " not in verdict.reason


# ------------------------------------------------------------------------------------- values that no sample has


def two_numbers(values: tuple[float, ...], never: float) -> Op:
    """Layer norm with an `eps` of some values, of which one is drawn and never reaches the op."""

    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str = "ordinary") -> Draft:
        eps = draw(choices.choose("eps", values))
        if eps == never:
            eps = values[0]
            choices.settle("eps", eps)
        x = torch.tensor([[1.0, 2.0, 3.0]]).to(getattr(torch, dtype))
        return Draft(lambda rng: (x + rng.integers(0, 4), (3,), None, None, eps), "benign")

    small = drawing.without(samples, "large", "rows of three alone")
    op: Op = dataclasses.replace(load_op("layer_norm"), samples=small)
    return op


def test_a_declared_value_that_no_sample_has_makes_a_cell_weak_and_is_named() -> None:
    cell = Cell("layer_norm", "FWD", "float32", "cpu", "opassay")
    verdict = run_cell(cell, Settings("brief"), two_numbers((1e-5, 1e-3), never=1e-3))
    assert (verdict.outcome, verdict.code) == (Outcome.WEAK, Code.VALUE_NOT_MET)
    assert verdict.reason == "no sample had eps 0.001"
    assert run_cell(cell, Settings("brief"), two_numbers((1e-5, 1e-3), never=9.0)).outcome == Outcome.VERIFIED
    # Of one sample nothing can be asked but that its reason says what it had not.
    alone = run_cell(cell, Settings("brief", max_examples=1), two_numbers((1e-5, 1e-3), never=1e-3))
    assert alone.outcome == Outcome.VERIFIED
    assert "1 of 3 declared values" in alone.reason or "2 of 3 declared values" in alone.reason
    assert "(not eps 0.001)" in alone.reason


def test_a_declared_value_of_which_nothing_could_be_judged_makes_a_cell_weak(monkeypatch: pytest.MonkeyPatch) -> None:
    def look(questions: Any, sample: Sample) -> None:
        questions.tally.count(*((0, 3) if sample.args[4] == 1e-3 else (3, 0)))

    monkeypatch.setitem(CHECKS, "FWD", look)
    cell = Cell("layer_norm", "FWD", "float32", "cpu", "opassay")
    verdict = run_cell(cell, Settings("brief"), two_numbers((1e-5, 1e-3, 1e-8), never=9.0))
    assert (verdict.outcome, verdict.code) == (Outcome.WEAK, Code.VALUE_NOT_MET)
    assert verdict.reason == "no element could be judged with eps 0.001"


def test_what_is_equal_to_python_is_two_values() -> None:
    with choices.record_choices() as record:
        for values in ((1, 1.0), (True, 1)):
            assert choices.choose("k", values) is choices.choose("k", values)
        assert choices.choose("k", (1, 2)) is not choices.choose("k", (1.0, 2))
        record.note("k", 1.0, ("1", "1.0"))
    assert record.values == {("k", "1.0")}


# ---------------------------------------------------------------------------------------------------------- picking


def test_all_values_come_before_pairs_and_every_pair_comes_in_the_end() -> None:
    drafts = drafting.drafts(load_op("cross_map_lrn2d"), "float32", "ordinary", 0)
    cover = Cover(drafts, 40, 0)
    picked = list(cover.picks(40))
    pairs = frozenset(pair for one in picked for pair in one.draft.values)
    assert not cover.unmet(pairs)
    some, every = cover.pairs()
    assert some < every
    list(cover.picks(1000))
    assert cover.pairs() == (every, every)


def test_drafts_are_the_same_whoever_asks_first() -> None:
    op = load_op("softmax")
    one = drafting.Drafts(op.samples("float32", "ordinary"), 3)
    other = drafting.Drafts(op.samples("float32", "ordinary"), 3)
    one.first(7)
    assert [d.choices for d in one.first(20)] == [d.choices for d in other.first(20)]


# ------------------------------------------------------------------------------------------------------------ seeds


@pytest.mark.fast_cases("brief")
@pytest.mark.parametrize("profile", ["brief", "commit"])
def test_no_two_samples_of_a_cell_have_one_seed(profile: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds = []
    monkeypatch.setitem(CHECKS, "FWD", lambda _, sample: seeds.append(sample.seed))
    run_cell(Cell("softmax", "FWD", "float32", "cpu", "opassay"), Settings(profile))
    assert len(seeds) >= 25
    assert len(set(seeds)) == len(seeds)


def test_a_sample_with_the_seed_of_another_one_is_no_more_evidence_of_a_bias() -> None:
    def biased(seeds: Any) -> dict[str, float]:
        one = np.ones(3)
        yes = np.ones(3, bool)
        result = Elements(yes, yes, ~yes, one, lambda some: Measures(*(one[some],) * 5), lambda at: Edges(1.0, 1.0))
        tally = Tally()
        for seed in seeds:
            with tally.sample(Sample((), seed)):
                tally.output(result, "out", "forward", lambda at: Worst("out", "forward", "0", "0", 1.0, 1.0))
        return tally.biases()

    assert biased(range(200))
    assert not biased([1, 2] * 100)


# ---------------------------------------------------------------------------------- what a subject must not judge by


def writes_its_input(name: str, at: int, value: float) -> Op:
    """The op, whose subject "faulty" clears an argument and returns what is right of the cleared one."""
    declared = load_op(name)

    def faulty(*args: Any) -> Any:
        with torch.no_grad():
            args[at].detach().fill_(value)
        return declared.subjects["opassay"](*args)

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty})
    return fault


@pytest.mark.parametrize(
    ("name", "at", "value"),
    [("softmax", 0, 1.0), ("cross_entropy", 1, 0.0), ("layer_norm", 0, 2.0), ("log_sigmoid", 0, 0.0)],
)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_subject_that_writes_its_input_does_not_write_the_truth(name: str, at: int, value: float, dtype: str) -> None:
    op = writes_its_input(name, at, value)
    verdict = run_cell(Cell(name, "FWD", dtype, "cpu", "faulty"), Settings("brief", simpler=False), op)
    assert verdict.outcome == Outcome.FAIL, verdict.reason


def wrong_with_strides(name: str, at: int) -> Op:
    """The op, whose subject "faulty" takes an argument for contiguous: it reads, and writes, its memory as it lies."""
    declared = load_op(name)

    def faulty(*args: Any) -> Any:
        operands = list(args)
        tensor = args[at]
        if isinstance(tensor, torch.Tensor) and not tensor.is_contiguous() and tensor.numel():
            dense = torch.empty(tensor.shape, device="meta").stride()
            operands[at] = tensor.as_strided(tensor.shape, dense)
        return declared.subjects["opassay"](*operands)

    fault: Op = dataclasses.replace(declared, subjects={"faulty": faulty})
    return fault


@pytest.mark.parametrize(("name", "at"), [("cross_entropy", 1), ("nll_loss", 1), ("batch_norm", 1), ("batch_norm", 2)])
def test_integers_and_what_is_written_come_with_strides(name: str, at: int) -> None:
    op = wrong_with_strides(name, at)
    verdict = run_cell(Cell(name, "LAYOUT", "float32", "cpu", "faulty"), Settings("brief", simpler=False), op)
    assert verdict.outcome == Outcome.FAIL, verdict.reason


def test_a_failing_sample_whose_outputs_outgrow_its_operands_is_not_read_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unread(*args: Any) -> Any:
        raise AssertionError("an exact reading of so many elements would take minutes")

    def fill(rng: Any) -> Any:
        return {name: torch.from_numpy(rng.standard_normal(400)) for name in ("x", "y")}

    def differences(x: Any, y: Any) -> Any:
        return x[:, None] - y[None, :]

    samples = drawing.without(lambda dtype, kind: st.just(Draft(fill, "benign")), "large", "of 400 alone")
    op = declare(differences, {"faulty": lambda x, y: 2 * differences(x, y)}, samples, ("x", "y"), lambda x: (x.dtype,))
    monkeypatch.setattr(card, "evaluate", unread)
    verdict = run_cell(Cell("differences", "FWD", "float64", "cpu", "faulty"), Settings("brief", simpler=False), op)
    assert verdict.outcome == Outcome.FAIL, verdict.reason
