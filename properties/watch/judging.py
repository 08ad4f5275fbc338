"""Holds recorded calls: each by the ball of its own operands, under the contract of its device and torch's switches.

A call is a spec: the operation itself, or what stands for it, called on its operands. It is traced once for all calls
of the same operation, numbers, shapes, strides and dtypes, and read for each.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import Terms, terms
from ...oracles.judge.holding import OperandFacts, Reading, Standing, hold
from ...oracles.verdicts.violation import Code
from ..candidates.agreement import operands_of
from ..candidates.arguments import CallArguments
from ..candidates.comparing import hold_in_turn
from ..candidates.results import result_of
from ..candidates.specification import SpecError, Specification
from .call import DROPOUT, DispatcherCall, Switches, Tensor, drop_by_mask, results_of
from .compiled import GraphRegion
from .errors import measure_errors
from .regions import TABLE
from .stand_ins.lookup import stand_in_of

#: What torch calls a precision of factors -> the allowance.
_FACTORS = {"tf32": ("tf32",), "bf16": ("bfloat16_factors",)}


@dataclass(frozen=True)
class CallCard:
    """What is wrong with a call: in a line, and with the numbers."""

    title: str
    text: str

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
    """What judges calls, and keeps the traces of those that it has met."""

    def __init__(self, contract: str = "torch") -> None:
        self.contract = contract
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
        spec, allowed = self._spec_of(call), terms_of(self.contract, call.switches, call.name)
        whole = isinstance(call.op, GraphRegion)
        draws = call.results[1:] if call.op is DROPOUT else ()
        arguments = CallArguments.of(call.op.operands(call) if whole else (*call.tensors, *draws))
        # A stand-in may give the first results alone, and a trace has what was written behind all that it gives.
        traced = None if is_of_user(call) else spec.traced_at(arguments, {})
        count = None if traced is None else len(traced.outputs) - len(traced.written_inputs)
        computed = result_of(call.results[:count])
        readings = functools.cache(lambda of: spec.read(arguments, {}, of)[: len(computed.tensors)])
        facts = operands_of(spec, arguments, {})
        names = call.op.names if whole else ["out"] if len(computed.names) == 1 else computed.names
        outcomes = _hold_plainly(names, computed.tensors, readings(allowed.of_text_alone), facts)
        outcomes = outcomes or hold_in_turn(names, computed.tensors, readings, allowed, None, facts)
        wrong = max(outcomes, key=lambda each: (each.wrong is not None, _of_card(each))).wrong
        if wrong is not None and wrong.code is Code.ATTRIBUTE and not is_of_user(call):
            # What a kernel of torch gives beside its values, and in which form, its own text leaves open.
            return CallFinding(reason=f"torch's kernel gives another form than torch's text: {wrong.title}")
        ratio, parts = 0.0, list[float]()
        for y, standing, adjoint in zip(computed.tensors, outcomes, _adjoints_of(call), strict=False):
            if standing.ball is None:
                continue
            own, part = measure_errors(y, adjoint, standing.ball)
            ratio = max(ratio, min(own, 1.0) if standing.wrong is None else max(own, _of_card(standing)))
            parts += [] if math.isnan(part) else [part]
        contribution = sum(parts) if parts else math.nan
        unbounded = sum(each.missed for each in outcomes)
        reason = next((each.reason for each in outcomes if each.missed), "")
        card = None if wrong is None else CallCard(wrong.title, str(wrong))
        return CallFinding(ratio, contribution, sum(each.judged for each in outcomes), unbounded, reason, card)

    def _spec_of(self, call: DispatcherCall) -> Specification:
        key = form_of(call)
        if key not in self._specs:
            function = call.op.function(call) if isinstance(call.op, GraphRegion) else as_function(call)
            self._specs[key] = Specification(call.name, function)
        return self._specs[key]


def is_of_user(call: DispatcherCall) -> bool:
    """Whether a call is held by a spec of the user, or is a graph that was compiled."""
    return not isinstance(call.op, torch._ops.OpOverload) or call.name in TABLE


def form_of(call: DispatcherCall) -> tuple[object, ...]:
    """What calls that share a trace have in common."""
    shapes = [(x.shape, x.stride(), x.dtype) if isinstance(x, Tensor) else repr(x) for x in call.leaves]
    return (call.op, str(call.structure), *map(str, shapes))


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
    template = tuple(None if isinstance(x, Tensor) else x for x in call.leaves)
    places = [i for i, x in enumerate(call.leaves) if isinstance(x, Tensor)]
    op, structure = call.op, call.structure
    run = op
    if isinstance(op, torch._ops.OpOverload):
        own = TABLE.get(call.name)
        run = own.reference if own is not None else stand_in_of(op) or op

    def function(*tensors: Tensor) -> tuple[Tensor, ...]:
        leaves = list(template)
        for place, tensor in zip(places, tensors, strict=False):
            leaves[place] = tensor
        args, kwargs = pytree.tree_unflatten(leaves, structure)
        if op is DROPOUT:
            return drop_by_mask(*args, **kwargs, mask=tensors[-1])
        return results_of(op, args, kwargs, run(*args, **kwargs))

    return function


def terms_of(contract: str, switches: Switches, name: str) -> Terms:
    """The terms of a call: those of the contract, with what torch's switches allow as they stood."""
    factors = switches.convolutions if "convolution" in name else switches.products
    words = [contract, *_FACTORS.get(factors, ())]
    words += ["bfloat16_partials"] if switches.partials else []
    words += ["flush"] if switches.flush else []
    return terms("+".join(words))


def _adjoints_of(call: DispatcherCall) -> Sequence[Tensor | None]:
    return [
        None if adjoint is None else torch.view_as_real(adjoint.resolve_conj()) if adjoint.is_complex() else adjoint
        for adjoint in call.adjoints
    ]


def _of_card(standing: Standing) -> float:
    worst = None if standing.wrong is None else standing.wrong.worst
    return math.inf if worst is None else worst.ratio
