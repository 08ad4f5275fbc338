"""One judgement: what a cell's samples showed, and the first promise they broke."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from mpmath import libmp

from ..reference.exact import Exact, evaluate
from ..reference.formats import FORMATS
from . import accept, state
from .contract import Contract, contract
from .op import Op, Sample, Subject, Tensor, dtype_name, to_array
from .rounding import Ball, balls
from .state import interrupt
from .transforms import (
    ENGINES,
    Problem,
    Word,
    along,
    batch,
    derivative_order,
    draw_directions,
    output_names,
    signature,
    word_name,
)
from .verdict import Code, Measure, Worst

#: Above this many mpmath operations (elements x 4^order) the ball alone decides; it is a rigorous oracle by itself.
EXACT_BUDGET = 3000
#: In short profiles, one sample in so many is read exactly as well: that checks the balls, which decide alone on finite
#: operands. What NaN and infinities must give, the exact reading alone knows everywhere.
EXACT_SHARE = 5
#: The same for a failure, which is told in exact values where that takes seconds at most. Large samples are never read
#: exactly, whatever their size.
FAILURE_BUDGET = 14_000
#: Parts of a cell's samples: those that were planned, large ones, and more of regimes of which nothing could be judged.
PLANNED, LARGE, MORE = "planned", "large", "more"
_KEPT_WIDTHS = 100_000
#: Of an exception's text: characters that are looked at, lines that are kept, and characters of each.
MAX_TEXT, MAX_LINES, MAX_LINE = 20_000, 6, 1_000
#: Of one output, so many elements count in the medians: a large sample must not outweigh all others in them.
_KEPT_OF_ONE = 300
#: What a record has room for: names of regimes, and characters of one.
_REGIMES, _REGIME_NAME = 64, 512


@dataclass(frozen=True)
class Fault:
    """One element outside its accept set, in terms that a program can repeat."""

    word: Word
    output: int
    index: tuple[int, ...]
    exact: str  # decimal
    bound: float  # absolute


class Violation(AssertionError):
    """A broken promise of the subject; `fault` tells a wrong element, `sample` the input that showed it."""

    fault: Fault | None = None
    worst: Worst | None = None
    sample: Sample | None = None

    def __init__(self, code: Code, title: str, lines: Sequence[str] = (), path: str = "") -> None:
        super().__init__(title)
        self.code, self.title, self.path = code, title, path
        self.message = "\n".join([title, *(f"  {line}" for line in lines)])


class Unsupported(Exception):
    """The question does not apply to this op, dtype or subject; the text says why."""

    def __init__(self, code: Code, reason: str) -> None:
        super().__init__(reason)
        self.code = code


def regimes_of(name: str) -> tuple[str, ...]:
    """The regimes of a sample: one, or those of its tensors, joined by ", "."""
    return tuple(dict.fromkeys(part for part in name.split(", ") if part)) or ("unnamed",)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function as inductor compiles it, for the shapes of its next call; a graph break is an error."""
    torch._dynamo.reset()  # nothing compiled before, for other closures of the same code, may answer
    compile_: Callable[..., Callable[..., Any]] = torch.compile
    return compile_(function, fullgraph=True, dynamic=False)


def raised(op: str, err: BaseException, what: str) -> Violation:
    """The violation that a subject's exception on valid input is, also one that asks to end the process."""
    return Violation(Code.RAISED, f"{op} {what}: raised {error_name(err)} on valid input", said(err), what)


def error_name(err: BaseException) -> str:
    return state.shortened(type(err).__name__)


def said(err: BaseException) -> list[str]:
    """The first lines of an exception's text, of bounded length: it may be anything, and travels into every report."""
    try:
        text = str(err)
    except Exception as failed:
        return [f"its text raises {error_name(failed)}"]
    lines = text[:MAX_TEXT].strip().splitlines()
    return [line if len(line) <= MAX_LINE else f"{line[: MAX_LINE - 3]}..." for line in lines[:MAX_LINES]]


