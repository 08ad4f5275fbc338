"""A program that calls a subject on a sample that ended the process."""

from __future__ import annotations

from ..op.declaration import Op, Sample
from ..op.paths import Problem
from ..op.script import NoProgram, Script
from ..verdicts.verdict import Cell
from .along import calling, operand_names, operands_of
from .writing import program


def ending(op: Op, cell: Cell, sample: Sample, case_id: str) -> str:
    """A program that calls a subject, and takes its gradients, at a sample that ended the process; "" for no program.

    Writing the program does not call the subject, because the call would end this process, too.

    Args:
        op, cell: the op, and the cell whose process ended. sample: what the process was judging when it ended.
        case_id: the name of the case file.
    """
    if op.is_compiled(cell.subject):
        return ""
    problem = Problem(op, sample.args)
    names = operand_names(problem)
    passive, inputs = (", ".join(names[i] for i in positions) for positions in (problem.fixed, problem.wrt))
    script = calling(problem)
    lines = [f"f({', '.join(names.values())})"]
    if inputs:
        function = f"lambda *x: f({passive}, *x)" if passive else "f"
        lines += [
            f"outputs, vjp = torch.func.vjp({function}, {inputs})",
            "vjp(tuple(torch.ones_like(y) for y in outputs))",
        ]
    whole = Script({**operands_of(problem), **script.values}, script.lines, script.imports)
    try:
        return program(op, cell, whole.then(*lines, 'print("the process was not ended")'), "the process ended", case_id)
    except NoProgram:
        return ""
