"""What the first card of wrong values says beside them: what the candidate computes instead, or who allows that.

What this is for: "eps=1e-06 in place of 1e-05" tells an author more than an index and two numbers. It is said of a
candidate alone whose outputs lie in the accept sets of the spec with that change, in every element and at all inputs of
which evidence was kept, and where torch's evaluation of the spec itself does not. It never decides a verdict.

What is hard here is time, because a graph has a hundred rewrites and a reading of one takes as long as a question. So
torch runs all of them first, and only the nearest to what the candidate gives are read.
"""

from __future__ import annotations

import contextlib
import functools
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from ...oracles.bound.accept import ReadingError
from ...oracles.bound.terms import Terms
from ...oracles.judge.holding import OperandFacts
from ...oracles.judge.location import ALL_ZERO
from ...oracles.op.declaration import is_float, to_array
from ...oracles.specs import Traced, UntraceableError, rewritten
from ...oracles.specs.lines import line_of
from ...oracles.verdicts.violation import Outlier
from .arguments import Tensor
from .comparing import hold_all
from .evidence import OF_DATA, Evidence
from .precision import accepting_contract
from .rewrites import Changes, Rewritten, factors_of, rewrites_of, roundings_of
from .specification import SpecError, Specification

#: Elements of the operands up to which reasons are tried, seconds of the processor after which no other one is, and how
#: many are read.
_ELEMENTS, _SECONDS, _READ = 2**18, 0.5, 3
#: Questions at which what is exact in every order must be exact.
_SHARP = ("DATA:bits", "DATA:integers", "SPECIAL:zeros")


def _cut(bits: int, half: int = 0) -> Callable[[Tensor], Tensor]:
    """float32 without its last bits, after half of the last bit that stays was added, or nothing."""
    return lambda t: ((t.contiguous().view(torch.int32) + half) & -(1 << bits)).view(torch.float32)


def _flush(t: Tensor) -> Tensor:
    return torch.where(t.abs() < torch.finfo(t.dtype).tiny, torch.zeros_like(t), t)


#: What happens to factors of products, of float32, and the terms that allow it. CUDA's cvt.rna rounds half up; a tensor
#: core itself cuts off.
_ROUNDINGS: tuple[tuple[str, Callable[[Tensor], Tensor], str], ...] = (
    ("factors of products rounded to TF32 or float16", _cut(13, 1 << 12), "tensor_core"),
    ("factors of products rounded to TF32 or float16", lambda t: t.half().float(), "tensor_core"),
    ("factors of products cut off to TF32", _cut(13), "bfloat16_factors"),
    ("factors of products rounded to bfloat16", lambda t: t.bfloat16().float(), "bfloat16_factors"),
    ("factors of products cut off to bfloat16", _cut(16), "bfloat16"),
)


@dataclass(frozen=True)
class Reason:
    """What a candidate may compute in place of a spec.

    Attributes:
        text: a sentence. changes: of the spec's graph. round_operand: what becomes of the operands at `positions`.
        allowed: the name of the strictest terms of the ladder that allow it; empty where it is another formula.
        rounds: whether it is the spec's formula with one more rounding.
    """

    text: str
    changes: Changes = field(default_factory=dict)
    round_operand: Callable[[Tensor], Tensor] = lambda t: t
    positions: frozenset[int] = frozenset()
    allowed: str = ""
    rounds: bool = False

    @property
    def stores(self) -> bool:
        """Whether a result on the way is rounded."""
        return self.rounds and bool(self.changes)

    def __str__(self) -> str:
        lines = dict.fromkeys(line for node in self.changes if (line := line_of(node)))
        return ",".join([self.text, *lines])

    def operands(self, each: Evidence) -> list[Tensor]:
        """The operands of a call, rounded."""
        assert each.call is not None
        tensors = enumerate((*each.call[1].values(), *each.call[0].tensors))
        return [self.round_operand(t.detach()) if i in self.positions else t.detach() for i, t in tensors]


def find_advice(
    spec: Specification, evidence: Sequence[Evidence], first: Evidence, terms: Terms, name: str | None
) -> tuple[Reason | None, str]:
    """What a candidate computes in place of a spec, if that is known, and a contract that allows it; "" for none.

    Args:
        spec, evidence, first, terms: as for `likely_reason`.
        name: of the strictest terms that the candidate kept; None where no contract is looked for.
    """
    reason = None
    with contextlib.suppress(Exception):  # A verdict does not depend on what explains it.
        reason = likely_reason(spec, evidence, first, terms)
    outlier = next(each.wrong.outlier for each in first.standings if each.wrong and each.wrong.outlier)
    if name is None or not _may_be_rounding(first.question, outlier, reason):
        return reason, ""
    return reason, accepting_contract(evidence, terms, name, reason.allowed if reason else "")


def _may_be_rounding(question: str, outlier: Outlier, reason: Reason | None) -> bool:
    """Whether wrong values may be a matter of precision; else no contract is advised.

    Rounding has no factor and fills no part, and shows at the given inputs or at those of which it leaves digits out.
    """
    fills = math.prod(last - first + 1 for first, last in outlier.box) == outlier.outside < outlier.elements
    allowed = reason is None or bool(reason.allowed)
    return question in ("FWD:given", "DATA:bits") and outlier.relation in ("", ALL_ZERO) and not fills and allowed


