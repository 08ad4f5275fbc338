"""WAYS: every way of calling an op gives the result of the plain call, bit for bit or within the bound.

What this is for: the other properties call an op in one way, with all arguments by position, plain tensors and one
graph at a time. Users leave defaults out, name arguments, hand in lists and parameters, switch gradients off, keep
several graphs alive, batch many slices, and have tensors of more dims.

What is hard here: to know which of these calls an op accepts, and what a default means. The signature and the
production op decide the former, the formula decides the latter.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import Sample, Subject, Tensor, is_float
from ....oracles.op.paths import Problem
from ....oracles.op.script import CallVariant
from ....oracles.verdicts.verdict import Code
from ..agreement import Args, outputs_of, require_equal, require_equal_calls, require_promised, reverse_path
from ..layout import require_contiguous, require_strides
from .extents import check_many_slices, check_more_dims, check_one_slice
from .following import check_subclasses, check_under_mode
from .graphs import check_graphs
from .identity import check_identity
from .module_calls import check_module_state


def check_ways(judge: Judge, sample: Sample) -> None:
    """WAYS: see the module."""
    _judge_spellings(judge, sample)
    _judge_defaults(judge, sample)
    _judge_parameters(judge, sample)
    _judge_modes(judge, sample)
    check_graphs(judge, sample)
    _judge_deterministic_mode(judge, sample)
    check_many_slices(judge, sample)
    check_one_slice(judge, sample)
    check_more_dims(judge, sample)
    check_module_state(judge, sample)
    check_identity(judge, sample)
    check_under_mode(judge, sample)
    check_subclasses(judge, sample)


def _judge_spellings(judge: Judge, sample: Sample) -> None:
    """Judge calls with all arguments by keyword, and with lists where the sample has tuples."""
    implementation = judge.op.implementation(judge.subject_name)
    for what, call in _spellings(judge, implementation, sample.args):
        require_equal_calls(judge, sample, _functional(judge, call), what, backward=False)


def _functional(judge: Judge, call: CallVariant) -> CallVariant:
    """The call as a function that copies what the op writes."""
    return replace(call, function=judge.op.functional(call.function))


def _spellings(judge: Judge, implementation: Subject, args: Args) -> Iterator[tuple[str, CallVariant]]:
    """Calls that mean the same as the plain one, each with its name in messages."""
    names = parameter_names(implementation)
    if names is not None and len(names) >= len(args):
        # The order of keyword arguments is reversed, because the result of a call must not depend on it.
        def by_keyword(*operands: Any) -> Any:
            return implementation(**dict(reversed(list(zip(names, operands, strict=False)))))

        lines = ("def call(*given):", f"    return op(**dict(reversed(list(zip({names!r}, given)))))", "")
        yield "all arguments by keyword", CallVariant(by_keyword, lines)
    if any(isinstance(a, tuple) for a in args):
        listed = [judge.op.label(i) for i, a in enumerate(args) if isinstance(a, tuple)]
        lines = ("def call(*given):", "    return op(*(list(a) if isinstance(a, tuple) else a for a in given))", "")
        yield (
            f"a list for {', '.join(listed)}",
            CallVariant(
                lambda *operands: implementation(*(list(a) if isinstance(a, tuple) else a for a in operands)), lines
            ),
        )


def parameter_names(implementation: Subject) -> list[str] | None:
    """Names of the arguments of an implementation, in order; None where Python cannot read them."""
    schema = getattr(implementation, "_schema", None)
    if schema is not None:
        return [argument.name for argument in schema.arguments]
    try:
        parameters = inspect.signature(implementation).parameters.values()
    except (TypeError, ValueError):  # a function written in C
        return None
    if any(p.kind not in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        return None
    return [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]


def _judge_defaults(judge: Judge, sample: Sample) -> None:
    """Judge calls that leave out arguments: each must have the formula's default."""
    parameters = list(inspect.signature(judge.op.reference).parameters.values())
    required = [p for p in parameters if p.default is p.empty]
    count = len(required)
    if count == len(parameters) or len(sample.args) != len(parameters):
        return
    implementation = judge.op.implementation(judge.subject_name)
    if not _has_defaults(implementation, count):
        return
    # Calls leave out the last argument, then the last two, and so on.
    for end in range(len(parameters) - 1, count - 1, -1):
        args = (*sample.args[:end], *(p.default for p in parameters[end:]))
        if outputs_of(judge, args) is None:
            continue
        what = f"{judge.op.argument(end)}{' and what follows' * (end < len(parameters) - 1)} left out"
        lines = ("def call(*given):", f"    return op(*given[:{end}])", "")
        call = _functional(judge, CallVariant(_of_first(implementation, end), lines))
        require_equal_calls(judge, sample.with_args(args), call, what, backward=False)


