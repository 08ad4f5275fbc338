"""COMP: torch.compile and torch.export, forward and reverse mode, in the accept set of the same path.

Where an op promises one graph, a graph break is a failure.
"""

from __future__ import annotations

from typing import Any

import torch

from ..judgement import Judgement
from ..op import Sample, flat_outputs
from ..transforms import Problem


def compiled(j: Judgement, sample: Sample) -> None:
    """COMP: a light backend ("aot_eager") in short profiles, inductor in the others."""
    backend = "aot_eager" if j.light else "inductor"
    torch._dynamo.reset()
    whole = j.op.promises.one_graph
    function = torch.compile(j.subject, fullgraph=whole, backend=backend)
    j.path(sample, (), function=function, exactly=False)
    j.path(sample, ("vjp",), "eager", function=function, exactly=False)
    if whole:
        exported(j, sample)


def exported(j: Judgement, sample: Sample) -> None:
    """torch.export of the op as a module of its tensors."""
    problem = Problem(j.op, sample.args)
    f = problem.subject(j.subject)

    class Module(torch.nn.Module):
        def forward(self, *operands: Any) -> Any:
            return f(*operands)

    program = j.call(lambda: torch.export.export(Module(), tuple(problem.inputs)).module(), what="export")
    positions = problem.wrt

    def run(*args: Any) -> Any:
        return flat_outputs(program(*(args[i] for i in positions)))

    j.path(sample, (), function=run, exactly=False)
