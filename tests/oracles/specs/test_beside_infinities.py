"""Slopes beside a NaN or an infinity: what is right there passes, and another number does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from opassay.oracles.bound import accept
from opassay.oracles.bound.contract import contract
from opassay.oracles.bound.rounding import balls
from opassay.oracles.op.transforms import REFERENCE, along
from opassay.oracles.specs import traced
from opassay.reference.exact import evaluate
from opassay.reference.formats import FORMATS

INF, NAN = torch.inf, torch.nan
Spec = Callable[..., Tensor]


def _places(spec: Spec, tensors: Any, cotangent: Any, computed: Any, which: int) -> tuple[Any, Any]:
    """Which elements of a gradient, or of the result without a cotangent, are accepted, and which are judged."""
    inputs = [torch.tensor(x, dtype=torch.float64) for x in tensors]
    formula: Any = traced(lambda *xs: (spec(*xs),), *inputs)
    operands, order = [x.numpy() for x in inputs], 0
    if cotangent is not None:
        formula, order = along(REFERENCE, ("vjp",), formula, len(inputs), 1), 1
        operands.append(np.asarray(cotangent, dtype=np.float64))
    ball, exact = balls(formula, operands, contract("float64"))[which], evaluate(formula, *operands)[0][which]
    values = np.asarray(computed, dtype=np.float64)
    elements = accept.place_in_accept_sets(values, FORMATS["float64"], ball, exact, finite_inputs=False, order=order)
    return elements.accepted, elements.judged


#: Name: spec, operands, cotangent, which gradient, results that are right, and one that is not.
CASES: dict[str, tuple[Spec, Any, Any, int, list[Any], Any]] = {
    # The weight has no part where x is positive; one that multiplies with that zero has NaN.
    "a side that is not taken": (
        lambda x, w: torch.where(x > 0, x, w * x), ([INF, -2.0], 3.0), [1.0, 1.0], 1, [-2.0, NAN], -3.0,
    ),
    "the smaller of two": (lambda x, w: torch.maximum(x, w * 2.0) * 1.0, ([INF, 1.0], 3.0), [1.0, 1.0], 1, [2.0], 4.0),
    # x^0 does not move with x.
    "a constant power": (torch.pow, ([2.0], [0.0]), [INF], 0, [[0.0], [NAN]], [1.0]),
    "a power of zero": (torch.pow, ([0.0], [2.5]), [INF], 1, [[0.0], [NAN]], [1.0]),
    # The element that is cut off meets no output, and padding of the cotangent makes a NaN of it.
    "an element that is cut off": (
        lambda x, w: F.conv_transpose1d(x, w, padding=1), ([[[INF, 2.0, 3.0]]], [[[1.0, 1.0]]]), [[[1.0, 1.0]]], 1,
        [[[[5.0, INF]]], [[[NAN, INF]]]], [[[4.0, INF]]],
    ),
    # Ties share as they do without a NaN in another row.
    "ties beside a row with NaN": (
        lambda x: x.max(1).values, ([[1.0, 1.0], [NAN, 1.0]],), [1.0, 1.0], 0,
        [[[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5], [NAN, NAN]], [[0.0, 1.0], [1.0, 0.0]]], [[2.0, 1.0], [0.0, 0.0]],
    ),
    "sums of a trilinear form": (
        lambda x, y, w: F.bilinear(x, y, w), ([1.0, 1.0], [INF], [[[3.0], [-2.0]]]), None, 0, [[INF], [NAN]], None,
    ),
    "hardsigmoid of NaN": (F.hardsigmoid, ([NAN, 5.0],), None, 0, [[NAN, 1.0]], [1.0, 1.0]),
    "zero times a logarithm": (torch.special.xlog1py, ([0.0, 0.0], [INF, NAN]), None, 0, [[0.0, NAN]], [NAN, NAN]),
    "polygamma at infinity": (lambda x: torch.polygamma(2, x), ([INF],), None, 0, [[0.0]], [NAN]),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_is_right_passes_and_another_number_does_not(name: str) -> None:
    spec, tensors, cotangent, which, right, wrong = CASES[name]
    for computed in right:
        assert _places(spec, tensors, cotangent, computed, which)[0].all(), computed
    if wrong is not None:
        assert not _places(spec, tensors, cotangent, wrong, which)[0].all()


#: Name: spec, operands, cotangent, which gradient, and which of its elements may have any value.
OPEN: dict[str, tuple[Spec, Any, Any, int, Any]] = {
    "a comparison of one number": (F.hardtanh, (NAN,), 1.0, 0, True),
    "a comparison beside an open one": (
        lambda x: torch.where(torch.exp(x) <= 1.0, 2.0 * x, x), ([NAN, 1.0],), [1.0, 1.0], 0, [True, False],
    ),
    "a median of NaN": (lambda x: x.median(1).values, ([[NAN, 1.0], [3.0, 4.0]],), [1.0, 1.0], 0,
                        [[True, True], [False, False]]),
    "no limit": (lambda x: torch.polygamma(1, x), ([-INF, 1.0],), None, 0, [True, False]),
    "a point beyond all rounding": (
        lambda x, grid: F.grid_sample(x, grid, padding_mode="reflection", align_corners=False),
        ([[[[1.0, 2.0]]]], [[[[1e300, 0.0]]]]), [[[[1.0]]]], 0, [[[[True, True]]]],
    ),
    "a masked row": (lambda x: torch.softmax(x, 1), ([[-INF, -INF], [1.0, 2.0]],), [[1.0, 2.0], [1.0, 2.0]], 0,
                     [[True, True], [False, False]]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_no_text_says_is_not_judged_and_the_rest_is(name: str) -> None:
    spec, tensors, cotangent, which, open_ = OPEN[name]
    accepted, judged = _places(spec, tensors, cotangent, np.full(np.shape(open_), 12345.0), which)
    assert (accepted == np.asarray(open_)).all()
    assert (judged[~np.asarray(open_)]).all()
