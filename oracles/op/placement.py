"""What belongs to the production op: its kernels, and how it runs in several places, over ranks and over devices."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Homes:
    """Where the tensors of an op over several places belong: a place for every tensor argument and every output.

    Places are counted from 0; of devices, −1 is the host.
    """

    arguments: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(frozen=True)
class Promise:
    """A promise that the ranks or devices make besides the values of an op.

    Attributes:
        name: in a few words.
        find_faults: () -> for each trial the fault in words, or "" where it found none.
    """

    name: str
    find_faults: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Ranks:
    """How an op runs over ranks.

    Attributes:
        run: (number of ranks, program of a rank's comm) -> what every rank returns; runs the ranks.
        call: (comm, *args) -> the outputs of one rank.
        size: (args, rng) -> how many ranks, for these arguments.
        homes: (args) -> the rank of every tensor argument and output. Without it each rank has a part of the first
            argument, along its axis 0, and all of the other arguments; the same holds for the outputs.
        peers: other subjects' calls by name, which need process groups and offer reverse mode alone.
        promises: () -> the ranks' further promises in the environment of this process.
        may_fail: () -> whether a run may end in an error on all ranks; a group of processes would end with that error.
    """

    run: Callable[[int, Callable[[Any], Any]], list[Any]]
    call: Callable[..., Any]
    size: Callable[[tuple[Any, ...], Any], int]
    homes: Callable[[tuple[Any, ...]], Homes] | None = None
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    promises: Callable[[], Sequence[Promise]] = tuple
    may_fail: Callable[[], bool] = lambda: False


@dataclass(frozen=True)
class Devices:
    """How an op runs over several devices of one program.

    Attributes:
        fabric: (number of devices) -> the object that moves tensors between this many devices.
        size: (args) -> how many devices. homes: as for `Ranks`.
        call: (fabric, homes, *args) -> the outputs, from arguments and to outputs on the host.
        peers: other subjects' calls by name, which need GPUs and offer reverse mode alone.
        promises: () -> the devices' further promises in the environment of this process.
    """

    fabric: Callable[[int], Any]
    size: Callable[[tuple[Any, ...]], int]
    homes: Callable[[tuple[Any, ...]], Homes]
    call: Callable[..., Any]
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    promises: Callable[[], Sequence[Promise]] = tuple


@dataclass(frozen=True)
class Production:
    """What the production op has besides its function; an implementation in its place has none of it.

    Attributes:
        kernels: the op that launches the Triton kernels of the production op at the shape classes of practice: itself,
            or one that has the same kernels; empty where it has none. They are judged, interpreted, as subject
            "triton", and, compiled, as subject "ptx".
        example: a call of the production op on one tensor of shape (4, 4, 6), which is made between two calls of
            another op (CALLS); None where it is not called there.
        ranks, devices: how the op runs over several ranks, and over several devices, where it does.
    """

    kernels: str = ""
    example: Callable[[Any], Any] | None = None
    ranks: Ranks | None = None
    devices: Devices | None = None
