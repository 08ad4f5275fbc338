"""COMP: torch.compile and torch.export, forward and reverse mode, each against the same call without a compiler.

What this is for: a compiler may take a fact of one call for a fact of all calls. So one compiled function is called
again with other sizes and with other values of the arguments that are no tensors; a function that is compiled for any
size must not be compiled anew for another size; and an exported program is saved, loaded, and called at other sizes.

What is hard here: to compile takes as long as thousands of calls. Short profiles judge one sample, with lighter
backends: for values the one that runs the traced graph ("eager"), because the assumptions of compiled code are made
when it is traced; for derivatives the one that traces them, too, and generates no code ("aot_eager"), at one other size
in one dtype. And in short profiles several values change at once.

Where an op promises one graph, a graph break is a failure; of other ops the breaks are counted.
"""

from __future__ import annotations

import io
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ....oracles import process
from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Subject, Tensor, flat_outputs
from ....oracles.verdicts.verdict import Code
from ..agreement import call_and_differentiate, require_equal_calls, reverse_path
from .variants import Size, change_sizes, change_values, marks_of


class Compiled:
    """A function, compiled by torch.compile, that counts its graphs and graph breaks.

    Attributes:
        graphs: how many graphs were compiled for the function so far. breaks: how many graph breaks there were.

    Args:
        function: the function to compile. backend: the name of a backend of torch.compile.
        whole: whether a graph break is an error, and code for one extent of a marked axis.
        dynamic: as for torch.compile.
        marks: by the position of an argument, the axes that are marked dynamic in the first call.
    """

    def __init__(
        self, function: Subject, backend: str, whole: bool, dynamic: bool | None = None,
        marks: Mapping[int, Sequence[int]] = types.MappingProxyType({}),
    ) -> None:  # fmt: skip
        # Here, because the import takes more than a second, and imports Triton, which a process that interprets kernels
        # must not import before it has switched the interpreter on.
        from torch._dynamo.backends.registry import lookup_backend

        self.graphs = self.breaks = 0
        self._marks = marks
        self._mark_dynamic = torch._dynamo.mark_dynamic if whole else torch._dynamo.maybe_mark_dynamic
        compile_graph: Callable[..., Any] = lookup_backend(backend)

        def counting(module: Any, operands: Any) -> Any:
            self.graphs += 1
            return compile_graph(module, operands)

        # Dynamo compiles a function anew for a limited number of shapes and then no more. Compilations for earlier
        # samples and other questions must not count towards that limit.
        torch._dynamo.reset()
        compile_: Callable[..., Subject] = torch.compile
        self._call = compile_(function, fullgraph=whole, backend=counting, dynamic=dynamic)

    def __call__(self, *args: Any) -> Any:
        arguments = args if self.graphs else [self._mark(i, a) for i, a in enumerate(args)]
        before = _count_breaks()
        try:
            with process.without_measuring_guards():
                return self._call(*arguments)
        finally:
            self.breaks += _count_breaks() - before

    def _mark(self, position: int, value: Any) -> Any:
        """An argument whose marked axes are dynamic: the code should not be compiled for one extent of them."""
        if position not in self._marks:
            return value
        # A mark is an attribute of the tensor. A sample's own tensor must not have it in later questions.
        tensor = value if value.requires_grad else value.detach()
        self._mark_dynamic(tensor, list(self._marks[position]))
        return tensor


def _count_breaks() -> int:
    from torch._dynamo.utils import counters

    return sum(counters["graph_break"].values())


#: The dtype in which short profiles judge derivatives at other sizes.
TRACED = "float32"
#: The mark of an axis whose size the compiler may leave open.
_ANY = torch.export.Dim.AUTO


def check_compilation(judge: Judge, sample: Sample) -> None:
    """COMP: see the module."""
    sizes = change_sizes(judge, sample)
    _values(judge, sample, [size for size in sizes if size.constants])
    _derivatives(judge, sample, [size for size in sizes if size.constants])
    if not judge.light:
        _for_any_number(judge, sample, sizes)
    if judge.op.promises.one_graph:
        _judge_export(judge, sample, [size for size in sizes if size.constants])


def _compile(judge: Judge, light: str, **how: Any) -> Compiled:
    """The subject, compiled by inductor, or in short profiles by the backend `light`."""
    return Compiled(judge.subject, light if judge.light else "inductor", judge.op.promises.one_graph, **how)


