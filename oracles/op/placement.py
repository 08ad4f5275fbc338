"""What belongs to the production op: its kernels, and how it runs in several places, over ranks and over devices."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

#: The subject that is the production op: it offers every transform and keeps every promise; others are other people's.
OWN = "opassay"
COMPILED = "compiled"  # what torch.compile makes of the subject "torch"
#: The subjects that are the production op with its Triton kernels on a CPU: interpreted, and executed as PTX.
INTERPRETED, EXECUTED = "triton", "ptx"
KERNELS = frozenset({INTERPRETED, EXECUTED})


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
class KernelRequest:
    """What is asked of somebody's kernel where nobody says otherwise.

    Attributes:
        properties, dtypes, device: of the cells. settings: of their samples. None is what whoever asks has by default.
        compiled: the architecture that Triton kernels are compiled for, which are then executed; "" for launches as
            ever.
    """

    properties: Sequence[str] | None = None
    dtypes: Sequence[Any] | None = None
    device: str = "cpu"
    settings: Any = None
    compiled: str = ""


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
        request: what is asked, of a kernel that its user declared.
    """

    kernels: str = ""
    example: Callable[[Any], Any] | None = None
    ranks: Ranks | None = None
    devices: Devices | None = None
    request: KernelRequest | None = None

    @property
    def own_subject(self) -> str:
        """The subject by which the op is judged: "ptx" for somebody's kernel that is to be compiled."""
        return EXECUTED if self.request is not None and self.request.compiled else OWN

    def machine(self, subject: str) -> str:
        """What runs a subject's kernels on a CPU, "triton" or "ptx"; empty where nothing does.

        Triton interprets the kernels of users where they have told it so, before they imported it.
        """
        interprets = os.environ.get("TRITON_INTERPRET") == "1" and "triton" in sys.modules
        is_interpreted = subject == OWN and self.request is not None and interprets
        return subject if subject in KERNELS else INTERPRETED if is_interpreted else ""
