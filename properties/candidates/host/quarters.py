"""Where a candidate is asked: a process of its own, what it may take there, and the folder by which it is asked."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from ....reference.meeting import Meet
from ...names import WIRES
from ...places.lifeline import adopt_orphans
from ...places.process import Process
from ..ranks.seats import NO_RANK, Seat
from .copying import process_copied
from .exchange import Exchange
from .isolation import Isolation, Rooms

_PROGRAM = ("-m", "opassay.properties.candidates.host.program")
COMMAND = (sys.executable, *_PROGRAM)


@dataclass(frozen=True)
class Confinement:
    """How the process of a candidate is made, and what it may take.

    Attributes:
        seconds: that its loading, and each call, may take. memory: that it may take, in GiB; 0 for no limit.
        interpret: whether Triton's kernels are interpreted there, which takes a CPU alone.
        compiled: whether they are compiled there, and their PTX executed, which takes a CPU alone, too.
        alone: whether this process does nothing else, so that it may keep the memory that it frees, and be copied.
        mesh: how many processes there are along each axis of a mesh, each a rank; empty for one that is none.
        wire: over what ranks talk, one of `WIRES`.
        isolation: "auto" for what the kernel offers, "required" for all of it or no verdict, "none".
    """

    seconds: float = 60.0
    memory: float = 16.0
    interpret: bool = False
    compiled: bool = False
    alone: bool = False
    mesh: tuple[int, ...] = ()
    wire: str = WIRES[0]
    isolation: str = "auto"

    @property
    def bytes(self) -> int:
        """Of memory."""
        return int(self.memory * 2**30)


class Quarters:
    """A process and the folder by which it is asked; nothing of a stranger is in it yet.

    Args:
        confinement: of the process. readable: folders that it may read besides what every program needs.
        copied: whether it may be a copy of this process; else it is a new one.
        python: of another environment that has opassay, too; empty for this one.
        seat: which rank it is, if it is one.

    Attributes:
        process, exchange: what it is made of. meet: of a rank, takes what it posts, and gives what it gets.
            isolation: what the process has given up, once it has said so.
        adopts: whether what the candidate leaves running becomes a child of this
            process, which has no other children than candidates' processes then.
    """

    def __init__(
        self, confinement: Confinement, readable: Sequence[str] = (), copied: bool = False, python: str = "",
        seat: Seat = NO_RANK,
    ) -> None:  # fmt: skip
        self.exchange = Exchange()
        self.isolation: Isolation | None = None
        self.meet: Meet | None = None
        self.adopts = confinement.alone
        if self.adopts:
            adopt_orphans(True)
        paths = [os.path.realpath(path) for path in readable]
        rooms = Rooms(self.exchange.own, paths, confinement.isolation, confinement.bytes, os.path.dirname(seat.store))
        hello: dict[str, Any] = {"memory": confinement.bytes, "rooms": msgspec.to_builtins(rooms)}
        hello |= {"interpret": confinement.interpret, "compiled": confinement.compiled}
        hello |= {"seat": msgspec.to_builtins(seat)}
        changed = confinement.interpret or confinement.compiled
        try:
            process = process_copied(hello) if copied and not changed else None
            # A mark in the environment would tell a candidate that it is judged; nobody looks for it where orphans come
            # here by themselves.
            command = (python, *_PROGRAM) if python else COMMAND
            self.process = process or Process(hello, command=command, marked=not self.adopts)
        except BaseException:
            self.exchange.close()
            raise

    def close(self) -> None:
        """End the process, and remove the folder; later calls do nothing."""
        self.process.close()
        self.exchange.close()
