"""Holds recorded calls: each by the ball of its own operands, under the contract of its device and torch's switches.

A call is a spec: the operation itself, or what stands for it, called on its operands. It is traced once for all calls
of the same operation, numbers, shapes, strides and dtypes, and read for each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms, terms
from ...oracles.judge.holding import OperandFacts, Reading, Standing, hold
from ...oracles.verdicts.violation import Code, Outlier
from ..candidates.agreement import operands_of
from ..candidates.arguments import CallArguments
from ..candidates.comparing import hold_in_turn
from ..candidates.results import result_of
from ..candidates.row_sample import part_of
from ..candidates.specification import SpecError, Specification
from ..candidates.spread import OF_SPECIAL, SpecialCall, tell_spread
from .call import DROPOUT, DispatcherCall, Switches, Tensor, drop_by_mask, is_floating, results_of, split_lists
from .compiled import GraphRegion
from .errors import Errors, measure_errors
from .regions import TABLE, reference_of
from .stand_ins.rounding import unpack_weights

#: A reading takes 16 bytes of an element and more, and some 50 nanoseconds: of a call of so many elements seconds.
LARGE = 2**25
#: What torch calls a precision of factors -> the allowance.
_FACTORS = {"tf32": ("tf32",), "bf16": ("bfloat16_factors",)}


@dataclass(frozen=True)
class CallCard:
    """What is wrong with a call: in a line, with the numbers, and its worst element where it is about elements."""

    title: str
    text: str
    outlier: Outlier | None = None

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class CallFinding:
    """What was found about a call.

    Attributes:
        ratio: the largest error of its results over its bound; infinite for a NaN or an infinity that is wrong.
        contribution: the sum over all elements of adjoint times error; NaN where no adjoint is known.
        elements: that were judged. unbounded: that have no bound, though they could have one. reason: why, or why the
            call was not read.
        wrong: the card, where an element is outside.
    """

    ratio: float = 0.0
    contribution: float = math.nan
    elements: int = 0
    unbounded: int = 0
    reason: str = ""
    wrong: CallCard | None = None

    @property
    def is_read(self) -> bool:
        """Whether anything is known of the call."""
        return bool(self.elements) or not self.reason


class CallJudge:
    """What judges calls, and keeps the traces of those that it has met.

    Attributes:
        contract: by which it judges. large: from more elements of operands and results on rows of a call are held,
            where its rows do not depend on each other.
    """

    def __init__(self, contract: str = "torch", large: int = LARGE) -> None:
        self.contract, self.large = contract, large
        self._specs: dict[object, Specification] = {}

    def hold(self, call: DispatcherCall) -> CallFinding:
        """Compare the results of a call with what its operands and the contract allow."""
        try:
            return self._hold(call)
        except (SpecError, MemoryError) as err:
            return CallFinding(reason=str(err).partition("\n")[0] or type(err).__name__)
        except Exception as err:  # A call that we cannot read must not cost what is known of all others.
            return CallFinding(reason=f"{type(err).__name__}: {str(err).partition(chr(10))[0]}")

    def _hold(self, call: DispatcherCall) -> CallFinding:
        # Parameters have few shapes, and what is traced and read for one of them serves all.
        parts = [part for part, _ in split_lists(call)]
        return self._hold_one(call) if len(parts) == 1 else _join([self._hold_one(part) for part in parts])

    def _hold_one(self, call: DispatcherCall) -> CallFinding:
        spec, allowed = self._spec_of(call), terms_of(self.contract, call.switches, call.name)
        draws = call.results[1:] if call.op is DROPOUT else ()
        operands = call.op.operands(call) if isinstance(call.op, GraphRegion) else (*call.tensors, *draws)
        arguments = CallArguments.of(operands)
        elements = sum(x.numel() for x in (*operands, *call.results))
        part = part_of(spec, arguments, allowed, self.large) if elements > self.large else None
        if part is None:
            return _hold_results(call, spec, arguments, allowed)
        rows = part.rows(np.random.default_rng(call.number))
        some = replace(call, results=tuple(y[rows] for y in call.results), adjoints=[])
        finding = _hold_results(some, spec, part.of(arguments, rows), allowed)
        return finding if finding.reason else replace(finding, reason=f"of {part.describe(rows)}")

    def _spec_of(self, call: DispatcherCall) -> Specification:
        key = form_of(call)
        if key not in self._specs:
            function = call.op.function(call) if isinstance(call.op, GraphRegion) else as_function(call)
            self._specs[key] = Specification(call.name, function)
        return self._specs[key]


def _join(findings: Sequence[CallFinding]) -> CallFinding:
    """What was found of an operation on lists, place by place."""
    worst = max(range(len(findings)), key=lambda i: (findings[i].wrong is not None, findings[i].ratio))
    card, known = findings[worst].wrong, [each.contribution for each in findings if not math.isnan(each.contribution)]
    return CallFinding(
        findings[worst].ratio, sum(known) if known else math.nan, sum(each.elements for each in findings),
        sum(each.unbounded for each in findings), next((each.reason for each in findings if each.reason), ""),
        None if card is None else CallCard(f"place {worst} of the lists: {card.title}", card.text),
    )  # fmt: skip


def is_of_user(call: DispatcherCall) -> bool:
    """Whether a call is held by a spec of the user, or is a graph that was compiled."""
    return not isinstance(call.op, torch._ops.OpOverload) or call.name in TABLE


def form_of(call: DispatcherCall) -> tuple[object, ...]:
    """What calls that share a trace have in common."""
    shapes = [(x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else repr(x) for x in call.leaves]
    return (call.op, str(call.structure), *map(str, shapes))


def _hold_results(call: DispatcherCall, spec: Specification, arguments: CallArguments, allowed: Terms) -> CallFinding:
    """Compare the results of a call with the readings of its spec at its operands."""
    # A stand-in may give the first results alone, and a trace has what was written behind all that it gives.
    traced = None if is_of_user(call) else spec.traced_at(arguments, {})
    count = None if traced is None else len(traced.outputs) - len(traced.written_inputs)
    computed = result_of(call.results[:count])
    readings = functools.cache(lambda of: spec.read(arguments, {}, of)[: len(computed.tensors)])
    blocks = spec.read_blocks(arguments, {}, allowed.of_text_alone)
    near = _hold_near(call, computed.tensors, blocks or [(..., readings(allowed.of_text_alone))])
    if near is not None:
        return near
    facts = operands_of(spec, arguments, {})
    whole = isinstance(call.op, GraphRegion)
    names = call.op.names if whole else ["out"] if len(computed.names) == 1 else computed.names
    outcomes = _hold_plainly(names, computed.tensors, readings(allowed.of_text_alone), facts)
    outcomes = outcomes or hold_in_turn(names, computed.tensors, readings, allowed, None, facts)
    if is_of_user(call) and len(outcomes) == len(names) and any(each.wrong for each in outcomes):
        # A kernel leaves out what its reference multiplies by zero, so a NaN may not reach as far.
        rest = (np.random.default_rng(call.number), names, computed.tensors, range(len(names)))
        for question in OF_SPECIAL:
            outcomes = tell_spread(SpecialCall(question, spec, arguments, {}, allowed, None, *rest), outcomes)
    wrong = max(outcomes, key=lambda each: (each.wrong is not None, _of_card(each))).wrong
    if wrong is not None and wrong.code is Code.ATTRIBUTE and not is_of_user(call):
        # What a kernel of torch gives beside its values, and in which form, its own text leaves open.
        return CallFinding(reason=f"torch's kernel gives another form than torch's text: {wrong.title}")
    ratio, parts = 0.0, list[float]()
    for y, standing, adjoint in zip(computed.tensors, outcomes, _adjoints_of(call, computed.tensors), strict=True):
        if standing.ball is None:
            continue
        errors = measure_errors(y, adjoint, standing.ball)
        own, part = errors.ratio, errors.contribution
        ratio = max(ratio, min(own, 1.0) if standing.wrong is None else max(own, _of_card(standing)))
        parts += [] if math.isnan(part) else [part]
    unbounded = sum(each.missed for each in outcomes)
    reason = next((each.reason for each in outcomes if each.missed), "")
    card = None if wrong is None else CallCard(wrong.title, str(wrong), wrong.outlier)
    judged = sum(each.judged for each in outcomes)
    return CallFinding(ratio, sum(parts) if parts else math.nan, judged, unbounded, reason, card)


@np.errstate(all="ignore")  # Blocks are read where they are asked for.
def _hold_near(
    call: DispatcherCall, computed: Sequence[Tensor], blocks: Iterable[tuple[Any, Sequence[Reading]]]
) -> CallFinding | None:
    """What is found where every element is certainly near enough to the centre of its ball; else None.

    Args:
        call, computed: the call, and its results. blocks: rows of the results, and their readings.
    """
    adjoints, errors = _adjoints_of(call, computed), [Errors() for _ in computed]
    for rows, readings in blocks:
        for y, adjoint, own, reading in zip(computed, adjoints, errors, readings, strict=False):
            if not isinstance(reading, Ball) or not is_floating(y) or tuple(y[rows].shape) != reading.shape:
                return None
            own.add(y[rows], None if adjoint is None or adjoint.shape != y.shape else adjoint[rows], reading)
            if not own.are_near:
                return None
        if len(readings) < len(computed):
            return None
    parts = [each.contribution for each in errors if not math.isnan(each.contribution)]
    ratio = min(max((each.ratio for each in errors), default=0.0), 1.0)
    return CallFinding(ratio, sum(parts) if parts else math.nan, sum(y.numel() for y in computed))


def _hold_plainly(
    names: Sequence[str], computed: Sequence[Tensor], readings: Sequence[Reading], facts: OperandFacts
) -> list[Standing]:
    """The results of nearly every call: all elements judged and accepted, and nothing left open; else an empty list.

    It leaves out what is asked of candidates alone, which takes as long again for a small call.
    """
    if len(computed) != len(readings) or not all(isinstance(each, (Ball, np.ndarray)) for each in readings):
        return []
    outcomes = [hold(*row, facts) for row in zip(names, computed, readings, strict=True)]
    return outcomes if not any(each.wrong or each.is_outside or each.left for each in outcomes) else []


def as_function(call: DispatcherCall) -> Callable[..., tuple[Tensor, ...]]:
    """A call as a function of the tensors among its operands, giving what it writes and then what else it gives."""
    template = tuple(None if isinstance(x, Tensor) else _unpacked(x) for x in call.leaves)
    places = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]
    op, structure = call.op, call.structure
    run = (reference_of(op) if isinstance(op, torch._ops.OpOverload) else None) or op

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = list(template)
        for place, tensor in zip(places, tensors, strict=False):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        if op is DROPOUT:
            return drop_by_mask(*args, **kwargs, mask=tensors[-1])
        return results_of(op, args, kwargs, run(*args, **kwargs))

    return function


def _unpacked(leaf: Any) -> Any:
    """Packed weights as tensors: a trace cannot look into what holds them."""
    return unpack_weights(leaf) if isinstance(leaf, torch.ScriptObject) and hasattr(leaf, "unpack") else leaf


def terms_of(contract: str, switches: Switches, name: str) -> Terms:
    """The terms of a call: those of the contract, with what torch's switches allow as they stood."""
    return terms("+".join([contract, *words_of(switches, name)]))


def words_of(switches: Switches, name: str) -> list[str]:
    """The names of what torch's switches allow in a call of an operation."""
    words = [*_FACTORS.get(switches.convolutions if "convolution" in name else switches.products, ())]
    words += ["bfloat16_partials"] if switches.partials else []
    words += ["flush"] if switches.flush else []
    return words


def _adjoints_of(call: DispatcherCall, computed: Sequence[Tensor]) -> Sequence[Tensor | None]:
    """The derivatives by the first results; a file of a call has none."""
    adjoints = (*call.adjoints, *(None for _ in computed))[: len(computed)]
    return [
        None if adjoint is None else torch.view_as_real(adjoint.resolve_conj()) if adjoint.is_complex() else adjoint
        for adjoint in adjoints
    ]


def _of_card(standing: Standing) -> float:
    worst = None if standing.wrong is None else standing.wrong.worst
    return math.inf if worst is None else worst.ratio
