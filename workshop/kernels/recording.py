"""What the production ops launch at a shape class, taken down without a GPU and without memory.

The public function is called on meta tensors, its gradient is taken, and its tangent. So the shapes are those of
practice, and a call passes through all host code: what is taken down is what ships.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.autograd import forward_ad

from opassay import impl
from opassay.impl.gpu import launching
from opassay.impl.operator.operator import Operator

from .classes import ShapeClass
from .recorder import Launch, Recorder
from .source import Source, gradients, outputs_of

#: Torch drops what a library registered when it is collected.
_READ_BACK = torch.library.Library("aten", "IMPL")


@dataclass(frozen=True)
class Pass:
    """One direction of a call: "forward", "backward" or "jvp".

    Attributes:
        first: the number of the first launch among all that were taken down.
        launches: in order; none where no kernel serves the op.
        workspace: bytes that one launch writes for another to read.
    """

    direction: str
    first: int
    launches: tuple[Launch, ...]
    workspace: int


def passes(kind: ShapeClass, source: Source, recorder: Recorder, shape: tuple[int, ...]) -> tuple[Pass, ...]:
    """Calls the op and takes its derivatives on a launcher that takes down: forward, backward and, where the class has
    bytes for it, jvp.

    Args:
        kind: the shape class. source: of its arguments. recorder: in use as launcher. shape: of the first operand.
    """
    arguments = kind.arguments(source, shape)
    start = len(recorder.launches)
    outputs = outputs_of(getattr(impl, kind.op)(*arguments, **kind.keywords))
    middle = len(recorder.launches)
    gradients(outputs, arguments)
    end = len(recorder.launches)
    directions = [_pass("forward", recorder, start, middle), _pass("backward", recorder, middle, end)]
    if kind.must(shape, source.dtype.itemsize).jvp:
        with forward_ad.dual_level():
            duals = [_dual(value, source) for value in arguments]
            getattr(impl, kind.op)(*duals, **kind.keywords)
        # The values come first, by the launches of a pass forward.
        directions.append(_pass("jvp", recorder, end + middle - start, len(recorder.launches)))
    return tuple(directions)


def _pass(direction: str, recorder: Recorder, first: int, end: int) -> Pass:
    """What was launched from number `first` on, up to `end`."""
    return Pass(direction, first, tuple(recorder.launches[first:end]), recorder.workspace(first, end))


def _dual(value: object, source: Source) -> object:
    """An argument, with a tangent where it asks for a gradient."""
    if not isinstance(value, Tensor) or not value.requires_grad:
        return value
    tangent = torch.randn(value.shape, dtype=value.dtype, device=value.device, generator=source.generator)
    return forward_ad.make_dual(value.detach(), torch.empty_like(value).copy_(tangent))


def record_launches(kind: ShapeClass, dtype: torch.dtype) -> tuple[Pass, ...]:
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
