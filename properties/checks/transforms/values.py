"""Values along paths of transforms, against those of the formula: FWD, VJP, JVP, FWAD, EMPTY, ORD2, ORD3, ADJ."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....oracles.bound.rounding import Ball
from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import Sample, Tensor, dtype_name, to_array
from ....oracles.op.transforms import SECOND, THIRD, Word, engines_for, word_name
from ....oracles.programs.particular import script_adjoints
from ....oracles.verdicts.verdict import Code
from ....reference.formats import FORMATS
from ..purity import check_primal_with_tangents

#: The note of a cell where torch's own op refuses samples.
PARTLY_ASKED = "torch's op refuses some samples without a tangent, too; of these nothing was asked"


def check_values(judge: Judge, sample: Sample) -> None:
    """FWD: values, and the dtypes that the op promises."""
    judge.hold(sample, ())


def check_vjp(judge: Judge, sample: Sample) -> None:
    """VJP, through autograd and through torch.func."""
    _words(judge, sample, (("vjp",),))


def check_jvp(judge: Judge, sample: Sample) -> None:
    """JVP, through dual tensors and through torch.func."""
    _words(judge, sample, (("jvp",),))


def check_forward_ad(judge: Judge, sample: Sample) -> None:
    """FWAD: tangents in their accept sets; values, dtypes and missing outputs as without a tangent.

    A sample that torch's op refuses even without a tangent is not judged: no decomposition makes it accept more.
    """
    try:
        judge.subject(*sample.args)
    except (RuntimeError, TypeError, ValueError):
        if PARTLY_ASKED not in judge.tally.notes:
            judge.tally.note(PARTLY_ASKED)
        return
    check_primal_with_tangents(judge, sample)
    check_jvp(judge, sample)


def check_empty(judge: Judge, sample: Sample) -> None:
    """EMPTY: values, first and second gradients; the formula decides what an op returns for no elements."""
    check_values(judge, sample)
    if judge.op.differentiable:
        _words(judge, sample, (("vjp",), ("vjp", "vjp")))


def check_second_order(judge: Judge, sample: Sample) -> None:
    """ORD2: all four compositions, differentiated in primals and in directions."""
    _words(judge, sample, SECOND)


def check_third_order(judge: Judge, sample: Sample) -> None:
    """ORD3: reverse over reverse over reverse, and a mixed word."""
    _words(judge, sample, THIRD)


def _words(judge: Judge, sample: Sample, words: Sequence[Word]) -> None:
    for word in judge.offered(words):
        judge.hold(sample, word, *engines_for(judge.op.promises.without, word))


def check_adjointness(judge: Judge, sample: Sample) -> None:
    """ADJ: |⟨ȳ, Jv⟩ − ⟨Jᵀȳ, v⟩| within the sum of the bounds of Jv and Jᵀȳ."""
    judge.offered((("jvp",),))
    # The directions of this word are a tangent of every input, and then a cotangent of every output.
    both = judge.path(sample, ("jvp", "vjp"), judge.primal(sample))
    count = len(both.problem.wrt)
    tangents, cotangents = both.directions[:count], both.directions[count:]
    sides = []
    for word, directions, against in ((("jvp",), tangents, cotangents), (("vjp",), cotangents, tangents)):
        path = both.along(word, directions)
        computed = judge.run(path, what=word[0])
        readings = judge.read(path.expected())
        # The inner product needs outputs of the shapes of the other side's directions.
        judge.require_alike(computed, readings, "shape", where=word_name(word))
        sides.append(_inner_product(computed, against, readings))
    (left, left_bound), (right, right_bound) = sides
    bound = left_bound + right_bound
    if not math.isfinite(bound):
        judge.tally.count(not_judged=1)
        return
    # Equal sides satisfy any bound. The bound may be zero, where nothing rounds, and then there is no quotient.
    ratio = abs(left - right) / bound if left != right else 0.0
    if not ratio <= 1:
        lines = [
            f"⟨ȳ, Jv⟩ = {left!r}",
            f"⟨Jᵀȳ, v⟩ = {right!r}",
            f"difference {abs(left - right):.4g}, bound {bound:.4g}",
        ]
        violation = judge.violation(
            Code.ADJOINT, f"jvp and vjp are not adjoint, {ratio:.4g}x bound", lines, path="adjoint"
        )
        raise violation.showing(functools.partial(script_adjoints, both, bound))
    judge.tally.count(1)
    judge.tally.ratio(ratio, steers=True)


def _inner_product(
    computed: Sequence[Tensor], direction: Sequence[Tensor], readings: Sequence[Ball]
) -> tuple[float, float]:
    """⟨computed, direction⟩ without rounding, and the bound on its error that rounding in `computed` can cause."""
    terms: list[float] = []
    bound = 0.0
    for tensor, along_, ball in zip(computed, direction, readings, strict=True):
        values, weights = to_array(tensor), to_array(along_)
        with np.errstate(all="ignore"):
            products: Any = (values * weights).ravel()
            width = ball.half_widths(FORMATS[dtype_name(tensor.dtype)])
            # `fsum` adds without rounding, so besides the outputs only the products contribute, each by half an ulp of
            # float64.
            bound += float(np.sum(np.abs(weights) * width) + np.sum(np.abs(products)) * 2.0**-53)
        terms += products.tolist()
    finite = all(math.isfinite(t) for t in terms)
    return (math.fsum(terms), bound * (1 + 2.0**-40)) if finite else (math.nan, math.inf)