class Judgement:
    """Collects measures over the samples of one cell.

    Attributes:
        op, subject_name, subject: what is judged. terms: the contract it is judged by.
    """

    def __init__(self, op: Op, subject_name: str, terms: Contract, device: str = "cpu", light: bool = True) -> None:
        self.op, self.subject_name, self.terms, self.device, self.light = op, subject_name, terms, device, light
        self.subject: Subject = op.subject(subject_name)
        self.compiled = op.is_compiled(subject_name)
        self.samples = self.judged = self.not_judged = 0
        self.max_ulp = self.max_ratio = self.ratio_of_sample = 0.0
        self.worst: Worst | None = None
        self.timing: dict[str, float] = {}
        self._widths: list[Any] = []
        self._ulps: list[Any] = []
        self._signed: dict[str, list[float]] = {}
        self._kept = 0
        self.part = PLANNED  # which samples of the cell are being judged
        self.notes: list[str] = []  # what the verdict's reason has to say besides
        self._tally: dict[tuple[str, str], list[int]] = {}  # elements judged and not, by regime and part
        self._shares: list[float] = []  # of each large sample's elements that were judged

    @contextmanager
    def booked(self, sample: Sample) -> Iterator[None]:
        """Book what is judged of a sample, and what is not, to its regimes."""
        judged, not_judged = self.judged, self.not_judged
        try:
            yield
        finally:
            judged, not_judged = self.judged - judged, self.not_judged - not_judged
            for name in regimes_of(sample.regime):
                count = self._tally.setdefault((name, self.part), [0, 0])
                count[0] += judged
                count[1] += not_judged
            if self.part == LARGE and judged + not_judged:
                self._shares.append(judged / (judged + not_judged))

    def starved(self) -> tuple[str, ...]:
        """The regimes that had elements, none of which could be judged."""
        return tuple(name for name, judged, not_judged in self._regimes() if not_judged and not judged)

    def mostly_judged(self, part: str) -> bool:
        """Whether at least half of the elements of the planned samples, or of the large ones, were judged.

        A large sample has as many elements as a hundred others, and one as many as ten other large ones: so each of
        the two parts is asked for by itself, and of large samples the mean of their shares.
        """
        if part == LARGE:
            return not self._shares or float(np.mean(self._shares)) >= 0.5
        counts = [count for (_, of), count in self._tally.items() if of == part]
        return sum(judged for judged, _ in counts) >= sum(not_judged for _, not_judged in counts)

    def _regimes(self) -> tuple[tuple[str, int, int], ...]:
        """Elements judged and not judged by regime; of too many regimes, those of which least was judged."""
        sums: dict[str, list[int]] = {}
        for (name, _), (judged, not_judged) in self._tally.items():
            total = sums.setdefault(name[:_REGIME_NAME], [0, 0])
            total[0] += judged
            total[1] += not_judged
        least = sorted(sums, key=lambda name: sums[name][0])[:_REGIMES]
        return tuple((name, sums[name][0], sums[name][1]) for name in sorted(least))

    @contextmanager
    def clock(self, part: str) -> Iterator[None]:
        """Book the time of a block to "generate", "reference", "op" or "compare"."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.timing[part] = self.timing.get(part, 0.0) + time.perf_counter() - start

    def terms_of(self, order: int) -> Contract:
        """The contract of a path with `order` derivative steps, on top of those that the op itself is."""
        return contract(self.terms.stores.name, self.device, order + self.op.promises.order)

    def offered(self, words: Sequence[Word]) -> list[Word]:
        """The words all of whose steps the op offers; Unsupported where there is none."""
        without = self.op.promises.without
        lacking = [without & {step if isinstance(step, str) else "vmap" for step in w} for w in words]
        if words and all(lacking):
            names = sorted(frozenset().union(*lacking))
            raise Unsupported(Code.NOT_APPLICABLE, f"{self.op.name} offers no {' and no '.join(names)}")
        return [w for w, lack in zip(words, lacking, strict=True) if not lack]

    def call(self, function: Callable[..., Any], *args: Any, what: str = "") -> Any:
        """Run the subject; an exception on valid input is a violation."""
        with self.clock("op"):
            try:
                return state.undisturbed(function, args)
            except (Violation, Unsupported):
                raise
            except BaseException as err:
                interrupt.reraise()
                raise raised(self.op.name, err, what) from err

    def measure(self, discarded: int = 0) -> Measure:
        """The measures so far."""
        widths, ulps = _finite(self._widths), _finite(self._ulps)
        median, widest = (float(np.median(widths)), float(widths.max())) if widths.size else (math.nan, math.nan)
        typical, p99 = np.quantile(ulps, (0.5, 0.99)).tolist() if ulps.size else (math.nan, math.nan)
        return Measure(
            self.samples, discarded, self.judged, self.not_judged,
            self.max_ulp, self.max_ratio, median, widest, self.worst, typical, p99, self._regimes(),
        )  # fmt: skip

    def biases(self) -> dict[str, float]:
        """Outputs whose mean signed error/bound over the samples is larger than chance allows, and that mean.

        Each sample gives one number in [−1, 1]; by Hoeffding's inequality (JASA 58, 1963) the mean of N independent
        ones with expectation zero exceeds sqrt(2 ln(2/p) / N) with probability at most p = 1e-12.
        """
        found = {name: (float(np.mean(values)), len(values)) for name, values in self._signed.items()}
        return {name: mean for name, (mean, n) in found.items() if abs(mean) > math.sqrt(2 * math.log(2e12) / n)}

    # ------------------------------------------------------------------------------------------------ values

    def path(
        self, sample: Sample, word: Word, engine: str = "func", function: Subject | None = None, exactly: bool = True
    ) -> tuple[Tensor, ...]:
        """Judge every output of T(subject) at a sample, for the word T; returns the outputs."""
        problem = Problem(self.op, sample.args)
        if derivative_order(word) and not problem.wrt:
            raise Unsupported(Code.NOT_DIFFERENTIABLE, f"{self.op.name} declares no differentiable argument")
        f = problem.operation(self.subject if function is None else function)
        name = f"{word_name(word)} ({engine})" if word else "forward"
        with torch.no_grad():
            primal = self.call(f, *problem.passive, *problem.inputs, what=name)
        if self.compiled and engine == "eager":
            f = compiled(f)
        passive, own = len(problem.fixed), len(problem.wrt)
        taken = signature(word, problem.inputs, primal, problem.passive)
        given, added = taken[: passive + own], taken[passive + own :]
        operands = [*batch(problem, sample, given), *draw_directions(added, sample.seed, self.device)]
        transformed = along(ENGINES[engine], word, f, own, len(primal), passive)
        if self.compiled and engine == "func":
            transformed = compiled(transformed)
        computed = primal if not word and not self.compiled else self.call(transformed, *operands, what=name)
        names = output_names(self.op, word, problem.wrt, len(primal))
        formula = problem.formula(word, len(primal))
        arrays = [to_array(t) for t in operands]
        if self.light and self.samples % EXACT_SHARE:
            exactly = exactly and not all(np.isfinite(array).all() for array in arrays)
        try:
            self.against(formula, arrays, computed, names, name, derivative_order(word), exactly)
        except Violation as violation:
            violation.sample = sample
            if violation.fault is not None and function is None:
                violation.fault = replace(violation.fault, word=word)
            raise
        return tuple(computed)

    def against(
        self, formula: Callable[..., Any], operands: Sequence[Any], computed: Sequence[Tensor], names: Sequence[str],
        path: str, order: int, exactly: bool = True,
    ) -> None:  # fmt: skip
        """Judge computed outputs against a formula at float64 operands."""
        cost = sum(np.size(o) for o in operands) * 4**order
        with self.clock("reference"):
            rounded = balls(formula, operands, self.terms_of(order))
            exactly = exactly and self.part != LARGE
            exact = evaluate(formula, *operands)[0] if exactly and cost <= EXACT_BUDGET else None
        self.compare(formula, operands, rounded, exact, computed, names, path, order)

    def compare(
        self, formula: Callable[..., Any], operands: Sequence[Any], rounded: Sequence[Ball],
        exact: Sequence[Exact] | None, computed: Sequence[Tensor], names: Sequence[str], path: str, order: int,
    ) -> None:  # fmt: skip
        """Judge computed outputs against readings of a formula at float64 operands."""
        finite = all(np.isfinite(o).all() for o in operands)
        self._require_count(computed, rounded, path)
        for i, (tensor, ball, name) in enumerate(zip(computed, rounded, names, strict=True)):
            with self.clock("compare"):
                read = None if exact is None else exact[i]
                self.output(tensor, ball, read, name, path, finite, order, (formula, operands, i))

    def require_outputs(self, computed: Sequence[Tensor], read: Sequence[Ball], path: str) -> None:
        """Violation unless the outputs of a path are as many, and shaped, as the formula's."""
        self._require_count(computed, read, path)
        for i, (tensor, ball) in enumerate(zip(computed, read, strict=True)):
            if tuple(tensor.shape) != ball.shape:
                raise self._misshapen(tensor, ball, f"out[{i}]", path)

    def _require_count(self, computed: Sequence[Tensor], read: Sequence[Ball], path: str) -> None:
        if len(read) != len(computed):
            title = f"{self.op.name} {path}: got {len(computed)} outputs, need {len(read)}"
            raise Violation(Code.ATTRIBUTE, title, path=path)

    def _misshapen(self, tensor: Tensor, ball: Ball, name: str, path: str) -> Violation:
        lines = [f"got shape={tuple(tensor.shape)}, need {ball.shape}"]
        return Violation(Code.ATTRIBUTE, f"{self.op.name} {path}: shape of {name}", lines, path)

    def output(
        self,
        tensor: Tensor,
        ball: Ball,
        exact: Exact | None,
        name: str,
        path: str,
        finite: bool,
        order: int = 0,
        again: Any = None,
    ) -> None:
        """Judge one output; `again` = (formula, operands, index) lets a failure be told in exact values."""
        if tuple(tensor.shape) != ball.shape:
            raise self._misshapen(tensor, ball, name, path)
        computed = to_array(tensor)
        fmt = FORMATS[dtype_name(tensor.dtype)]
        found = accept.judge(computed, fmt, ball, exact, finite, order + self.op.promises.order)
        if not np.all(found.accepted):
            if exact is None and again is not None and self._tells(again[1], order):
                formula, operands, i = again
                exact = evaluate(formula, *operands)[0][i]
                found = accept.judge(computed, fmt, ball, exact, finite, order + self.op.promises.order)
            if not np.all(found.accepted):
                raise self._violation(tensor, found, exact, name, path, 0 if again is None else again[2])
        self._collect(tensor, found, exact, name, path)

    def _tells(self, operands: Sequence[Any], order: int) -> bool:
        """Whether a failure is told in exact values; the ball proves it without them."""
        return self.part != LARGE and sum(np.size(o) for o in operands) * 4**order <= FAILURE_BUDGET

    def _collect(self, tensor: Tensor, found: accept.Elements, exact: Exact | None, name: str, path: str) -> None:
        if not found.judged.size:
            self.judged += 1  # no elements: the shape is what was judged
            return
        judged = int(np.count_nonzero(found.judged))
        self.judged += judged
        self.not_judged += found.judged.size - judged
        if self._kept < _KEPT_WIDTHS:
            widths, ulps = np.ravel(found.width), np.ravel(found.ulp)[np.ravel(found.judged & ~found.special)]
            self._widths += [widths[:: 1 + widths.size // _KEPT_OF_ONE], np.fmax.reduce(widths, keepdims=True)]
            self._ulps.append(ulps[:: 1 + ulps.size // _KEPT_OF_ONE])
            self._kept += min(widths.size, _KEPT_OF_ONE)
        if not judged:
            return
        self._signed.setdefault(f"{path}: {name}", []).append(float(np.mean(found.signed)))
        at = np.unravel_index(int(np.argmax(found.ratio)), found.ratio.shape)
        ratio = float(found.ratio[at])
        self.ratio_of_sample = max(self.ratio_of_sample, ratio)
        self.max_ulp = max(self.max_ulp, float(found.ulp.max()))
        if ratio > self.max_ratio or self.worst is None:
            self.max_ratio = max(ratio, self.max_ratio)
            self.worst = _worst(tensor, found, exact, name, path, at)

    def _violation(
        self, tensor: Tensor, found: accept.Elements, exact: Exact | None, name: str, path: str, output: int
    ) -> Violation:
        outside = ~found.accepted
        at = np.unravel_index(int(np.argmax(np.where(outside, found.ratio, -1.0))), outside.shape)
        worst = _worst(tensor, found, exact, name, path, at)
        code = Code.SPECIAL if found.special[at] or not math.isfinite(worst.ratio) else Code.VALUE
        lines = [
            f"worst     {worst.where} = {worst.computed}, exact {worst.exact}",
            f"error     {worst.ulp:.4g} ulp, {worst.ratio:.4g} times its bound",
            f"outside   {np.count_nonzero(outside)} of {outside.size} elements "
            f"({outside.size - np.count_nonzero(found.judged)} not judged)",
            f"format    {dtype_name(tensor.dtype)}, accumulating in {self.terms.accumulate.name}",
        ]
        title = f"{self.op.name} {path}: {name} outside its accept set, {worst.ratio:.4g}x bound"
        violation = Violation(code, title, lines, path)
        index = tuple(int(i) for i in at)
        violation.fault = Fault(("?",), output, index, worst.exact, float(found.bound[at]))
        violation.worst = worst
        return violation


def _finite(parts: Sequence[Any]) -> Any:
    values = np.concatenate(parts) if parts else np.array([])
    return values[np.isfinite(values)]


def _worst(tensor: Tensor, found: accept.Elements, exact: Exact | None, name: str, path: str, at: Any) -> Worst:
    computed = float(to_array(tensor)[at])
    decimal = repr(float(found.value[at])) if exact is None else libmp.to_str(exact.values[at], 25)
    where = f"{name}[{', '.join(str(int(i)) for i in at)}]" if at else name
    return Worst(where, path, computed.hex(), decimal, float(found.ulp[at]), float(found.ratio[at]))
