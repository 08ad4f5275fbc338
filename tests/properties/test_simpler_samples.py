"""How a failing sample is made simpler: towards the first of what could be chosen, never towards more elements."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st

from opassay import Code
from opassay.oracles.op.declaration import Draft, Sample
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.engine import draws
from opassay.properties.engine.limits import limits_of
from opassay.properties.picking.drafting import Drafts

#: Rows of these sizes with so many others: the first of each is the simplest to Hypothesis.
SIZES, KINDS = (4096, 8, 65), ("plain", "strange")


def _draft(size: int, kind: str) -> Draft:
    return Draft(lambda rng: (), kind, {"row": size})


DRAFTS = st.builds(_draft, st.sampled_from(SIZES), st.sampled_from(KINDS))
LIMITS = limits_of(20, steered=False, shrunk=True)


def _ask(start: tuple[int, str], most: int, seconds: float) -> list[tuple[int, str]]:
    """The size and the kind of each draft that is asked when one that fails is made simpler; all of them fail."""
    trials = []

    def ask(draft: Draft, data: int) -> Sample:
        trials.append((draft.extents["row"], draft.regime))
        raise Violation(Code.VALUE, "wrong")

    first = next(d for d in Drafts(DRAFTS, 1).after(0) if (d.draft.extents["row"], d.draft.regime) == start)
    result = draws.FailingDraft(first, 0)
    result.__cause__ = Violation(Code.VALUE, "wrong")
    with pytest.raises(Violation):
        draws.simplify(DRAFTS, ask, result, LIMITS, most, seconds)
    return trials


def test_a_failing_sample_becomes_one_of_no_more_elements_and_the_simplest_choices() -> None:
    trials = _ask((65, "strange"), 100, 60.0)
    assert trials[-1] == (8, "plain")
    assert all(size <= 65 for size, _ in trials)


@pytest.mark.parametrize(("most", "seconds"), [(0, 60.0), (100, -1.0)])
def test_a_failing_sample_stays_what_it_is_if_nothing_may_be_tried(most: int, seconds: float) -> None:
    assert _ask((65, "strange"), most, seconds) == [(65, "strange")]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_more_are_tried_than_may_be(most: int) -> None:
    # The last one is the simplest, asked once more.
    assert len(_ask((65, "strange"), most, 60.0)) == most + 1
