"""COMP: torch.compile and torch.export, forward and reverse mode, each against the same call without a compiler.

What this is for: a compiler takes what it saw in one call for what holds in all of them. So one compiled function is
called again with other sizes and with other values of what is no tensor; one that is compiled for any size must not be
compiled anew for another one; and an exported program is written, read back, and called at other sizes.

What is hard here: compiling takes as long as thousands of calls. Short profiles ask all of it of one sample. There the
backend for values is the one that runs what was traced ("eager"), because what a call depends on is decided when it is
traced; the backend for derivatives traces them, too, and stops before code is generated ("aot_eager"), and is asked for
one other size in one dtype; and several values change at once.

Where an op promises one graph, a graph break is a failure; of other ops the breaks are counted.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import torch

from ....oracles.judge.judge import Judge
from ....oracles.op.declaration import OWN, Sample, Tensor, flat_outputs
from ....oracles.verdicts.verdict import Code
from ..agreement import called_and_differentiated, require_equal_calls
from .compilers import Compiled
from .variants import Size, marks_of, resized, revalued

#: The dtype in which short profiles ask for derivatives at other sizes.
TRACED = "float32"
#: A size of an axis that is left to the compiler.
_ANY = torch.export.Dim.AUTO


def compiled(judge: Judge, sample: Sample) -> None:
    """COMP: see the module."""
    sizes = resized(judge, sample)
    _values(judge, sample, [size for size in sizes if size.constants])
    _derivatives(judge, sample, [size for size in sizes if size.constants])
    if not judge.light:
        _for_any_number(judge, sample, sizes)
    if judge.op.promises.one_graph:
        _exported(judge, sample, [size for size in sizes if size.constants])


def _compiled(judge: Judge, light: str, **how: Any) -> Compiled:
    """The subject as inductor compiles it, or in short profiles as a lighter backend does."""
    return Compiled(judge.subject, light if judge.light else "inductor", judge.op.promises.one_graph, **how)


def _values(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """Values at the sample; then at other sizes, with other values of what is no tensor, and at the sample again."""
    function = _compiled(judge, "eager", marks=_marks(sample, grown))
    judge.hold(sample, (), function=function, exactly=False)
    breaks = f"{function.breaks} graph break{'s' * (function.breaks > 1)}"
    if function.breaks and breaks not in judge.tally.notes:
        judge.tally.note(breaks)
    _at_other_sizes(judge, sample, function, grown, backward=False)
    changes = revalued(judge, sample, apart=not judge.light)
    for said, args in changes:
        what = f"compiled once, then called with {said}"
        require_equal_calls(judge, sample.with_args(args), function, what, backward=not judge.light)
    if changes:
        require_equal_calls(judge, sample, function, "compiled, and called again after other values", backward=False)


def _derivatives(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """First derivatives at the sample, and at other sizes."""
    if not judge.op.differentiable_positions(sample.args):
        return
    if judge.light:
        single = [size for size in grown if len(size.extents) == 1]
        traced = bool(single) and judge.contract.stores.name == TRACED
        grown = [single[sample.seed % len(single)]] if traced else []
    function = _compiled(judge, "aot_eager", marks=_marks(sample, grown))
    with torch.no_grad():
        primal = judge.primal(sample)
    path = judge.path(sample, ("vjp",), primal, "eager")
    values, gradients = called_and_differentiated(judge, path, function, "compiled")
    judge.against(path.along((), ()).expected("compiled"), values, exactly=False)
    judge.against(path.expected("compiled, vjp"), gradients, exactly=False)
    _at_other_sizes(judge, sample, function, grown, backward=True)


def _at_other_sizes(judge: Judge, sample: Sample, function: Compiled, grown: Sequence[Size], *, backward: bool) -> None:
    """One compiled function at several sizes, of which none may be compiled anew.

    Args:
        judge, sample: of the subject; where it was compiled. function: the subject as it was compiled.
        grown: the sizes. backward: whether derivatives are asked for, too.
    """
    for size in grown:
        before = function.graphs
        what = f"compiled for any size, then {size.said}"
        require_equal_calls(judge, sample.with_args(size.args), function, what, backward=backward)
        if function.graphs != before and judge.subject_name == OWN and judge.op.promises.one_graph:
            wrong = f"compiled for any size, and compiled anew for {size.said}"
            raise judge.broken(Code.ATTRIBUTE, wrong, where="torch.compile")


def _marks(sample: Sample, grown: Sequence[Size]) -> dict[int, list[int]]:
    """The axes that grow in some of the sizes."""
    return marks_of(sample, frozenset().union(*(size.extents for size in grown)))


def _for_any_number(judge: Judge, sample: Sample, sizes: Sequence[Size]) -> None:
    """Compiled once for any size of any axis and any number, which may take code of its own for some of them."""
    function = _compiled(judge, "aot_eager", dynamic=True)
    require_equal_calls(judge, sample, function, "compiled with dynamic=True")
    for size in sizes:
        what = f"compiled with dynamic=True, then {size.said}"
        require_equal_calls(judge, sample.with_args(size.args), function, what)


def _exported(judge: Judge, sample: Sample, grown: Sequence[Size]) -> None:
    """torch.export of the op as a module of its tensors, for any size; written, read back, and called."""
    # A program is exported as a function of the tensors; all other arguments are constants in it.
    positions = [i for i, a in enumerate(sample.args) if isinstance(a, Tensor)]
    fixed = [None if i in positions else a for i, a in enumerate(sample.args)]
    subject = judge.subject

    class Module(torch.nn.Module):
        def forward(self, *tensors: Tensor) -> Any:
            given = list(fixed)
            for i, tensor in zip(positions, tensors, strict=True):
                given[i] = tensor
            return flat_outputs(subject(*given))

    tensors = tuple(sample.args[i] for i in positions)
    marks = _marks(sample, grown)
    shapes = tuple(dict.fromkeys(marks.get(i, ()), _ANY) for i in positions)
    program = judge.call(lambda: torch.export.export(Module(), tensors, dynamic_shapes=(shapes,)), what="torch.export")
    run = judge.call(lambda: _reloaded(program), what="torch.export.save and load")

    def function(*args: Any) -> Any:
        return run(*(args[i] for i in positions))

    require_equal_calls(judge, sample, function, "exported and reloaded")
    for size in grown:
        require_equal_calls(judge, sample.with_args(size.args), function, f"exported and reloaded, then {size.said}")


def _reloaded(program: torch.export.ExportedProgram) -> torch.nn.Module:
    written = io.BytesIO()
    torch.export.save(program, written)
    written.seek(0)
    return torch.export.load(written).module()
