"""The assertion that an output lies where a spec allows it: one line in a test, with a card that says what to do.

What this is for: somebody who has tests changes `assert_close` into this. So it takes what they have at hand, and what
explains a failure, which takes longer than the comparison, is looked for only where there is one.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import linecache
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from ...oracles.bound.terms import Terms, terms, terms_of_compiled
from ...oracles.judge.holding import OperandFacts, Reading, Standing
from ...oracles.op.bits import same_bits
from ...oracles.process import interrupt
from ...oracles.verdicts.verdict import Cell, Code, Outcome, Verdict, explanation_lines
from ...oracles.verdicts.violation import Violation
from ...oracles.verdicts.witnesses import WITNESSES, tell
from .agreement import disagreement, operands_of
from .arguments import CallArguments, Tensor, call
from .comparing import hold_in_turn
from .conformance import DEFAULT, run_without_draws, tensors_asked
from .evidence import Evidence
from .results import result_of, unlike, without_numbers
from .specification import SpecError, Specification, specification

#: unittest leaves frames of modules that have this name out of a traceback.
__unittest = True
#: Signs of the expression in the caller's source that a title takes.
_LONGEST = 60


def assert_conforms(
    candidate_output: Any, spec: Any, *args: Any, contract: str | Terms = DEFAULT, compiled: str = ""
) -> None:
    """Assert that outputs lie where an evaluation of the spec may put them.

    Args:
        candidate_output: what a candidate gives, in the form that the spec has; or, of a spec that gives no tensor, the
            tensors that it writes, in the order of the arguments, as they are after the call. NumPy arrays, numbers and
            lists of numbers stand for tensors. A function or module is called here, with copies of `args`.
        spec: a function or module of plain PyTorch, a formula in NumPy, the name of an op of the catalog, or what
            `opassay.specification` made of one of these, which is read once for all calls of the same shapes.
        args: what it is called with: tensors or NumPy arrays, and whatever else it takes.
        contract: as for `opassay.bound`. compiled: of a function that is called here, as for `opassay.judge`.

    Raises:
        AssertionError: an output does not, or elements of it have no bound, so that nothing is known of them; the text
            is a card that can be pasted into an issue. Forms, shapes and dtypes are compared before values.
        SpecError, ValueError: as for `opassay.bound`. RuntimeError: a function has Triton kernels, and there is no GPU.
    """
    __tracebackhide__ = True
    read_spec, allowed, arguments = specification(spec), terms(contract), CallArguments.of(_as_tensors(args))
    allowed = terms_of_compiled(allowed) if compiled else allowed
    try:
        with interrupt.SignalScope():
            assertion = CallOfSpec(read_spec, arguments, allowed).hold(candidate_output, compiled)
            wrong = assertion.violation
            _tell(arguments, assertion)
    except SpecError as err:
        _tell(arguments, err)
        raise
    if wrong is not None:
        name = _name_of(candidate_output) or _read_expression(sys._getframe(1))
        raise AssertionError(f"{name and f'{name} against '}{read_spec.name}: {wrong}")


def _tell(arguments: CallArguments, answer: Assertion | SpecError) -> None:
    """Tell those who make a report of the tests, if there are any."""
    if not WITNESSES:
        return
    # Here, because an assertion without a report needs fewer packages than a record.
    from .cases import SUBJECT
    from .finding import Finding, summed
    from .verdicts import verdict_of_question

    cell = Cell("", "FWD:given", arguments.dtype, arguments.device, SUBJECT)
    if isinstance(answer, SpecError):
        tell([Verdict(cell, Outcome.ERROR, Code.DECLARATION, str(answer))])
        return
    finding = summed(cell.property, [replace(each, wrong=None) for each in answer.outcomes], arguments)
    if answer.violation is not None:
        counts = finding.judged, finding.elements
        finding = Finding(cell.property, Outcome.FAIL, answer.violation, counts[0], elements=counts[1])
    tell([verdict_of_question(cell, finding)])


class CallOfSpec:
    """A call of a spec, read once for all candidates whose outputs are held to it.

    Attributes:
        spec, arguments, allowed: what outputs are held to. run: of the spec, by torch.
        native: its tensors that are asked. names: of these.

    Raises:
        SpecError: as for `assert_conforms`.
    """

    def __init__(self, spec: Specification, arguments: CallArguments, allowed: Terms) -> None:
        self.spec, self.arguments, self.allowed = spec, arguments, allowed
        self.run = run_without_draws(spec, arguments)
        self.native = tensors_asked(self.run)
        self.names = self.run.names[: len(self.native)]
        self.read = functools.cache(self._read)
        if why := disagreement(spec, arguments, self.run, self.read, allowed):
            raise SpecError(why)

    def _read(self, terms: Terms, sharp: bool = False) -> Sequence[Reading]:
        return self.spec.read(self.arguments, self.spec.state, terms, sharp)[: len(self.native)]

    @functools.cached_property
    def facts(self) -> OperandFacts:
        """What is known of the operands."""
        return operands_of(self.spec, self.arguments, self.spec.state)

    def hold(self, candidate: Any, compiled: str = "") -> Assertion:
        """Outputs, or those of a function that is called here, held; arguments and errors as for `assert_conforms`."""
        value, run, native = candidate, self.run, self.native
        if callable(candidate) and not isinstance(candidate, Tensor):
            own = self.arguments.copied()
            try:
                value = _call_compiled(candidate, own, compiled) if compiled else _call(candidate, own)
            except Violation as fault:  # of a launch
                return Assertion(self, (), [], "\n".join([fault.title, *fault.lines]))
            if not run.outputs and value is None:
                value = tuple(own.tensors[place] for place in run.writes if isinstance(place, int))
        result = result_of(_as_tensors(value, native[0].dtype if run.result.form == "*" else None))
        misfit = unlike(result.form, result.plain, run.result) if run.outputs else ""
        pairs = zip(self.names, result.tensors, strict=False)
        odd = [f"{name} {why}" for name, y in pairs if (why := without_numbers(y))]
        outcomes: list[Standing] = []
        if not misfit and not odd:
            torchs = None if self.spec.numpy else native
            outcomes = hold_in_turn(self.names, result.tensors, self.read, self.allowed, torchs, self.facts)
        return Assertion(self, result.tensors, outcomes, misfit or next(iter(odd), ""))


@dataclass(frozen=True)
class Assertion:
    """Outputs that were held.

    Attributes:
        of: the call of the spec. outputs, outcomes: of the candidate, in the order of its names.
        misfit: how their form differs, which leaves nothing to be compared; empty for none.
    """

    of: CallOfSpec
    outputs: Sequence[Tensor]
    outcomes: Sequence[Standing]
    misfit: str = ""

    @functools.cached_property
    def wrong(self) -> list[Violation]:
        """What is wrong with each output, attributes first."""
        every = [each.wrong for each in self.outcomes if each.wrong is not None]
        return sorted(every, key=lambda each: each.code is not Code.ATTRIBUTE)

    @functools.cached_property
    def violation(self) -> Violation | None:
        """What is wrong, whose text is the card without the names of candidate and spec."""
        if self.misfit:
            return Violation(Code.ATTRIBUTE, self.misfit)
        if not self.wrong:
            pairs = zip(self.of.names, self.outcomes, strict=True)
            texts = [text for name, each in pairs if (text := _describe_unjudged(name, each))]
            return Violation(Code.MOSTLY_NOT_JUDGED, "; ".join(texts)) if texts else None
        first, *others = self.wrong
        advice = self._find_advice()
        lines = [*first.lines, f"input      {self.of.arguments.with_names(self.of.spec.function).text}", *advice]
        # What is said of this failure takes the place of what failures of its kind usually are.
        lines += explanation_lines(first.code)[-1 if advice or first.code is Code.ATTRIBUTE else 0 :]
        lines += [line for each in others for line in (each.title, *each.lines)]
        return Violation(first.code, first.title, lines, outlier=first.outlier)

    def _find_advice(self) -> list[str]:
        """What the first wrong output may be, and a contract that allows it: lines, or none."""
        outliers = [each.outlier for each in self.wrong if each.outlier is not None]
        finite = self.of.facts is OperandFacts.FINITE
        if not outliers or not finite or len(self.outcomes) != len(self.outputs):
            return []
        # Here, because what holds has no use for it, and importing it takes longer than holding.
        from .precision import strictest_rung
        from .reasons import find_advice

        of, outputs = self.of, tuple(self.outputs)
        evidence = Evidence(
            "FWD:given", tuple(of.names), outputs, tuple(self.outcomes), of.native, of.read, _draw_nothing,
            tuple(range(len(of.native))), call=(of.arguments, of.spec.state),
        )  # fmt: skip
        rung = strictest_rung([evidence])
        reason, contract = find_advice(of.spec, [evidence], evidence, of.allowed, None if rung is None else rung.name)
        lines = [] if reason is None else [f"likely     {reason}"]
        return lines + ([f'accepted   with contract="{contract}", if that is meant'] if contract else [])


def _draw_nothing(_: Any) -> Any:
    raise NotImplementedError


def _call(candidate: Any, own: CallArguments) -> Any:
    """What a candidate gives."""
    try:
        with torch.no_grad():
            return call(candidate, own.args)
    except Exception as err:
        from ...oracles.machine.limits import beyond_machine  # here, because what does not raise has no use for it

        if beyond := beyond_machine(err):
            raise RuntimeError(f"{_name_of(candidate)} {beyond}") from err
        raise


def _call_compiled(candidate: Any, own: CallArguments, compiled: str) -> Any:
    """The same of Triton kernels that are compiled; a fault of a launch is one, whatever the candidate makes of it."""
    from ...oracles.machine.ptx.account import ACCOUNT  # here, because few candidates have kernels
    from ..places.executing import execute_launches

    with execute_launches(compiled), ACCOUNT.raise_fault():
        return _call(candidate, own)


def _as_tensors(value: Any, dtype: torch.dtype | None = None) -> Any:
    """The same with tensors in the places of NumPy arrays; with a dtype, a number or lists of numbers are a tensor.

    Numbers of Python take the dtype if it has all of them, so that nothing is rounded before it is compared.
    """
    leaves = pytree.tree_leaves(value)
    if dtype is not None and leaves and all(isinstance(each, int | float) for each in leaves):
        kind = torch.float64 if any(isinstance(each, float) for each in leaves) else None
        try:
            exact = torch.tensor(value, dtype=kind)
        except (ValueError, TypeError, RuntimeError):  # rows of several lengths, or dictionaries
            return value
        return exact.to(dtype) if same_bits(exact.to(dtype).to(exact.dtype), exact) else exact
    return pytree.tree_map_only(np.ndarray, torch.tensor, value)


def _describe_unjudged(name: str, standing: Standing) -> str:
    """Of how many elements nothing is known, though something could be; empty for none."""
    if standing.missed:
        return (
            f"{name} is not known: {standing.missed} of {standing.elements} elements have no bound: {standing.reason}"
        )
    if standing.elements and not standing.judged:
        return (
            f"{name} is not known: none of {standing.elements} elements has an exact value that is finite and in range"
        )
    return ""


def _name_of(candidate: Any) -> str:
    """The name of a function or module; empty of anything else."""
    is_called = callable(candidate) and not isinstance(candidate, Tensor)
    return getattr(candidate, "__name__", type(candidate).__name__) if is_called else ""


def _read_expression(frame: FrameType) -> str:
    """The first argument of the call that a frame is in, as its source has it; empty where that is not known."""
    with contextlib.suppress(Exception):  # a source that is not there, or changed, only leaves a title shorter
        first, last, start, end = list(frame.f_code.co_positions())[frame.f_lasti // 2]
        assert first is not None
        lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)[first - 1 : last]
        raw = [line.encode() for line in lines]  # the columns of positions count bytes
        raw[-1] = raw[-1][:end]
        raw[0] = raw[0][start:]
        node = ast.parse(b"".join(raw), mode="eval").body
        text = ast.unparse(node.args[0]) if isinstance(node, ast.Call) and node.args else ""
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
    return ""
