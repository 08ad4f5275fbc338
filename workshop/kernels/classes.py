"""Shape classes: at which shapes the kernels of an op are compiled, booked and timed, and what must move there.

The bytes that must move are those of every operand that a pass reads or writes, once: no kernel can do with fewer. What
a kernel writes for another to read (the partial sums of parameter gradients) is not among them; it is judged apart.

This module does not import torch, so that the command line knows the names of ops and families at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from opassay.properties.catalog import CATALOG

if TYPE_CHECKING:
    from .source import Source

Shape = tuple[int, ...]


class Bytes(NamedTuple):
    """Bytes that must move in each direction.

    Attributes:
        forward: of a pass forward. backward: of a pass backward, all gradients included.
        jvp: of the tangent, of which all that carry a gradient have one; 0 where an op has no kernel for it. The pass
            forward, which comes with it, is not among them.
    """

    forward: int
    backward: int
    jvp: int = 0


Arguments = tuple[Any, ...]


class Limits(NamedTuple):
    """How many times the bytes that must move may be booked, in each direction."""

    forward: float
    backward: float
    jvp: float


#: For what is next to the data: parameters that every program reads, ends of rows.
_MORE = 1.05
#: Everything moves once.
ONCE = Limits(_MORE, _MORE, _MORE)
#: A row that is too long for the chip is read twice: forward of two streams one moves twice, backward of three two do,
#: and so do two of a tangent, input and tangent.
TWICE = Limits(3 / 2 * _MORE, 5 / 3 * _MORE, 5 / 3 * _MORE)
#: It is too long for the two operands of backward and of a tangent, and for the one of forward it is not.
TWICE_OF_TWO = Limits(ONCE.forward, TWICE.backward, TWICE.jvp)

#: How large what kernels tell each other may be, as part of the bytes that must move.
WORKSPACE = 0.05


@dataclass(frozen=True)
class ShapeClass:
    """One line of the table.

    Attributes:
        op: a public function of `impl`. label: what the class is called.
        shape: of the first operand, as the op is met in practice. few: one of the same kind that is interpreted soon.
        arguments: (source, shape) -> the op's arguments by position.
        must: (shape, bytes of an element) -> what must move.
        keywords: arguments by name.
        limits: how many times `must` the bytes booked may be.
        dense: whether every row begins at a multiple of 16 bytes and is long, so that all accesses can be of 16 bytes.
        workspace: how large what kernels tell each other may be, as part of the bytes that must move.
        why: the reason where `limits` are not `ONCE` or the class is not dense.
    """

    op: str
    label: str
    shape: Shape
    few: Shape
    arguments: Callable[[Source, Shape], Arguments]
    must: Callable[[Shape, int], Bytes]
    keywords: dict[str, Any] = field(default_factory=dict)
    limits: Limits = ONCE
    dense: bool = True
    workspace: float = WORKSPACE
    why: str = ""

    @property
    def name(self) -> str:
        """The name in tables and messages."""
        return f"{self.op} {self.label}"


_TWICE = "a row that does not fit on the chip is read twice"
_UNEVEN = "rows do not begin at multiples of 16 bytes"
_SHORT = "rows too short for 16 bytes a thread"


# -------------------------------------------------------------------------------------------------- softmax


def _along(dim: int) -> Callable[[Source, Shape], Arguments]:
    return lambda source, shape: (source.data(shape), dim)


def _streams(shape: Shape, size: int) -> Bytes:
    """One operand in and one out; backward two in and one out."""
    moved = math.prod(shape) * size
    return Bytes(2 * moved, 3 * moved)


def _softmax_bytes(shape: Shape, size: int) -> Bytes:
    """A tangent takes the input and its tangent, and gives one."""
    forward, backward, _ = _streams(shape, size)
    return Bytes(forward, backward, backward)


def _softmax(op: str) -> list[ShapeClass]:
    last, first, must = _along(-1), _along(1), _softmax_bytes
    return [
        ShapeClass(op, "rows of 17", (1 << 20, 17), (512, 17), last, must, dense=False, why=_SHORT),
        ShapeClass(op, "rows of 768", (65536, 768), (32, 768), last, must),
        ShapeClass(op, "rows of 4096", (32768, 4096), (8, 4096), last, must),
        ShapeClass(op, "rows of 8192", (16384, 8192), (4, 8192), last, must),
        ShapeClass(op, "rows of 32768", (8192, 32768), (2, 32768), last, must, limits=TWICE_OF_TWO, why=_TWICE),
        ShapeClass(op, "rows of 131072", (2048, 131072), (1, 131072), last, must, limits=TWICE, why=_TWICE),
        ShapeClass(op, "inner dims", (64, 21, 256, 256), (1, 21, 16, 16), first, must),
        ShapeClass(
            op, "inner dims, long", (16, 8192, 256), (1, 8192, 16), first, must, limits=TWICE, why=_TWICE
        ),
    ]  # fmt: skip


# ---------------------------------------------------------------------------------------------------- norms


def _layer_norm_arguments(source: Source, shape: Shape) -> Arguments:
    row = (shape[-1],)
    return source.data(shape), row, source.data(row), source.data(row)


def _layer_norm_bytes(shape: Shape, size: int) -> Bytes:
    """Mean and 1/σ of a row take 8 bytes (16 in double precision), written forward and read backward.

    The tangent reads the weight and the tangents of weight and bias, and computes the statistics again.
    """
    length = shape[-1]
    moved, rows = math.prod(shape) * size, math.prod(shape) // length
    statistics, tangent = 2 * max(size, 4) * rows, 3 * moved + 3 * length * size
    return Bytes(2 * moved + 2 * length * size + statistics, tangent + statistics, tangent)


def _rms_norm_arguments(source: Source, shape: Shape) -> Arguments:
    row = (shape[-1],)
    return source.data(shape), row, source.data(row)


def _rms_norm_bytes(shape: Shape, size: int) -> Bytes:
    """As of layer norm, without a mean and without a bias."""
    length = shape[-1]
    moved, statistic = math.prod(shape) * size, max(size, 4) * math.prod(shape) // length
    return Bytes(2 * moved + length * size + statistic, 3 * moved + 2 * length * size + statistic)


def _fused_add_arguments(source: Source, shape: Shape) -> Arguments:
    return source.data(shape), *_rms_norm_arguments(source, shape)


def _fused_add_bytes(shape: Shape, size: int) -> Bytes:
    """The residual is read, the sum written, and its cotangent read besides."""
    moved, (forward, backward, _) = math.prod(shape) * size, _rms_norm_bytes(shape, size)
    return Bytes(forward + 2 * moved, backward + moved)


def _row_norm(op: str, arguments: Callable[[Source, Shape], Arguments], must: Any) -> list[ShapeClass]:
    def of(length: int, rows: int, few: int, **more: Any) -> ShapeClass:
        return ShapeClass(op, f"rows of {length}", (rows, length), (few, length), arguments, must, **more)

    return [
        of(17, 1 << 20, 512, dense=False, why=_SHORT),
        of(768, 65536, 32),
        of(1024, 32768, 16),
        of(4096, 32768, 8),
        of(8192, 16384, 8),
        of(16384, 8192, 4, limits=TWICE_OF_TWO, why=_TWICE),
        of(32768, 4096, 4, limits=TWICE, why=_TWICE),
        of(65536, 2048, 4, limits=TWICE, why=_TWICE),
    ]


def _group_norm_arguments(channels_last: bool) -> Callable[[Source, Shape], Arguments]:
    def arguments(source: Source, shape: Shape) -> Arguments:
        channels = (shape[1],)
        x = source.data(shape, channels_last=channels_last)
        return x, 32, source.data(channels), source.data(channels)

    return arguments


def _group_norm_bytes(shape: Shape, size: int) -> Bytes:
    samples, channels = shape[:2]
    moved = math.prod(shape) * size
    statistics, tangent = 2 * max(size, 4) * samples * 32, 3 * moved + 3 * channels * size
    return Bytes(2 * moved + 2 * channels * size + statistics, tangent + statistics, tangent)


def _group_norm() -> list[ShapeClass]:
    contiguous, last = _group_norm_arguments(False), _group_norm_arguments(True)

    def of(label: str, shape: Shape, few: Shape, arguments: Any, **more: Any) -> ShapeClass:
        return ShapeClass("group_norm", label, shape, few, arguments, _group_norm_bytes, **more)

    return [
        of("32 groups of 8x32x32", (64, 256, 32, 32), (1, 256, 32, 32), contiguous),
        of("32 groups of 10x64x64", (32, 320, 64, 64), (1, 320, 64, 64), contiguous, limits=TWICE, why=_TWICE),
        of("32 groups of 4x128x128", (16, 128, 128, 128), (1, 128, 128, 128), contiguous, limits=TWICE, why=_TWICE),
        of("channels last", (32, 320, 64, 64), (1, 320, 32, 32), last, limits=TWICE, why=_TWICE),
    ]  # fmt: skip


def _batch_norm_arguments(channels_last: bool, training: bool) -> Callable[[Source, Shape], Arguments]:
    def arguments(source: Source, shape: Shape) -> Arguments:
        channels = (shape[1],)
        x = source.data(shape, channels_last=channels_last)
        running = source.plain(*channels), source.plain(*channels)
        return x, *running, source.data(channels), source.data(channels), training

    return arguments


def _batch_norm_bytes(training: bool) -> Callable[[Shape, int], Bytes]:
    """In training the input is read for the statistics and again for the result; a channel is never on one chip.

    So is its tangent, for the tangents of the statistics, which are results too.
    """

    def must(shape: Shape, size: int) -> Bytes:
        channels = shape[1]
        moved = math.prod(shape) * size
        each, statistic = channels * size, channels * max(size, 4)
        if training:
            backward = 5 * moved + 3 * each + 2 * statistic
            return Bytes(3 * moved + 2 * each + 4 * statistic, backward, backward)
        backward = 3 * moved + 3 * each + 2 * statistic
        return Bytes(2 * moved + 2 * each + 2 * statistic, backward, backward)

    return must


def _batch_norm() -> list[ShapeClass]:
    shape, few = (64, 256, 56, 56), (4, 2, 96, 96)

    def of(label: str, last: bool, training: bool, shape: Shape = shape, few: Shape = few, **more: Any) -> ShapeClass:
        arguments = _batch_norm_arguments(last, training)
        return ShapeClass("batch_norm", label, shape, few, arguments, _batch_norm_bytes(training), **more)

    return [
        of("training", False, True),
        of("training, 7x7", False, True, (256, 512, 7, 7), (16, 16, 7, 7), dense=False, why=_SHORT),
        of("training, channels last", True, True),
        of("evaluation", False, False),
        of("evaluation, channels last", True, False),
        of("training, rows of features", False, True, (65536, 1024), (256, 64)),
    ]


# --------------------------------------------------------------------------------------------------- losses


def _loss_arguments(source: Source, shape: Shape) -> Arguments:
    return source.data(shape), source.classes((shape[0], *shape[2:]), shape[1])


def _nll_loss_bytes(shape: Shape, size: int) -> Bytes:
    """Forward one element of each row and its class; backward a whole gradient, zero but for those elements."""
    rows = math.prod(shape) // shape[1]
    return Bytes(rows * (8 + size), math.prod(shape) * size + 8 * rows)


def _cross_entropy_bytes(shape: Shape, size: int) -> Bytes:
    """The input is read once in each pass, and the classes; backward writes the gradient."""
    rows, moved = math.prod(shape) // shape[1], math.prod(shape) * size
    return Bytes(moved + 8 * rows, 2 * moved + 8 * rows)


def _losses() -> list[ShapeClass]:
    gathers = "forward gathers one element of each row"
    # The loss of a row is written for the kernel that adds up, which reads it and the row's class again: 8 bytes of
    # what a row of 21 float32 logits and a class of 8 bytes must move, and as much of workspace.
    images, again = (16, 21, 512, 512), 8 / (21 * 4 + 8)

    def of(op: str, label: str, shape: Shape, few: Shape, must: Any, **more: Any) -> ShapeClass:
        return ShapeClass(op, label, shape, few, _loss_arguments, must, **more)

    nll, entropy = _nll_loss_bytes, _cross_entropy_bytes
    return [
        of("nll_loss", "1000 classes", (65536, 1000), (256, 1000), nll, dense=False, why=gathers),
        of("nll_loss", "32768 classes", (8192, 32768), (64, 32768), nll, dense=False, why=gathers),
        of("nll_loss", "images", images, (1, 21, 32, 32), nll, dense=False, why=gathers),
        of("cross_entropy", "1000 classes", (65536, 1000), (64, 1000), entropy, dense=False, why=_UNEVEN),
        of("cross_entropy", "8192 classes", (16384, 8192), (8, 8192), entropy),
        of("cross_entropy", "131072 classes", (2048, 131072), (1, 131072), entropy, limits=TWICE, why=_TWICE),
        of("cross_entropy", "images", images, (1, 21, 32, 32), entropy, limits=Limits(_MORE + again, _MORE, _MORE),
           workspace=WORKSPACE + again, why="the loss and the class of each row are read again"),
    ]  # fmt: skip


# -------------------------------------------------------------------------------------------- single classes


def _alone(source: Source, shape: Shape) -> Arguments:
    return (source.data(shape),)


def _trace_bytes(shape: Shape, size: int) -> Bytes:
    """Backward fills a whole gradient."""
    return Bytes((min(shape) + 1) * size, (math.prod(shape) + 1) * size)


def _response_norm_arguments(source: Source, shape: Shape) -> Arguments:
    return source.data(shape), 5


def _others() -> list[ShapeClass]:
    strided = "the diagonal is one element of each row"
    response = _response_norm_arguments, _streams
    return [
        ShapeClass("log_sigmoid", "2^26 elements", (1 << 26,), (1 << 15,), _alone, _streams),
        ShapeClass("log_sigmoid", "images", (64, 3, 224, 224), (1, 3, 64, 64), _alone, _streams),
        ShapeClass("trace", "8192x8192", (8192, 8192), (256, 256), _alone, _trace_bytes, dense=False, why=strided),
        ShapeClass("cross_map_lrn2d", "96 channels, 55x55", (64, 96, 55, 55), (1, 96, 8, 8), *response,
                   dense=False, why=_UNEVEN),
        ShapeClass("cross_map_lrn2d", "64 channels, 56x56", (64, 64, 56, 56), (1, 64, 8, 8), *response),
    ]  # fmt: skip


#: All shape classes, in the order of tables.
CLASSES: tuple[ShapeClass, ...] = (
    *_softmax("softmax"),
    *_softmax("log_softmax"),
    *_row_norm("layer_norm", _layer_norm_arguments, _layer_norm_bytes),
    *_row_norm("rms_norm", _rms_norm_arguments, _rms_norm_bytes),
    *_row_norm("fused_add_rms_norm", _fused_add_arguments, _fused_add_bytes),
    *_group_norm(),
    *_batch_norm(),
    *_losses(),
    *_others(),
)


#: Family -> its ops, in the same order. A family is the module of the catalog, or the package there, of its ops.
FAMILIES: dict[str, list[str]] = {}
for _op in dict.fromkeys(kind.op for kind in CLASSES):
    FAMILIES.setdefault(CATALOG[_op].partition(".")[0], []).append(_op)
ARCHITECTURES = ("sm_80", "sm_90", "sm_100")
DTYPES = ("float32", "bfloat16", "float16", "float64")
"""The first three are what a run of all asks for. float64 is bound by arithmetic on GPUs that have few units for it."""


def first_of_each(kinds: Sequence[ShapeClass]) -> tuple[ShapeClass, ...]:
    """Of every op the first dense class, or the first one where none is dense."""
    first: dict[str, ShapeClass] = {}
    for kind in kinds:
        if kind.op not in first or (kind.dense and not first[kind.op].dense):
            first[kind.op] = kind
    return tuple(first.values())


def select_classes(families: Sequence[str] = (), ops: Sequence[str] = ()) -> tuple[ShapeClass, ...]:
    """The classes of these families and ops; all of them where nothing is named."""
    names = {*ops, *(op for family in families for op in FAMILIES[family])}
    return tuple(kind for kind in CLASSES if not names or kind.op in names)
