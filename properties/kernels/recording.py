"""What the production ops launch at a shape class, taken down without a GPU and without memory.

The public function is called on meta tensors, and its gradient is taken. So the shapes are those of practice, and a
call passes through all host code: what is taken down is what ships.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor

from ... import impl
from ...impl.gpu import launching
from ...impl.operator.operator import Operator
from ...oracles.machine.recorder import Launch, Recorder
from .classes import ShapeClass, Source

#: Torch drops what a library registered when it is collected.
_READ_BACK = torch.library.Library("aten", "IMPL")


@dataclass(frozen=True)
class Pass:
    """One direction of a call: "forward" or "backward".

    Attributes:
        launches: in order; none where no kernel serves the op.
        workspace: bytes of what the launches tell each other.
    """

    direction: str
    launches: tuple[Launch, ...]
    workspace: int


def passes(kind: ShapeClass, source: Source, recorder: Recorder, shape: tuple[int, ...]) -> tuple[Pass, Pass]:
    """Calls the op and takes its gradient on a launcher that takes down; forward and backward.

    Args:
        kind: the shape class. source: of its arguments. recorder: in use as launcher. shape: of the first operand.
    """
    arguments = kind.arguments(source, shape)
    start = len(recorder.launches)
    out: Tensor = getattr(impl, kind.op)(*arguments, **kind.named)
    middle = len(recorder.launches)
    wanted = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    torch.autograd.grad(out, wanted, torch.ones_like(out))
    forward = Pass("forward", tuple(recorder.launches[start:middle]), recorder.workspace(start, middle))
    return forward, Pass("backward", tuple(recorder.launches[middle:]), recorder.workspace(middle))


def recorded(kind: ShapeClass, dtype: torch.dtype) -> tuple[Pass, Pass]:
    """What a class launches at its own shape."""
    _serve_meta()
    recorder = Recorder()
    with launching.on(recorder):
        return passes(kind, Source(dtype, torch.device("meta")), recorder, kind.shape)


@functools.cache
def _serve_meta() -> None:
    """Have meta tensors go to the CUDA kernels, in this process and for good.

    What host code reads back of a meta tensor is 0: of what kernels report, such as classes out of range, nothing.
    """
    _READ_BACK.impl("_local_scalar_dense", lambda tensor: 0, "Meta", allow_override=True)
    Operator.serve_by_cuda_kernels("Meta")
