"""SIZE: values and reverse mode where one dim is at, or next to, a size at which kernels take other code."""

from __future__ import annotations

import functools

from ...oracles.judge.judge import Judge
from ...oracles.op.bits import same_bits
from ...oracles.op.declaration import Sample, Tensor
from ...oracles.programs.along import defer_script
from ...oracles.programs.particular import around_views
from ...oracles.verdicts.verdict import Code
from .layout import surround

#: Operands begin 0 to 15 elements behind an address that every vector load takes; neighbours differ by `STEP`.
OFFSETS, STEP = 16, 5


def check_sizes(judge: Judge, sample: Sample) -> None:
    """SIZE: operands at any alignment, with canaries around them; nothing around them read or written."""
    buffers: list[tuple[Tensor, Tensor]] = []

    def lay(t: Tensor) -> Tensor:
        # Over `OFFSETS` samples in a row each operand has every offset; the operands of one sample have different ones.
        view, buffer = at_offset(t, (sample.turn + STEP * len(buffers)) % OFFSETS)
        buffers.append((buffer, buffer.clone()))
        return view

    laid = sample.with_args([lay(a) if isinstance(a, Tensor) else a for a in sample.args])
    outputs = judge.hold(laid, (), exactly=False)
    path = judge.path(laid, (), ())
    if judge.op.differentiable_positions(laid.args) and laid.args:
        path = judge.path(laid, ("vjp",), outputs, "eager")
        path = path.along(("vjp",), [lay(g) for g in path.directions])
        judge.against(path.expected(make_script=defer_script(path)), judge.run(path), exactly=False)
    for buffer, before in buffers:
        if not same_bits(buffer, before):
            violation = judge.broken(Code.MUTATED, "wrote into or around an input", path="forward + vjp")
            raise violation.showing(functools.partial(around_views, path))


def at_offset(tensor: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """A contiguous tensor of equal values that begins `offset` elements into a buffer of canaries, and the buffer."""
    buffer, view = surround(tensor, tensor.shape, offset, 2 * OFFSETS)
    view.copy_(tensor)
    return view, buffer