def _of_first(implementation: Subject, count: int) -> Subject:
    return lambda *args: implementation(*args[:count])


def _has_defaults(implementation: Subject, count: int) -> bool:
    """Whether an implementation can be called with its first `count` arguments alone."""
    try:
        parameters = list(inspect.signature(implementation).parameters.values())[count:]
    except (TypeError, ValueError):
        return False
    return all(p.default is not p.empty or p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD) for p in parameters)


def _judge_parameters(judge: Judge, sample: Sample) -> None:
    """Judge a call with `Parameter` arguments: outputs are plain tensors, values and gradients those of plain ones."""
    writes = judge.op.mutated_positions(sample.args)
    problem = Problem(judge.op, sample.args)

    def call(*args: Any) -> Any:
        return judge.subject(*(_parameter(a) if is_float(a) and i not in writes else a for i, a in enumerate(args)))

    parameters: list[Tensor] = []

    def _parameter(t: Tensor) -> Tensor:
        parameter = torch.nn.Parameter(t.detach(), requires_grad=t.requires_grad)
        parameters.append(parameter)
        return parameter

    path, what = reverse_path(judge, sample), "parameters in place of tensors"
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    outputs = judge.call(problem.subject(call), *leaves, what=what)
    for i, y in enumerate(outputs):
        if any(y is parameter for parameter in parameters):
            raise judge.violation(Code.ALIASED, f"out[{i}] is an argument itself", where=what)
        if isinstance(y, torch.nn.Parameter):
            raise judge.violation(Code.ATTRIBUTE, f"out[{i}] is a Parameter", where=what)
    require_equal(judge, path.along((), ()), [y.detach() for y in outputs], path.primal, what)
    pairs = [(y, g) for y, g in zip(outputs, path.directions, strict=False) if y.requires_grad]
    tracked = [p for p in parameters if p.requires_grad]
    if not pairs or not tracked:
        return
    targets, directions = [y for y, _ in pairs], [g for _, g in pairs]
    judge.call(lambda: torch.autograd.backward(targets, directions), what="backward to parameters")
    need = judge.run(path, what="vjp")
    got = [torch.zeros_like(p) if p.grad is None else p.grad for p in tracked]
    require_equal(judge, path, got, [g.detach() for g in need], "gradients of parameters")


def _judge_modes(judge: Judge, sample: Sample) -> None:
    """Judge calls under no_grad and in inference mode: the same bits, and outputs that need no gradient."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)
    plain = [t.detach().clone() for t in judge.call(f, *problem.inputs, what="forward")]
    path = judge.path(sample, (), plain, "eager")
    leaves = [t.detach().requires_grad_() for t in problem.inputs]
    for what, mode, operands in (
        ("under no_grad", torch.no_grad, leaves),
        ("in inference mode", torch.inference_mode, problem.inputs),
    ):
        with mode():
            outputs = judge.call(f, *operands, what=what)
        # A view of a leaf requires a gradient under no_grad, too, as the views of torch's own ops do.
        if any(y.requires_grad and not y._is_view() for y in outputs):
            raise judge.violation(Code.ATTRIBUTE, "an output requires a gradient", where=what)
        require_promised(judge, path, [y.clone() for y in outputs], plain, what)
    # A tensor that was computed in inference mode must not be reused in a call that is differentiated.
    again = judge.call(f, *leaves, what="forward after inference mode")
    require_promised(judge, path, [y.detach() for y in again], plain, "forward after inference mode")


def _judge_deterministic_mode(judge: Judge, sample: Sample) -> None:
    """Judge values and first gradients under deterministic algorithms, for which an op may have other code."""
    what = "with deterministic algorithms"
    path = reverse_path(judge, sample)
    need = judge.run(path, what="vjp") if path.problem.wrt else ()
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    try:
        torch.use_deterministic_algorithms(True)
        with torch.no_grad():
            got = judge.primal(sample, what=what)
        gradients = judge.run(path, what=f"{what}, vjp") if path.problem.wrt else ()
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
    require_strides(judge, sample, got, what)
    require_contiguous(judge, got, gradients, what)
    require_equal(judge, path.along((), ()), got, path.primal, what)
    require_equal(judge, path, [g.detach() for g in gradients], [g.detach() for g in need], f"{what}, vjp")
