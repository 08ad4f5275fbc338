"""Assertions for pytest, with a card for every failure, and questions as parameters of a test.

Import the functions where you use them. `pytest_plugins = ("opassay.pytest",)` in a conftest defines the fixture
`opassay_settings`, which has the profile and seed of `--opassay-profile` and `--opassay-seed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from opassay.oracles.op.declaration import Op
from opassay.oracles.process.logs import silent
from opassay.oracles.verdicts.verdict import Cell, Outcome, Verdict
from opassay.oracles.verdicts.witnesses import tell
from opassay.properties.candidates.assertion import assert_conforms as assert_conforms
from opassay.properties.catalog.loading import load_op
from opassay.properties.functions.kernel_request import with_request
from opassay.properties.summary import cards, is_fine, ok, table
from opassay.properties.verification import Settings, judge_kernel, kernel_cells


def questions(
    op: Op,
    properties: Sequence[str] | None = None,
    dtypes: Sequence[str | torch.dtype] | None = None,
    device: str = "",
) -> list[Any]:
    """One parameter per cell of an op, such as "VJP-float32", for `pytest.mark.parametrize("question", ...)`.

    Args:
        op: a declaration, as `opassay.custom_kernel` makes it. properties, dtypes: codes and dtypes; there is a cell
            for each pair; by default those of the declaration, or the usual ones of kernels, in float32. device: where
            the op is called; by default as declared, or "cpu".

    Raises:
        ValueError: there is no such property, dtype or device.
    """
    cells = kernel_cells(op, properties, dtypes, device)
    return [pytest.param(cell, id=f"{cell.property}-{cell.dtype}") for cell in cells]


def assert_verified(
    judged: Op | str | Verdict | Sequence[Verdict],
    question: Cell | None = None,
    *,
    properties: Sequence[str] | None = None,
    dtypes: Sequence[str | torch.dtype] | None = None,
    settings: Settings | str | None = None,
    compiled: str = "",
) -> list[Verdict]:
    """Fail the test unless all verdicts hold; the message has a card for each verdict that does not.

    If no verdict is against the op, and none is "verified", the test is skipped with the reasons: no question applies,
    or of what was asked too little could be judged ("weak").

    Args:
        judged: verdicts; or a declaration, which is judged here; or its name as for `opassay run`: "layer_norm", or
            "module:name" of an op or a function of your own.
        question: the cell to judge of a declaration; by default the cells of `properties` and `dtypes`.
        settings: profile, seed and examples, or the name of a profile; by default as declared, or "brief".
        compiled: the architecture that a declaration's Triton kernels are compiled for, as for `verify_kernel`.

    Returns:
        The verdicts.

    Raises:
        AssertionError: a verdict does not hold, or there is none.
        ValueError: there is no op, property, dtype or architecture of that name.
    """
    __tracebackhide__ = True  # So pytest shows the line of the test, and not lines of this function.
    if isinstance(judged, Op | str):
        op: Op = load_op(judged) if isinstance(judged, str) else judged
        op = with_request(op, {"compiled": compiled}) if compiled else op
        cells = kernel_cells(op, properties, dtypes)
        if question is not None:
            cells = [replace(question, subject=op.production.own_subject) if compiled else question]
        # Pytest would show this log below a card.
        with silent("torch.__trace"):
            verdicts = judge_kernel(op, cells, settings)
    else:
        verdicts = [judged] if isinstance(judged, Verdict) else list(judged)
    tell(verdicts)
    if verdicts and not ok(verdicts) and all(map(is_fine, verdicts)):
        pytest.skip("; ".join(dict.fromkeys(map(_why_not_verified, verdicts))))
    if not ok(verdicts):
        raise AssertionError(f"{_headline(verdicts)}\n\n{cards(verdicts) or table(verdicts)}")
    return verdicts


def _why_not_verified(verdict: Verdict) -> str:
    if verdict.outcome is not Outcome.WEAK:
        return verdict.reason
    code = verdict.cell.property
    return (
        f'{code} is weak: {verdict.reason}; settings="commit" asks more samples; name other regimes or sizes in the'
        f" declaration, or leave {code} out of the questions ({verdict.code}: opassay explain {verdict.code})"
    )


def _headline(verdicts: Sequence[Verdict]) -> str:
    failed = [v.cell for v in verdicts if not is_fine(v)]
    if not failed:
        return f"none of {len(verdicts)} questions is verified"
    named = ", ".join(f"{cell.property}-{cell.dtype}" for cell in failed)
    return f"{len(failed)} of {len(verdicts)} questions failed: {named}"


@pytest.fixture
def opassay_settings(request: pytest.FixtureRequest) -> Settings:
    """The profile, seed and examples of the command line's options; by default profile "brief" with seed 0."""
    options = request.config.option
    is_on = getattr(options, "opassay", False)
    profile = getattr(options, "opassay_profile", "brief") if is_on else "brief"
    return Settings(
        profile, getattr(options, "opassay_seed", None) or 0, getattr(options, "opassay_max_examples", None)
    )