def likely_reason(spec: Specification, evidence: Sequence[Evidence], first: Evidence, terms: Terms) -> Reason | None:
    """What explains all evidence; None where nothing does that is known, and of large problems.

    Args:
        spec, evidence: what is right, and what the candidate gave. first: of the evidence, the first that is wrong.
        terms: what is allowed.
    """
    if first.call is None or spec.numpy or sum(t.numel() for t in Reason("").operands(first)) > _ELEMENTS:
        return None
    start, traced = time.process_time(), spec.traced_at(*first.call)
    alike = [first, *(each for each in evidence if each is not first and each.call)]
    alike = [each for each in alike if each.call and spec.traced_at(*each.call) is traced]
    exact = _distance(first, [None if standing.ball is None else standing.ball.centre for standing in first.standings])
    near: list[tuple[float, int, Reason]] = []
    for reason in _reasons(traced.graph, first):
        outputs = _run(reason, traced.graph, first)
        if reason.stores and not any(bool(y.count_nonzero()) for y in outputs if isinstance(y, Tensor)):
            continue  # All numbers are below the half type's range, as zero in their own may be.
        distance = _distance(first, outputs)
        # Around a result that is rounded on the way lies everything near the exact one, so it has to be much nearer.
        least = exact / 4 if reason.stores else exact
        near += [(distance, len(near), reason)] if distance < least else []
        if time.process_time() - start > _SECONDS:
            break
    for *_, reason in sorted(near, key=lambda row: row[:2])[:_READ]:
        with contextlib.suppress(SpecError, UntraceableError, ReadingError):
            if _explains(reason, spec, traced, alike, terms):
                return reason
        if time.process_time() - start > 2 * _SECONDS:
            break
    return None


def _reasons(graph: torch.fx.GraphModule, first: Evidence) -> Iterator[Reason]:
    operands = Reason("").operands(first)
    single = frozenset(i for i, t in enumerate(operands) if t.dtype == torch.float32)
    products = factors_of(graph)
    for factors in dict.fromkeys(single & each for each in (frozenset().union(*products), *products)):
        yield from (Reason(text, {}, change, factors, allowed, True) for text, change, allowed in _ROUNDINGS if factors)
    if any(bool((_flush(operands[i]) != operands[i]).any()) for i in single):
        yield Reason("subnormal inputs as zero", {}, _flush, single, "fast_math")
    yield from (Reason(text, changes) for text, changes in rewrites_of(graph))
    yield from (Reason(text, changes, rounds=True) for text, changes in roundings_of(graph))


def _distance(each: Evidence, outputs: Sequence[Any]) -> float:
    """How far a candidate is from other floating outputs, all together; infinite where one has another shape."""
    total = 0.0 if outputs else math.inf
    for computed, own in zip(each.computed, outputs, strict=False):
        if own is not None and is_float(computed):
            values = to_array(own) if isinstance(own, Tensor) else own
            with np.errstate(all="ignore"):
                same = values.shape == computed.shape
                total += float(np.abs(to_array(computed) - values).sum()) if same else math.inf
    return total if math.isfinite(total) else math.inf


def _run(reason: Reason, graph: torch.fx.GraphModule, each: Evidence) -> Sequence[Any]:
    """What torch computes of a reason; nothing where it raises."""
    with contextlib.suppress(Exception), torch.no_grad():
        outputs = Rewritten(graph, reason.changes).run(*reason.operands(each), enable_io_processing=False)
        return each.picked(outputs)
    return ()


def _explains(reason: Reason, spec: Specification, traced: Traced, evidence: Sequence[Evidence], terms: Terms) -> bool:
    """Whether the candidate is in the accept sets of a reason everywhere, and torch's values of the spec are not."""
    run = functools.partial(Rewritten(traced.graph, reason.changes).run, enable_io_processing=False)
    other = spec.with_trace(rewritten(traced, run, Reason("").operands(evidence[0]))) if reason.changes else spec
    for number, each in enumerate(evidence):
        assert each.call is not None
        (arguments, state), operands = each.call, reason.operands(each)
        own = arguments.with_tensors(operands[len(state) :]), dict(zip(state, operands, strict=False))
        sharp = each.question in _SHARP and not reason.stores  # what is rounded on the way is exact in no order
        readings = other.read(*own, terms.of_text_alone, sharp)
        if not _accepted(each, each.computed, each.picked(readings)):
            return False
        natives = [native for native in each.native if native is not None]
        if not number and not reason.stores and _accepted(each, natives, each.picked(readings)):
            return False
    return True


def _accepted(each: Evidence, outputs: Sequence[Tensor], readings: Sequence[Any]) -> bool:
    """Whether outputs are in the accept sets of readings; what is judged of the spec at usual data has to be there."""
    pairs = zip(hold_all(each.names, outputs, readings, None, None, OperandFacts.FINITE), each.standings, strict=True)
    usual = each.question in OF_DATA
    return all(own.wrong is None and (own.judged >= standing.judged or not usual) for own, standing in pairs)
