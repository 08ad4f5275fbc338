"""The judge and its tally: what they count, and that a check tells them instead of writing into them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.judge.tally import LARGE, PLANNED, Tally
from opassay.oracles.op.declaration import Sample
from opassay.oracles.op.paths import Path as TransformPath
from opassay.oracles.op.transforms import FIRST, SECOND, THIRD, Word
from opassay.oracles.verdicts.verdict import Code
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.candidates.assertion import assert_conforms

from .planted_ops import declared, sample, scaled, upward

ORACLES = Path(__file__).resolve().parents[2] / "oracles"


# ------------------------------------------------------------------------------------------------------- the tally


def test_a_tally_books_what_a_sample_showed_to_its_regime_and_counts_it_once_it_held() -> None:
    tally = Tally()
    with tally.sample(Sample((), regime="huge")):
        tally.count(2, 3)
        tally.ratio(0.5, steers=True)
        tally.ratio(0.75)

    def fail() -> None:
        with tally.sample(Sample((), regime="ties")):
            tally.count(not_judged=1)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    measure = tally.measure()
    assert (measure.samples, measure.judged, measure.not_judged, measure.max_ratio) == (1, 2, 4, 0.75)
    assert measure.regimes == (("huge", 2, 3), ("ties", 0, 1))
    assert tally.starved() == ("ties",)
    assert tally.ratio_of_sample == 0.0, "the second sample showed no error"


def test_large_samples_count_by_their_shares_and_planned_ones_by_their_elements() -> None:
    tally = Tally()
    with tally.sample(Sample(())):
        tally.count(1, 2)
    tally.part = LARGE
    for counts in ((1000, 0), (0, 1), (2, 1)):
        with tally.sample(Sample(())):
            tally.count(*counts)
    assert not tally.mostly_judged(PLANNED)
    assert tally.mostly_judged(LARGE)


# ------------------------------------------------------------------------------------------------------- the judge


def test_a_judge_tells_where_the_worst_element_is_and_by_which_word_it_was_found() -> None:
    def wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = scaled(x, w).clone()
        y[2, 1] = upward(upward(upward(y[2, 1])))
        return y

    case = sample(1)
    judge = Judge(declared(wrong), "opassay", contract("float32"))
    with pytest.raises(Violation) as result:
        judge.hold(case)
    violation = result.value
    assert violation.outlier is not None
    assert (violation.outlier.number, violation.outlier.index) == (0, (2, 1))
    assert violation.make_script is not None
    assert violation.sample is case
    assert judge.tally.judged == 0
    with pytest.raises(Violation) as result:
        judge.hold(case, function=wrong)
    assert result.value.outlier is not None
    assert result.value.make_script is None, "no program of the subject alone repeats it"


def test_a_judge_that_judges_again_counts_from_nothing_in_the_same_part() -> None:
    judge = Judge(declared(scaled), "opassay", contract("float32"))
    judge.tally.part = LARGE
    judge.hold(sample(1))
    again = judge.again()
    assert judge.tally.judged == 20
    assert (again.tally.judged, again.tally.part, again.op, again.contract) == (0, LARGE, judge.op, judge.contract)


@pytest.mark.one_fast_in(4)
@pytest.mark.parametrize("word", [*FIRST, *SECOND, *THIRD], ids="∘".join)
def test_a_path_takes_the_same_directions_on_both_sides_whenever_it_is_made(word: Word) -> None:
    case = sample(3, "float64")
    primal = (scaled(*case.args),)
    path, again = (TransformPath.draw(declared(scaled), case, word, primal) for _ in range(2))
    for a, b, array in zip(path.operands, again.operands, path.arrays(), strict=True):
        assert torch.equal(a, b)
        assert np.array_equal(a.numpy(), array)
    computed = path.transformed(path.problem.operation(scaled))(*path.operands)
    assert len(computed) == len(path.names())
    assert path.order == len(word)


# ----------------------------------------------------------------------------------------------- rules of the source


def _assigned(tree: ast.AST) -> Iterator[str]:
    """Assignments to an attribute of a judge, or of its tally, from outside."""
    for node in ast.walk(tree):
        targets: list[Any] = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Attribute) and ast.unparse(target.value) in ("judge", "judge.tally", "tally"):
                yield f"{node.lineno}: {ast.unparse(target)}"  # type: ignore[attr-defined]


def _named_j(tree: ast.AST) -> Iterator[str]:
    """Parameters with a judge's letter, but for the second of two indices."""
    for node in ast.walk(tree):
        names = {each.arg: each.lineno for each in node.args} if isinstance(node, ast.arguments) else {}
        if "j" in names and "i" not in names:
            yield f"{names['j']}: j"


def _draws(tree: ast.AST) -> Iterator[str]:
    """Calls of `draw_directions`: a check that draws by itself may draw in another order than a path does."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("draw_directions"):
            yield f"{node.lineno}: {ast.unparse(node.func)}"


def _find(rule: Any, *but: str) -> list[str]:
    sources = [path for path in sorted(ORACLES.rglob("*.py")) if path.name not in but]
    assert len(sources) > 30
    return [f"{path.name}:{line}" for path in sources for line in rule(ast.parse(path.read_text()))]


def test_nothing_writes_into_a_judge_and_directions_are_drawn_by_paths_alone() -> None:
    assert _find(_assigned) == []
    assert _find(_named_j) == []
    assert _find(_draws, "paths.py") == []


@pytest.mark.parametrize(
    ("rule", "source", "lines"),
    [
        (_assigned, "judge.judged += 1", ["1: judge.judged"]),
        (_assigned, "judge.tally.part = 'large'", ["1: judge.tally.part"]),
        (_assigned, "self.tally = Tally()", []),
        (_named_j, "def check(j): ...", ["1: j"]),
        (_draws, "paths.draw_directions(likes, 1)", ["1: paths.draw_directions"]),
    ],
)
def test_the_rules_find_planted_violations(rule: Any, source: str, lines: list[str]) -> None:
    assert list(rule(ast.parse(source))) == lines


def test_a_card_tells_a_candidate_what_it_tells_an_op() -> None:
    def wrong(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = scaled(x, w).clone()
        y[1, 1] *= 1.25
        y[2, 1] = float("nan")
        return y

    case = sample(1)
    with pytest.raises(Violation) as of_op:
        Judge(declared(wrong), "opassay", contract("float32")).hold(case)
    with pytest.raises(AssertionError, match=r"out\[2, 1\] is NaN where the exact value is ") as of:
        assert_conforms(wrong(*case.args), scaled, *case.args)
    assert of_op.value.title.endswith("out is outside its accept set: NaN where a number is right")
    assert of_op.value.code is Code.SPECIAL
    card = str(of.value).partition("  input ")[0]  # then comes what an assertion alone can say
    lines = [line.strip() for line in card.splitlines()[1:] if not line.lstrip().startswith("allowed")]
    assert lines[1:2] == ["exact      " + repr(float(of_op.value.worst.exact))]  # type: ignore[union-attr]
    assert [line for line in lines if line[:5] != "exact"] == [
        line for line in of_op.value.lines[1:] if line[:5] != "exact"
    ]
