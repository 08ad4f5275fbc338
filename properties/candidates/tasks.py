"""`audit-task`: which trivial programs would pass the check of a task, with the tolerance and inputs of the task.

The tolerances here are the user's. No other module has any, and here they are what is judged, not a candidate.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from ...oracles.bound.rounding import Ball
from ...oracles.bound.terms import PRESETS
from ...oracles.specs.lines import line_of
from ...oracles.specs.node_facts import name_of
from ...reference.dtypes import HALF_TYPES
from .arguments import CallArguments, Tensor
from .host.module_files import problem_of
from .inputs import WAYS, filled
from .results import SpecRun
from .rewrites import MOVES, Rewritten, stand_ins_of
from .specification import SpecError, Specification, specification

#: Ways of filling inputs between which a right output should differ.
_UNLIKE = ("FWD:seeds", "FWD:signs", "FWD:nearone")
#: How many operations are left out, one at a time.
_MOST = 60


@dataclass(frozen=True)
class Trivial:
    """A program that is wrong on purpose.

    Attributes:
        name: what it does. passes: whether the check would accept it. why: what it raised, where it has no output.
    """

    name: str
    passes: bool
    why: str = ""


@dataclass(frozen=True)
class Audit:
    """What a check would let through.

    Attributes:
        spec: its name. tolerance: the check in words. rows: the trivial programs.
        constant: which outputs are the same whatever the input, in words; empty for none.
    """

    spec: str
    tolerance: str
    rows: tuple[Trivial, ...]
    constant: tuple[str, ...]

    @property
    def passing(self) -> tuple[Trivial, ...]:
        return tuple(row for row in self.rows if row.passes)

    def __str__(self) -> str:
        lines = [f"{self.spec}, checked by {self.tolerance}"]
        lines += [
            f"{'PASSES' if row.passes else 'fails':8}{row.name}{row.why and f' ({row.why})'}" for row in self.rows
        ]
        lines += self.constant
        count = len(self.passing)
        return "\n".join([*lines, f"{count} of {len(self.rows)} trivial programs pass"])


def audit_task(
    spec: str, relative: float, absolute: float, *, seed: int = 0, values: Mapping[str, Any] | None = None
) -> Audit:
    """Which trivial programs pass |out − right| ≤ absolute + relative |right|, on the inputs that the task gives.

    Args:
        spec: a file, or a pair `module:name`. relative, absolute: the user's own tolerance.
        seed: of parameters and inputs. values: arguments of what gives the inputs, by name.

    Raises:
        GivenError, SpecError: the file lacks something, or the spec raises.
    """
    problem = problem_of(spec, seed, values)
    read_spec = specification(problem.spec)
    arguments = CallArguments.of(problem.draw(seed))
    run = read_spec.run(arguments, read_spec.state)
    rows = []
    for name, program in _wrong_programs(read_spec, arguments, run):
        try:
            with torch.no_grad():
                outputs = program()
        except Exception as err:
            rows.append(Trivial(name, False, f"raises {type(err).__name__}"))
            continue
        rows.append(Trivial(name, _accepted(outputs, run.outputs, relative, absolute)))
    tolerance = f"|out - right| <= {absolute:g} + {relative:g} |right|"
    return Audit(read_spec.name, tolerance, tuple(rows), tuple(_constant_outputs(read_spec, arguments, run, seed)))


def _accepted(outputs: Sequence[Tensor], right: Sequence[Tensor], relative: float, absolute: float) -> bool:
    if len(outputs) != len(right):
        return False
    for y, need in zip(outputs, right, strict=True):
        if y.shape != need.shape:
            return False
        a, b = y.double(), need.double()
        if not bool(((a == b) | ((a - b).abs() <= absolute + relative * b.abs())).all()):
            return False
    return True


def _wrong_programs(
    spec: Specification, arguments: CallArguments, run: SpecRun
) -> Iterator[tuple[str, Callable[[], Sequence[Tensor]]]]:
    """Wrong programs by title, which a task should refuse; `run` has the right outputs."""
    right = run.outputs
    yield "all zeros", lambda: [torch.zeros_like(y) for y in right]
    yield (
        "a constant: the mean of the right output",
        lambda: [torch.full_like(y, float(y.double().mean())) for y in right],
    )
    yield "the first input as it is", lambda: [arguments.tensors[0].expand(y.shape) for y in right]
    for dtype in (getattr(torch, name) for name in HALF_TYPES):
        yield f"all of it in {dtype}", functools.partial(outputs_in, spec, arguments, dtype, right)
    yield from _omit_operations(spec, arguments)


def outputs_in(
    spec: Specification, arguments: CallArguments, dtype: torch.dtype, right: Sequence[Tensor]
) -> list[Tensor]:
    """The outputs of a spec of which all is computed in a dtype, in the dtypes of the right ones."""

    def cast(t: Tensor) -> Tensor:
        return t.to(dtype) if t.dtype.is_floating_point else t

    outputs = spec.run(arguments.changed(cast), {name: cast(value) for name, value in spec.state.items()}).outputs
    return [y.to(like.dtype) for y, like in zip(outputs, right, strict=True)]


def _omit_operations(
    spec: Specification, arguments: CallArguments
) -> Iterator[tuple[str, Callable[[], Sequence[Tensor]]]]:
    """Runs of the spec without one of its operations, by title: an operand of the same shape stands for the result."""
    if spec.numpy:
        return
    graph = spec.traced_at(arguments, spec.state).graph
    operands = [*spec.state.values(), *arguments.tensors]
    count = len(spec.run(arguments, spec.state).outputs)
    for node in [node for node in graph.graph.nodes if node.op == "call_function"][:_MOST]:
        stand_ins = stand_ins_of(node)
        # A copy, or another view of the same, computes nothing.
        if stand_ins and name_of(node) not in (*MOVES, "detach", "alias"):
            run = functools.partial(_run_without, graph, node, stand_ins[0], operands, count)
            yield f"without {node.target}{line_of(node)}", run


def _run_without(
    graph: torch.fx.GraphModule, node: torch.fx.Node, stand_in: int, operands: Sequence[Tensor], count: int
) -> Sequence[Tensor]:
    """The first outputs of a graph in which an operand takes the place of a result."""
    without = Rewritten(graph, {node: lambda *args, **_: args[stand_in]})
    return tuple(without.run(*operands, enable_io_processing=False)[:count])


def _constant_outputs(spec: Specification, arguments: CallArguments, run: SpecRun, seed: int) -> Iterator[str]:
    """A sentence for each output that is the same at all inputs, within what rounding does."""
    rng = np.random.default_rng(seed)
    sets = [arguments, *(filled(arguments, WAYS[way], rng, spec.reads_values) for way in _UNLIKE)]
    try:
        rows = [spec.read(each, spec.state, PRESETS["torch"]) for each in sets]
    except SpecError as err:
        yield f"whether the right output depends on the input is not known: {err}"
        return
    for name, first, *others in zip(run.names[: len(run.outputs)], *rows, strict=False):
        if not isinstance(first, Ball):
            continue
        with np.errstate(all="ignore"):
            same = all(np.all(np.abs(first.centre - y.centre) <= first.radii() + y.radii()) for y in others)
        if same:
            yield f"the right value of {name} is the same whatever the input: no check of it sees anything"
