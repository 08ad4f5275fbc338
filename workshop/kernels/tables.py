"""The two tables about kernels: their machine code, and the bytes they move. A row each is one dict of plain values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass

import torch

from opassay.impl.gpu import launching
from opassay.properties.catalog.loading import load_op

from . import compiler, kernel_limits
from .classes import ONCE, ShapeClass
from .recorder import Launch
from .recording import Pass, record_launches


@dataclass(frozen=True)
class CodeRow:
    """The machine code of one kernel in one configuration.

    Attributes:
        op, label, direction: the first shape class that launches it. kernel: its function. dtypes: of its operands.
        configuration: constants and warps. architecture: as "sm_90".
        registers: of a thread. stack, spills: bytes of a thread. shared: bytes of a block.
        blocks, warps: that are resident on a multiprocessor.
        loads, stores: bytes of an access -> how many there are. narrow: the part of the bytes in narrow ones.
        latency_cover: how far the accesses under way cover the latency of memory.
        dense: whether accesses are held to 16 bytes. faults: why it fails.
    """

    op: str
    label: str
    direction: str
    kernel: str
    dtypes: str
    configuration: str
    architecture: str
    registers: int
    stack: int
    spills: int
    shared: int
    blocks: int
    warps: int
    loads: dict[int, int]
    stores: dict[int, int]
    narrow: float
    latency_cover: float
    dense: bool
    faults: list[str]


@dataclass(frozen=True)
class TrafficRow:
    """The bytes that one direction of a call moves.

    Attributes:
        op, label, direction, dtype: the shape class and what is done there.
        shape: what was interpreted. kernels: what was launched.
        must: bytes that must move. booked: bytes that moved, without what kernels told each other.
        limit: how many times `must` is allowed; `why` it is not `classes.ONCE`.
        workspace: bytes that kernels tell each other at the class's own shape, as part of what must move there.
        faults: why it fails.
    """

    op: str
    label: str
    direction: str
    dtype: str
    shape: list[int]
    kernels: list[str]
    must: int
    booked: int
    limit: float
    why: str
    workspace: float
    faults: list[str]


@dataclass(frozen=True)
class Missing:
    """A direction of a call that no kernel serves.

    Attributes:
        op, label, direction, dtype: the shape class and what is done there.
        faults: the reason, where the op is declared to have kernels.
    """

    op: str
    label: str
    direction: str
    dtype: str
    faults: list[str]


Row = CodeRow | TrafficRow | Missing


def as_dict(row: Row) -> dict[str, object]:
    """A row with the name of its table."""
    names = {CodeRow: "code", TrafficRow: "traffic", Missing: "missing"}
    return {"table": names[type(row)], **asdict(row)}


@dataclass(frozen=True)
class _Compilation:
    """A launch to be compiled, and the first class and direction that ask for it."""

    kind: ShapeClass
    direction: str
    launch: Launch


def code_rows(
    kinds: Iterable[ShapeClass], dtypes: Iterable[str], architectures: Iterable[str], *, once: bool = False
) -> Iterator[Row]:
    """Compiles every distinct launch of some classes and judges it.

    Args:
        kinds: shape classes. dtypes: of the operands. architectures: names in `compiler.ARCHITECTURES`.
        once: every kernel in the first of its configurations alone, which takes seconds and not minutes.
    """
    compilations: dict[tuple[object, ...], _Compilation] = {}
    for kind in kinds:
        for dtype in dtypes:
            for pass_ in record_launches(kind, getattr(torch, dtype)):
                if not pass_.launches:
                    yield _missing(kind, pass_, dtype)
                for launch in pass_.launches:
                    key = (launch.name, launch.kernel.__module__) if once else (launch.key(), _streams(kind, launch))
                    compilations.setdefault(key, _Compilation(kind, pass_.direction, launch))
    for name in architectures:
        for compilation in compilations.values():
            yield _code_row(compilation, compiler.ARCHITECTURES[name], name)


def _code_row(compilation: _Compilation, on: compiler.Architecture, name: str) -> CodeRow:
    kind, launch = compilation.kind, compilation.launch
    code = compiler.machine_code(launch, on)
    streams = _streams(kind, launch)
    blocks = code.resident(on)
    return CodeRow(
        kind.op, kind.label, compilation.direction, launch.name, launch.dtypes(), launch.configuration(), name,
        code.registers, code.stack, code.spills, code.shared, blocks, blocks * code.warps, code.loads, code.stores,
        code.narrow, code.latency_cover(on), streams > 0, kernel_limits.faults(launch, code, on, streams=streams),
    )  # fmt: skip


def _streams(kind: ShapeClass, launch: Launch) -> int:
    """How many operands of data a launch moves at a dense class. One that only adds up partial sums moves none."""
    half = torch.Size(kind.shape).numel() / 2
    return kind.dense * sum(pointer.elements > half for pointer in launch.pointers)


def _missing(kind: ShapeClass, pass_: Pass, dtype: str) -> Missing:
    reasons = [
        f"{op}: {reason}" for (op, reason) in launching.fallbacks if op == kind.op or op.startswith(kind.op + "_")
    ]
    faults = ["; ".join(reasons) or "no kernel is launched"] if load_op(kind.op).production.kernels else []
    return Missing(kind.op, kind.label, pass_.direction, dtype, faults)


# -------------------------------------------------------------------------------------------------- traffic

#: What runs a class in an interpreter: the launches of each direction, and the bytes that these moved.
Booked = Callable[[ShapeClass, torch.dtype], tuple[tuple[Pass, int], ...]]


def traffic_rows(kinds: Iterable[ShapeClass], dtypes: Iterable[str], booked: Booked) -> Iterator[Row]:
    """The bytes that each class moves against those that it must.

    Args:
        kinds: shape classes. dtypes: of the operands. booked: the interpreter.
    """
    for kind in kinds:
        for dtype in dtypes:
            exact = getattr(torch, dtype)
            at_scale = record_launches(kind, exact)
            if not any(pass_.launches for pass_ in at_scale):
                yield from (_missing(kind, pass_, dtype) for pass_ in at_scale)
                continue
            for (pass_, moved), large in zip(booked(kind, exact), at_scale, strict=True):
                yield traffic_row(kind, dtype, pass_, moved, large) if pass_.launches else _missing(kind, pass_, dtype)


def traffic_row(kind: ShapeClass, dtype: str, pass_: Pass, moved: int, large: Pass) -> TrafficRow:
    """One row.

    Args:
        kind, dtype: what was run. pass_, moved: its launches at few rows, and the bytes booked.
        large: its launches at the class's own shape.
    """
    size = getattr(torch, dtype).itemsize
    must, at_scale = (getattr(kind.must(shape, size), pass_.direction) for shape in (kind.few, kind.shape))
    # Written by one kernel and read by another: twice, and more where each program reads all of it.
    own = moved - 2 * pass_.workspace
    share = 2 * large.workspace / at_scale
    faults = []
    limit: float = getattr(kind.limits, pass_.direction)
    if own > limit * must:
        faults.append(f"{own / must:.3f} times the bytes that must move; need {limit:.4g} at most")
    if share > kind.workspace:
        faults.append(
            f"kernels tell each other {share:.1%} of the bytes that must move; need {kind.workspace:.0%} at most"
        )
    kernels = [launch.name for launch in pass_.launches]
    why = kind.why if limit > min(ONCE) else ""
    return TrafficRow(
        kind.op, kind.label, pass_.direction, dtype, list(kind.few), kernels, must, own, limit, why, share, faults
    )