def _values(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """Judge values at the sample, at other sizes, with other values of arguments that are no tensors, and once more."""
    function = _compile(judge, "eager", marks=_marks(sample, grown))
    judge.hold(sample, (), function=function, exactly=False)
    breaks = f"{function.breaks} graph break{'s' * (function.breaks > 1)}"
    if function.breaks and breaks not in judge.tally.notes:
        judge.tally.note(breaks)
    _at_other_sizes(judge, sample, function, grown, backward=False)
    changes = change_values(judge, sample, apart=not judge.light)
    for change, args in changes:
        what = f"compiled once, then called with {change}"
        require_equal_calls(judge, sample.with_args(args), function, what, backward=not judge.light)
    if changes:
        require_equal_calls(judge, sample, function, "compiled, and called again after other values", backward=False)


def _derivatives(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """Judge first derivatives at the sample, and at other sizes."""
    if not judge.op.differentiable_positions(sample.args):
        return
    if judge.light:
        single = [size for size in grown if len(size.extents) == 1]
        traced = bool(single) and judge.contract.stores.name == TRACED
        grown = [single[sample.seed % len(single)]] if traced else []
    function = _compile(judge, "aot_eager", marks=_marks(sample, grown))
    path = reverse_path(judge, sample)
    values, gradients = call_and_differentiate(judge, path, function, "compiled")
    judge.against(path.along((), ()).expected("compiled"), values, exactly=False)
    judge.against(path.expected("compiled, vjp"), gradients, exactly=False)
    _at_other_sizes(judge, sample, function, grown, backward=True)


def _at_other_sizes(judge: Judge, sample: Sample, function: Compiled, grown: Sequence[Size], *, backward: bool) -> None:
    """Judge one compiled function at several sizes, for none of which it may be compiled anew."""
    for size in grown:
        before = function.graphs
        what = f"compiled for any size, then {size.description}"
        require_equal_calls(judge, sample.with_args(size.args), function, what, backward=backward)
        if function.graphs != before and judge.subject_name == OWN and judge.op.promises.one_graph:
            wrong = f"compiled for any size, and compiled anew for {size.description}"
            raise judge.violation(Code.ATTRIBUTE, wrong, where="torch.compile")


def _marks(sample: Sample, grown: Sequence[Size]) -> dict[int, list[int]]:
    """The axes that are longer in some of the sizes, by the position of their tensor."""
    return marks_of(sample, frozenset().union(*(size.extents for size in grown)))


def _for_any_number(judge: Judge, sample: Sample, sizes: Sequence[Size]) -> None:
    """Judge a function that is compiled once for all sizes and numbers; it may be compiled anew for some of them."""
    function = _compile(judge, "aot_eager", dynamic=True)
    require_equal_calls(judge, sample, function, "compiled with dynamic=True")
    for size in sizes:
        what = f"compiled with dynamic=True, then {size.description}"
        require_equal_calls(judge, sample.with_args(size.args), function, what)


def _judge_export(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """Judge torch.export of the op as a module of its tensors, for any size: saved, loaded, and called."""
    # A program is exported as a function of the tensors; all other arguments are constants in it.
    positions = [i for i, a in enumerate(sample.args) if isinstance(a, Tensor)]
    fixed = [None if i in positions else a for i, a in enumerate(sample.args)]
    subject = judge.subject

    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            arguments = list(fixed)
            for i, tensor in zip(positions, tensors, strict=True):
                arguments[i] = tensor
            return flat_outputs(subject(*arguments))

    tensors = tuple(sample.args[i] for i in positions)
    marks = _marks(sample, grown)
    shapes = tuple(dict.fromkeys(marks.get(i, ()), _ANY) for i in positions)
    program = judge.call(lambda: torch.export.export(Module(), tensors, dynamic_shapes=(shapes,)), what="torch.export")
    run = judge.call(lambda: _save_and_load(program), what="torch.export.save and load")

    def function(*args: Any) -> Any:
        return run(*(args[i] for i in positions))

    require_equal_calls(judge, sample, function, "exported and reloaded")
    for size in grown:
        require_equal_calls(
            judge, sample.with_args(size.args), function, f"exported and reloaded, then {size.description}"
        )


def _save_and_load(program: torch.export.ExportedProgram) -> torch.nn.Module:
    buffer = io.BytesIO()
    torch.export.save(program, buffer)
    buffer.seek(0)
    return torch.export.load(buffer).module()
