"""FWD, VJP, JVP, ORD2, ORD3, ADJ: values of every path of transforms against the same path of the formula."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....reference.formats import FORMATS, ulp_array
from ...judgement import Judgement, Violation
from ...op import OWN, Sample, Tensor, dtype_name, to_array
from ...rounding import Ball, balls
from ...transforms import (
    ENGINES,
    SECOND,
    THIRD,
    Problem,
    Word,
    along,
    draw_directions,
    engines_of,
    signature,
    word_name,
)
from ...verdict import Code


def forward(j: Judgement, sample: Sample) -> None:
    """FWD: values, and the dtypes that the op promises."""
    outputs = j.path(sample, ())
    if j.subject_name == OWN:
        promised = j.op.promises.dtypes(sample.args)
        got = tuple(t.dtype for t in outputs)
        if got != promised:
            names = [", ".join(dtype_name(d) for d in dtypes) for dtypes in (got, promised)]
            title = f"{j.op.name} forward: got dtypes {names[0]}, need {names[1]}"
            raise Violation(Code.ATTRIBUTE, title)


def reverse(j: Judgement, sample: Sample) -> None:
    """VJP, through autograd and through torch.func."""
    _words(j, sample, (("vjp",),))


def tangent(j: Judgement, sample: Sample) -> None:
    """JVP, through dual tensors and through torch.func."""
    _words(j, sample, (("jvp",),))


def forward_and_reverse(j: Judgement, sample: Sample) -> None:
    """EMPTY: values and first-order gradients; what the formula gives for no elements is the documented result."""
    forward(j, sample)
    reverse(j, sample)


def second(j: Judgement, sample: Sample) -> None:
    """ORD2: all four compositions, differentiated in primals and in directions."""
    _words(j, sample, SECOND)


def third(j: Judgement, sample: Sample) -> None:
    """ORD3: reverse over reverse over reverse, and a mixed word."""
    _words(j, sample, THIRD)


def _words(j: Judgement, sample: Sample, words: Sequence[Word]) -> None:
    for word in j.offered(words):
        for engine in engines_of(word):
            results = j.path(sample, word, engine)
            _dtypes(j, sample, word, engine, results)


def _dtypes(j: Judgement, sample: Sample, word: Word, engine: str, results: Sequence[Tensor]) -> None:
    """A cotangent has the dtype of its primal; torch enforces it for most paths, and this for all."""
    if word[-1] != "vjp":
        return
    problem = Problem(j.op, sample.args)
    for like, tensor in zip(problem.inputs, results, strict=False):
        if tensor.dtype != like.dtype:
            got, need = dtype_name(tensor.dtype), dtype_name(like.dtype)
            raise Violation(Code.ATTRIBUTE, f"{j.op.name} {word} ({engine}): got cotangent dtype={got}, need {need}")


def adjoint(j: Judgement, sample: Sample) -> None:
    """ADJ: |⟨ȳ, Jv⟩ − ⟨Jᵀȳ, v⟩| within the sum of the bounds of Jv and Jᵀȳ."""
    j.offered((("jvp",),))
    problem = Problem(j.op, sample.args)
    f = problem.subject(j.subject)
    primal = j.call(f, *problem.inputs, what="forward")
    k, m = len(problem.wrt), len(primal)
    likes = signature(("jvp",), problem.inputs, primal)[k:] + signature(("vjp",), problem.inputs, primal)[k:]
    directions = draw_directions(likes, sample.seed, j.device)
    tangents, cotangents = directions[:k], directions[k:]
    sides = []
    for word, given, against in ((("jvp",), tangents, cotangents), (("vjp",), cotangents, tangents)):
        computed = j.call(along(ENGINES["func"], word, f, k, m), *problem.inputs, *given, what=word[0])
        with j.clock("reference"):
            read = balls(problem.formula(word, m), problem.arrays(given), j.terms_of(1))
        j.require_outputs(computed, read, word_name(word))  # the other side takes directions of these shapes
        sides.append(_product(computed, against, read))
    (left, left_bound), (right, right_bound) = sides
    bound = left_bound + right_bound
    if not math.isfinite(bound):
        j.not_judged += 1
        return
    ratio = abs(left - right) / bound if left != right else 0.0
    if not ratio <= 1:
        lines = [
            f"⟨ȳ, Jv⟩ = {left!r}",
            f"⟨Jᵀȳ, v⟩ = {right!r}",
            f"difference {abs(left - right):.4g}, bound {bound:.4g}",
        ]
        raise Violation(Code.ADJOINT, f"{j.op.name}: jvp and vjp are not adjoint, {ratio:.4g}x bound", lines, "adjoint")
    j.judged += 1
    j.max_ratio = max(j.max_ratio, ratio)
    j.ratio_of_sample = ratio


def _product(computed: Sequence[Tensor], direction: Sequence[Tensor], read: Sequence[Ball]) -> tuple[float, float]:
    """⟨computed, direction⟩ without rounding, and the bound on what rounding in `computed` can do to it."""
    terms: list[float] = []
    bound = 0.0
    for tensor, along_, ball in zip(computed, direction, read, strict=True):
        values, weights = to_array(tensor), to_array(along_)
        fmt = FORMATS[dtype_name(tensor.dtype)]
        with np.errstate(all="ignore"):
            products: Any = (values * weights).ravel()
            radius = np.asarray(ball.radii(), dtype=np.float64)
            width = radius + 0.5 * ulp_array(fmt, np.abs(np.asarray(ball.centre, dtype=np.float64)) + radius)
            bound += float(np.sum(np.abs(weights) * width) + np.sum(np.abs(products)) * 2.0**-53)
        terms += products.tolist()
    finite = all(math.isfinite(t) for t in terms)
    return (math.fsum(terms), bound * (1 + 2.0**-40)) if finite else (math.nan, math.inf)
