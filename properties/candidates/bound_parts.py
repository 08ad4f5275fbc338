"""Why a bound is what it is: the radius of an element by the operations and lines of its spec.

To first order a radius is a sum over the operations that round, each of which adds what its own roundings reach in the
result. So an operation's part is what the radius loses when it does not round. What is left is of rounded constants, of
further algorithms that the contract allows, and of products of errors.
"""

from __future__ import annotations

import functools
import html
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...oracles.bound.rounding.shares import PrimitivePlace, shares_of
from ...oracles.bound.terms import Terms, TermsError, terms
from ...oracles.op.declaration import dtype_name, to_array
from ...oracles.process import interrupt
from ...oracles.specs.lines import place_of_reading
from ...reference.formats import EVERY_FORMAT, ulp_array
from .arguments import CallArguments
from .conformance import DEFAULT, bounds_of, run_without_draws, tensors_asked
from .host.module_files import GivenError, cast_problem, problem_of
from .specification import SpecError, specification

#: Parts below this share of the radius are told together.
_LEAST = 0.005


class BoundPart(NamedTuple):
    """What the roundings of one operation in one line add.

    Attributes:
        share: of the element's radius. median: of its share over all elements whose radius is finite and not zero.
        operation: what is rounded, "sum of mean" for the sum inside torch's mean. line: where, with its text.
    """

    share: float
    median: float
    operation: str
    line: str


