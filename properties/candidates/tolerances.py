"""Tolerances that follow from a bound: the least that miss no allowed evaluation, and what they then do not see.

The difference of two evaluations that a contract allows is at most twice the half-width of an element's accept set, and
from the exact value, rounded, it is that half-width and half an ulp. A pair (atol, rtol) has to cover these points for
all elements; of all that do, the one with the least allowance on average is taken.

The tolerances here are told to somebody, and decide nothing of opassay's own.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
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


_EQUAL = AtolRtol(0.0, 0.0)


class Faults(NamedTuple):
    """Faults that accept sets refuse: names of those that a pair accepts, how many it refuses, and how many raised."""

    misses: tuple[str, ...] = ()
    sees: int = 0
    untried: int = 0


_NO_FAULTS = Faults()


@dataclass(frozen=True)
class Tolerance:
    """What suffices for one output at inputs of one kind.

    Attributes:
        dtype, case, output: which. pair: against the spec as torch computes it in this dtype, as most tests compare.
        exact: against the exact value, rounded, as a reference in float64 gives it.
        ulp: the largest error of an element in ulps of its exact value. rms: of the root mean square error, as a share
            of that of the output.
        elements, unbounded: how many elements were looked at, and how many have no bound: no number covers those.
        faults: what `pair` does with outputs that accept sets refuse.
        constant: whether the right output is the same at all inputs that were drawn, so that no check of it sees much.
    """

    dtype: str
    case: str
    output: str
    pair: AtolRtol = _EQUAL
    exact: AtolRtol = _EQUAL
    ulp: float = 0.0
    rms: float = 0.0
    elements: int = 0
    unbounded: int = 0
    faults: Faults = _NO_FAULTS
    constant: bool = False


def derive_tolerances(
    address: str, dtypes: Sequence[str], cases: Sequence[Mapping[str, Any]], contract: str | Terms, *, seed: int = 0,
    draws: int = 8, own: AtolRtol | None = None,
) -> Iterator[Tolerance]:  # fmt: skip
    """The tolerances of a spec's file, by dtype, case and output.

    Args:
        address: of the spec, with what draws its inputs. dtypes: to which floating inputs and parameters are cast.
        cases: arguments of what draws the inputs, by name, for each case. contract: as for `judge`.
        seed, draws: the first seed of the inputs, and how many follow. own: what is asked in place of the least pair.

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
            yield _of_output(spec, rows, position, own, Tolerance(dtype, words, rows[0][1].names[position]))


def _of_output(
    spec: Specification, rows: Sequence[tuple[CallArguments, SpecRun, Mapping[int, Bound]]], position: int,
    own: AtolRtol | None, row: Tolerance,
) -> Tolerance:  # fmt: skip
    """The tolerance of the output at a position, from all draws."""
    arguments, run, first = rows[0]
    native, every = tensors_asked(run)[position], [bounds[position] for *_, bounds in rows]
    centre, width = (
        np.concatenate([to_array(part).ravel() for part in parts])
        for parts in ([each.centre for each in every], [each.half_width for each in every])
    )
    known = np.isfinite(centre) & np.isfinite(width)
    c, w = np.abs(centre[known]), width[known]
    ulp = ulp_array(EVERY_FORMAT[dtype_name(native.dtype)], c)
    pair, misses, sees, untried = own or fit(np.maximum(c - w, 0.0), 2.0 * w), list[str](), 0, 0
    for name, outputs in faults_of(spec, arguments, run):
        if outputs is None:
            untried += 1
            continue
        y, reach = to_array(outputs[position]), to_array(first[position].half_width)
        with np.errstate(all="ignore"):
            is_fault = y.shape == reach.shape and np.any(~(np.abs(y - to_array(first[position].centre)) <= reach))
        if is_fault and pair.covers(y, to_array(native)):
            misses.append(name)
        elif is_fault:
            sees += 1
    sums = [(_root_mean_square(each.half_width), _root_mean_square(each.centre)) for each in every]
    shares = [width / size if size else math.inf for width, size in sums if width]
    alike = [each for each in every if each.centre.shape == every[0].centre.shape]
    meets = [((each.centre - every[0].centre).abs() <= each.radius + every[0].radius).all() for each in alike[1:]]
    return replace(
        row, pair=pair, exact=fit(c, w + 0.5 * ulp), ulp=round_up(float(np.max(w / ulp, initial=0.0))),
        rms=round_up(max(shares, default=0.0)), elements=centre.size, unbounded=int(np.count_nonzero(~known)),
        faults=Faults(tuple(dict.fromkeys(misses)), sees, untried), constant=bool(meets) and all(map(bool, meets)),
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
        return _EQUAL
    mean = float(np.mean(sizes))

    def rest(slope: float) -> float:
        return max(float(np.max(errors - slope * sizes)), 0.0)

    # What is allowed on average is convex in rtol, because a largest difference is.
    low, high = 0.0, float(np.max(np.divide(errors, sizes, out=np.zeros_like(errors), where=sizes > 0)))
    for _ in range(100):
        left, right = low + (high - low) / 3, high - (high - low) / 3
        falls = rest(left) + left * mean > rest(right) + right * mean
        low, high = (left, high) if falls else (low, right)
    # Of a slope that was rounded up atol has less to do.
    slope = round_up(high) if high * mean > 1e-9 * float(np.max(errors)) else 0.0
    return AtolRtol(round_up(rest(slope)), slope)


def round_up(number: float) -> float:
    """Two digits, upwards, so that what a reader types still covers all."""
    return float(Decimal(repr(number)).normalize(Context(prec=2, rounding=ROUND_CEILING)))


def faults_of(
    spec: Specification, arguments: CallArguments, run: SpecRun
) -> Iterator[tuple[str, Sequence[Tensor] | None]]:
    """Wrong outputs by the name of the fault: of the output, the precision and the spec's text; None if it raised."""
    native = tensors_asked(run)
    for name, spoil in SPOILS.items():
        yield name, [spoil(y) if y.dtype.is_floating_point and y.numel() else y for y in native]
    if not run.outputs:
        return
    for half in (getattr(torch, name) for name in HALF_TYPES):
        if any(y.dtype.is_floating_point and y.dtype.itemsize > half.itemsize for y in native):
            yield f"all of it in {dtype_name(half)}", _in_dtype(spec, arguments, half, native)
    if spec.numpy:
        return
    graph, operands = spec.traced_at(arguments, spec.state).graph, (*spec.state.values(), *arguments.tensors)
    for name, changes in itertools.islice(rewrites_of(graph), _MOST):
        try:
            with torch.no_grad():
                outputs = Rewritten(graph, changes).run(*(t.detach() for t in operands), enable_io_processing=False)
        except Exception:
            outputs = None
        yield name, outputs and outputs[: len(native)]


def _in_dtype(spec: Specification, arguments: CallArguments, dtype: torch.dtype, like: Sequence[Tensor]) -> Any:
    """The outputs of a spec of which all is computed in a dtype, in the dtypes of others."""

    def cast(t: Tensor) -> Tensor:
        return t.to(dtype) if t.dtype.is_floating_point else t

    outputs = spec.run(arguments.changed(cast), {name: cast(value) for name, value in spec.state.items()}).outputs
    return [y.to(right.dtype) for y, right in zip(outputs, like, strict=True)]
