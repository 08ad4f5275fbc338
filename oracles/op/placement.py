"""How an op runs in several places: where its tensors belong, over ranks and over devices."""

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
    """What the places promise besides the values of an op.

    Attributes:
        name: in a few words.
        told: () -> of each thing that was tried, what is wrong with it, in words; "" where nothing is.
    """

    name: str
    told: Callable[[], Iterable[str]]


@dataclass(frozen=True)
class Ranks:
    """How an op runs over ranks.

    Attributes:
        run: (number of ranks, program of a rank's comm) -> what every rank returns; runs the ranks.
        call: (comm, *args) -> the outputs of one rank.
        size: (args, rng) -> how many ranks, for these arguments.
        homes: (args) -> the rank of every tensor argument and output. Without it each rank has a part of the first
            argument, along its axis 0, and all of the others; and so with the outputs.
        peers: other subjects' calls by name, which need process groups and offer reverse mode alone.
        promises: () -> what the ranks promise besides, in the world that this process is in.
        may_fail: () -> whether a run may end in an error on all ranks: a group of processes would end with it.
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
        fabric: (number of devices) -> what moves tensors between so many.
        size: (args) -> how many devices. homes: as for `Ranks`.
        call: (fabric, homes, *args) -> the outputs, from arguments and to outputs on the host.
        peers: other subjects' calls by name, which need GPUs and offer reverse mode alone.
        promises: () -> what the devices promise besides, in the world that this process is in.
    """

    fabric: Callable[[int], Any]
    size: Callable[[tuple[Any, ...]], int]
    homes: Callable[[tuple[Any, ...]], Homes]
    call: Callable[..., Any]
    peers: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    promises: Callable[[], Sequence[Promise]] = tuple