@dataclass(frozen=True)
class BoundParts:
    """The radius of an element of an output, by what makes it.

    Attributes:
        spec, output: their names. index: of the element. dtype: of the output.
        centre, radius, half_width: as in `Bound`. native: what the spec gives there, as it is computed on this machine.
        parts: by their shares, the largest first. others: the share of further algorithms, below zero where balls of
            the whole spec are narrower than those of its operations one by one. rest: the share of all else.
        is_widest: whether no element of the output has a wider bound, in ulps.
    """

    spec: str
    output: str
    index: tuple[int, ...]
    dtype: str
    centre: float
    radius: float
    half_width: float
    native: float
    parts: tuple[BoundPart, ...]
    others: float
    rest: float
    is_widest: bool

    @property
    def head(self) -> list[str]:
        """The element, its bound in ulps, and how far torch is off."""
        ulp = float(ulp_array(EVERY_FORMAT[self.dtype], np.abs(np.asarray(self.centre))))
        place = f"{self.output}[{', '.join(map(str, self.index))}]" if self.index else self.output
        error = abs(self.native - self.centre)
        share = f" ({_ratio(error, self.half_width):.1%})"
        return [
            f"{self.spec}: {place} is {self.centre:.9g}" + (", of the widest bound in ulps" if self.is_widest else ""),
            f"radius {self.radius:.3g} ({self.radius / ulp:.3g} ulp), with the last rounding to {self.dtype}"
            f" {self.half_width:.3g} ({self.half_width / ulp:.3g} ulp); computed here it is off by {error:.3g}{share}",
        ]

    @property
    def rows(self) -> list[tuple[str, str, str, str]]:
        """Share, its median over the elements, operation and line, as text."""
        large = [part for part in self.parts if part.share >= _LEAST]
        small = sum(part.share for part in self.parts) - sum(part.share for part in large)
        rows = [(_percent(p.share), _percent(p.median), p.operation, p.line) for p in large]
        if len(large) < len(self.parts):
            rows.append((_percent(small), "", f"{len(self.parts) - len(large)} smaller parts", ""))
        rows += [(_percent(self.others), "", "other algorithms", "")] if abs(self.others) >= _LEAST else []
        return [*rows, (_percent(self.rest), "", "constants, products of errors", "")]

    def __str__(self) -> str:
        rows = [("share", "median", "rounded by", "in"), *self.rows]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        table = ["  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)) for row in rows]
        return "\n".join([*self.head, *(line.rstrip() for line in table)])

    def _repr_html_(self) -> str:
        """The same for a notebook."""
        cells = ["".join(f"<td>{html.escape(text)}</td>" for text in row) for row in self.rows]
        head = "".join(f"<th>{name}</th>" for name in ("share", "median", "rounded by", "in"))
        lines = "".join(f"<p>{html.escape(line)}</p>" for line in self.head)
        return f"{lines}<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


@interrupt.SignalScope()
def explain_bound(
    spec: Any, *args: Any, contract: str | Terms = DEFAULT, output: int = 0, index: tuple[int, ...] | None = None
) -> BoundParts:
    """Which operations of a spec make the bound of an element so wide.

    Args:
        spec, args, contract: as for `bound`.
        output: the position of a floating output. index: of an element of it; by default that of the widest bound in
            ulps. Of an output without dimensions it is ().

    Returns:
        The shares of the radius by operation and line; it prints as a table, and a notebook shows one.

    Raises:
        SpecError: as for `bound`; or no element has a finite radius.
        IndexError: `output` or `index` is none of the spec's.
        ValueError: `contract` is no name of terms.

    Example:
        >>> print(opassay.explain_bound(lambda x: torch.softmax(x, -1), torch.randn(4, 8)))
    """
    read_spec, allowed, arguments = specification(spec), terms(contract), CallArguments.of(args)
    run = run_without_draws(read_spec, arguments)
    bounds = bounds_of(read_spec, run, arguments, allowed)
    if output not in bounds:
        raise IndexError(f"output={output}: the floating outputs are {', '.join(map(str, bounds))}")
    native = tensors_asked(run)[output]
    dtype = read_spec.dtype_of(arguments, read_spec.state) if read_spec.numpy else dtype_name(native.dtype)
    centre, radius, width = (to_array(each) for each in bounds[output])
    where = widest = _widest(centre, width, dtype)
    if index is not None:
        if len(index) != radius.ndim or not all(-n <= i < n for i, n in zip(index, radius.shape, strict=True)):
            raise IndexError(f"index={index}: {run.names[output]} has shape {radius.shape}")
        where = tuple(i % n for i, n in zip(index, radius.shape, strict=True))
    if not math.isfinite(radius[where]):
        raise SpecError(f"{run.names[output]}{list(where)} has no bound: an evaluation may overflow there")

    question = read_spec.question_at(arguments, read_spec.state, allowed.of_text_alone)
    known = np.isfinite(radius) & (radius > 0)
    parts, own = [], 1.0
    place = functools.partial(place_of_reading, read_spec.numpy)
    for part, radii in shares_of(question.function, question.operands, question.contract, place):
        share = _ratio(radii[output][where], radius[where])
        if part is None:
            own = share
        elif share:
            median = float(np.median(radii[output][known] / radius[known]))
            parts.append(BoundPart(share, median, _describe_part(part), part.line))
    parts.sort(key=lambda part: -part.share)
    return BoundParts(
        read_spec.name, run.names[output], where, dtype, float(centre[where]), float(radius[where]),
        float(width[where]), float(to_array(native)[where]), tuple(parts), 1.0 - own if radius[where] else 0.0,
        own - sum(part.share for part in parts), where == widest,
    )  # fmt: skip


def explain_in_file(
    address: str, dtype: str, values: Mapping[str, Any], seed: int, *, contract: str, output: int,
    index: tuple[int, ...] | None,
) -> BoundParts:  # fmt: skip
    """`explain_bound` of the spec of a file, at the inputs that the file draws.

    Args:
        address, seed, values: as for `problem_of`. dtype: to which it is cast; empty for none.
        contract, output, index: as for `explain_bound`.

    Raises:
        GivenError: the file lacks something, or the contract is none. Others as `explain_bound`.
    """
    problem = problem_of(address, seed, values)
    problem = cast_problem(problem, dtype) if dtype else problem
    try:
        return explain_bound(problem.spec, *problem.draw(seed), contract=contract, output=output, index=index)
    except TermsError as err:
        raise GivenError(str(err)) from err


def _describe_part(part: PrimitivePlace) -> str:
    """What rounds, in words: the operation of torch, and what it is made of where that has another name."""
    if part.primitive == "store":
        return f"storing what {part.operation or 'the line'} gives"
    return f"{part.primitive} of {part.operation}" if part.operation not in ("", part.primitive) else part.primitive


def _percent(share: float) -> str:
    return f"{share:.1%}".replace("-0.0%", "0.0%")


def _ratio(part: Any, whole: Any) -> float:
    return float(part / whole) if whole else 0.0


def _widest(centre: Any, width: Any, dtype: str) -> tuple[int, ...]:
    """The element whose accept set is the widest in ulps of its centre, of those with a bound."""
    with np.errstate(all="ignore"):
        ulps = width / ulp_array(EVERY_FORMAT[dtype], np.abs(centre))
    if not np.isfinite(ulps).any():
        raise SpecError("no element has a bound: every evaluation may overflow" if ulps.size else "there is no element")
    return tuple(int(i) for i in np.unravel_index(np.nanargmax(np.where(np.isfinite(ulps), ulps, -1.0)), ulps.shape))
