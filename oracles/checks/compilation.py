"""COMP: torch.compile and torch.export, forward and reverse mode, in the accept set of the same path.

Where an op promises one graph, a graph break is a failure.
"""

from __future__ import annotations

from typing import Any

import torch

from ..judge import Judge
from ..op import Sample, flat_outputs
from ..paths import Problem


def compiled(judge: Judge, sample: Sample) -> None:
    """COMP: a light backend ("aot_eager") in short profiles, inductor in the others."""
    backend = "aot_eager" if judge.light else "inductor"
    # Dynamo compiles a function anew for some shapes only and then gives up on it. Samples differ in their shapes, so
    # what earlier ones compiled must not count towards that limit.
    torch._dynamo.reset()
    whole = judge.op.promises.one_graph
    function = torch.compile(judge.subject, fullgraph=whole, backend=backend)
    judge.hold(sample, (), function=function, exactly=False)
    judge.hold(sample, ("vjp",), "eager", function=function, exactly=False)
    if whole:
        exported(judge, sample)


def exported(judge: Judge, sample: Sample) -> None:
    """torch.export of the op as a module of its tensors."""
    problem = Problem(judge.op, sample.args)
    f = problem.subject(judge.subject)

    class Module(torch.nn.Module):
        def forward(self, *operands: Any) -> Any:
            return f(*operands)

    program = judge.call(lambda: torch.export.export(Module(), tuple(problem.inputs)).module(), what="export")
    # The program was exported as a function of the differentiable inputs; all other arguments are constants in it.
    positions = problem.wrt

    def run(*args: Any) -> Any:
        return flat_outputs(program(*(args[i] for i in positions)))

    judge.hold(sample, (), function=run, exactly=False)
