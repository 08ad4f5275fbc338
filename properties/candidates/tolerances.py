"""Tolerances that follow from a bound: the least that miss no allowed evaluation, and what they then do not see.

The difference of two evaluations that a contract allows is at most twice the half-width of an element's accept set, and
from the exact value, rounded, it is that half-width and half an ulp. A pair (atol, rtol) has to cover these points for
all elements. Of all that do, the one with the least allowance on average is an edge of their upper hull.

The tolerances here are told to somebody, and decide nothing of opassay's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import torch

from ...oracles.bound.terms import Terms, TermsError, terms
from ...oracles.op.declaration import dtype_name, to_array
from ...reference.dtypes import HALF_TYPES
from ...reference.formats import EVERY_FORMAT, ulp_array
from .arguments import CallArguments, Tensor
from .conformance import Bound, bounds_of, run_without_draws, tensors_asked
from .host.module_files import GivenError, cast_problem, problem_of
from .results import SpecRun
from .rewrites import Rewritten, rewrites_of
from .specification import Specification, specification
from .spoils import SPOILS
from .tasks import outputs_in

#: Changes of a spec that are tried, at most.
_MOST = 40


class AtolRtol(NamedTuple):
    """|computed - expected| <= atol + rtol |expected|."""

    atol: float
    rtol: float

    def covers(self, computed: Any, expected: Any) -> bool:
        """Whether it accepts all elements; equal ones, and two NaNs, always."""
        with np.errstate(all="ignore"):
            same = (computed == expected) | (np.isnan(computed) & np.isnan(expected))
            return bool(np.all(same | (np.abs(computed - expected) <= self.atol + self.rtol * np.abs(expected))))


@dataclass(frozen=True)
class Tolerance:
    """What suffices for one output at inputs of one kind.

    Attributes:
        dtype, case, output: which. pair: against the spec as torch computes it in this dtype, as most tests compare.
        exact: against the exact value, rounded, as a reference in float64 gives it.
        ulp: the largest error of an element in ulps of its exact value. rms: of the root mean square error, as a share
            of that of the output.
        elements, unbounded: how many elements were looked at, and how many have no bound: no number covers those.
        misses: faults that `pair` accepts and accept sets do not. sees: how many of the faults it refuses.
    """

    dtype: str
    case: str
    output: str
    pair: AtolRtol
    exact: AtolRtol
    ulp: float
    rms: float
    elements: int
    unbounded: int
    misses: tuple[str, ...]
    sees: int


def derive_tolerances(
    address: str, dtypes: Sequence[str], cases: Sequence[Mapping[str, Any]], contract: str | Terms, *, seed: int = 0,
    draws: int = 8,
) -> Iterator[Tolerance]:  # fmt: skip
    """The tolerances of a spec's file, by dtype, case and output.

    Args:
        address: of the spec, with what draws its inputs. dtypes: to which floating inputs and parameters are cast.
        cases: arguments of what draws the inputs, by name, for each case. contract: as for `judge`.
        seed, draws: the first seed of the inputs, and how many follow.

    Raises:
        GivenError, SpecError: the file lacks something, the contract is none, or the spec cannot be read.
    """
    try:
        allowed = terms(contract)
    except TermsError as err:
        raise GivenError(str(err)) from err
    for dtype, case in itertools.product(dtypes, cases):
        problem = cast_problem(problem_of(address, seed, case), dtype)
        spec = specification(problem.spec)
        rows = []
        for number in range(draws):
            arguments = CallArguments.of(problem.draw(seed + number))
            run = run_without_draws(spec, arguments)
            rows.append((arguments, run, bounds_of(spec, run, arguments, allowed)))
        words = " ".join(f"{name}={value}" for name, value in case.items())
        for position in rows[0][2]:
            yield _of_output(spec, rows, position, dtype, words)


def _of_output(
    spec: Specification, rows: Sequence[tuple[CallArguments, SpecRun, Mapping[int, Bound]]], position: int, dtype: str,
    case: str,
) -> Tolerance:  # fmt: skip
    """The tolerance of the output at a position, from all draws."""
    arguments, run, first = rows[0]
    native = tensors_asked(run)[position]
    fmt = EVERY_FORMAT[dtype_name(native.dtype)]
    centre, width = (
        np.concatenate([to_array(getattr(bounds[position], name)).ravel() for *_, bounds in rows])
        for name in ("centre", "half_width")
    )
    known = np.isfinite(centre) & np.isfinite(width)
    c, w = np.abs(centre[known]), width[known]
    ulp = ulp_array(fmt, c)
    pair = fit(np.maximum(c - w, 0.0), 2.0 * w)
    misses, sees = [], 0
    for name, outputs in faults_of(spec, arguments, run):
        y, right, edge = outputs[position], to_array(native), first[position]
        if y.shape != native.shape:
            continue
        values, reach = to_array(y), to_array(edge.half_width)
        with np.errstate(all="ignore"):
            wrong = ~(np.abs(values - to_array(edge.centre)) <= reach) & np.isfinite(reach)
        if wrong.any():
            misses += [name] if (is_missed := pair.covers(values, right)) else []
            sees += not is_missed
    share = max(
        (_root_mean_square(row.half_width) / max(_root_mean_square(row.centre), 5e-324))
        for *_, bounds in rows
        for row in [bounds[position]]
    )
    return Tolerance(
        dtype, case, run.names[position], pair, fit(c, w + 0.5 * ulp), round_up(float(np.max(w / ulp, initial=0.0))),
        round_up(share), centre.size, int(np.count_nonzero(~known)), tuple(dict.fromkeys(misses)), sees,
    )  # fmt: skip


def _root_mean_square(values: Tensor) -> float:
    finite = values[values.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def fit(sizes: Any, errors: Any) -> AtolRtol:
    """The least (atol, rtol) with errors <= atol + rtol sizes, on average over the sizes; rounded up to two digits.

    Args:
        sizes, errors: of elements, no negative ones, in one dimension.
    """
    if not sizes.size:
        return AtolRtol(0.0, 0.0)
    order = np.lexsort((errors, sizes))
    hull: list[tuple[float, float]] = []
    for x, y in zip(sizes[order].tolist(), errors[order].tolist(), strict=True):
        if hull and y <= hull[-1][1]:
            continue  # A tolerance that does not fall with the size covers it by an earlier point.
        while len(hull) > 1 and _turns_left(hull[-2], hull[-1], (x, y)):
            hull.pop()
        if hull and hull[-1][0] == x:
            hull.pop()
        hull.append((x, y))
    mean = float(np.mean(sizes))
    # Through the origin, at a slope that covers all, if that is possible; then along the edge above the mean.
    edges = [((0.0, 0.0), hull[0]), *itertools.pairwise(hull), (hull[-1], (math.inf, hull[-1][1]))]
    (x, y), (right, top) = next(edge for edge in edges if edge[1][0] >= mean and edge[1][0] > edge[0][0])
    slope = (top - y) / (right - x) if math.isfinite(right) else 0.0
    rtol = round_up(slope)
    # Over all points again, because a slope that was rounded up may leave atol less to do.
    return AtolRtol(round_up(max(float(np.max(errors - rtol * sizes)), 0.0)), rtol)


def _turns_left(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    return (b[0] - a[0]) * (c[1] - a[1]) >= (b[1] - a[1]) * (c[0] - a[0])


def round_up(number: float) -> float:
    """Two digits, upwards, so that what a reader types still covers all."""
    return float(Decimal(repr(number)).normalize(Context(prec=2, rounding=ROUND_CEILING)))


def faults_of(spec: Specification, arguments: CallArguments, run: SpecRun) -> Iterator[tuple[str, Sequence[Tensor]]]:
    """Wrong outputs by the name of the fault: of the output, of the precision, and of the spec's text."""
    native = tensors_asked(run)
    for name, spoil in SPOILS.items():
        yield name, [spoil(y) if y.dtype.is_floating_point and y.numel() else y for y in native]
    if not run.outputs:
        return
    for half in (getattr(torch, name) for name in HALF_TYPES):
        if any(y.dtype.is_floating_point and y.dtype.itemsize > half.itemsize for y in native):
            yield f"all of it in {dtype_name(half)}", outputs_in(spec, arguments, half, native)
    if spec.numpy:
        return
    graph, operands = spec.traced_at(arguments, spec.state).graph, (*spec.state.values(), *arguments.tensors)
    for name, changes in itertools.islice(rewrites_of(graph), _MOST):
        try:
            with torch.no_grad():
                outputs = Rewritten(graph, changes).run(*(t.detach() for t in operands), enable_io_processing=False)
        except Exception:
            continue
        yield name, outputs[: len(native)]
