"""This process as a rank of torch.distributed, for good: its collectives go to the judge, or over a real wire."""

from __future__ import annotations

import datetime
import os
from typing import Any

import msgspec
import torch.distributed as dist

from ...names import WIRES
from .collectives import Consult, answer_by_judge

_torch: Any = dist.distributed_c10d
_stores: Any = dist  # torch names its stores there without exporting them


class Seat(msgspec.Struct, frozen=True):
    """Which rank a process is.

    Attributes:
        rank, ranks: its number, and how many there are; 0 for a process that is none.
        wire: one of `WIRES`. store: a file by which the ranks of a real wire meet. seconds: that a collective may wait.
    """

    rank: int = 0
    ranks: int = 0
    wire: str = WIRES[0]
    store: str = ""
    seconds: float = 60.0


#: A process that is no rank.
NO_RANK = Seat()
#: This process as a rank of the judge's wire, and what keeps its kernels; or the name of a real wire.
_HERE: list[Any] = []


def take_seat(seat: Seat, folder: str, consult: Consult) -> None:
    """Make this process a rank: torch.distributed is there as if `init_process_group` had been called.

    Args:
        folder: its own. consult: tells the judge something, and gives what it says.
    """
    rank, size = seat.rank, seat.ranks
    places = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
    if seat.wire == "nccl":
        # It sees one device, its own: whatever a program makes of its rank, no two ranks come to the same.
        devices = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")
        os.environ["CUDA_VISIBLE_DEVICES"] = devices[rank] if devices[0] else str(rank)
        places |= {"LOCAL_RANK": 0, "LOCAL_WORLD_SIZE": 1, "NCCL_SHM_DISABLE": 1}  # each has a /dev/shm of its own
    os.environ |= {name: str(value) for name, value in places.items()}
    if seat.wire == WIRES[0]:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        backend = "fake"
        dist.init_process_group(backend, store=FakeStore(), rank=rank, world_size=size)
        _HERE[:] = answer_by_judge(folder, consult)
    else:
        backend, wait = seat.wire, datetime.timedelta(seconds=seat.seconds)
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")  # the name of a machine need not lead to an address
        _torch.default_pg_timeout = _torch.default_pg_nccl_timeout = wait
        store = _stores.FileStore(seat.store, size)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=wait)
        _HERE[:] = [backend]
    make_group, destroy = _torch._new_process_group_helper, _torch.destroy_process_group
    # A candidate may name a backend, of which there is none here, and begin or end what has begun already.
    _torch._new_process_group_helper = lambda *args, **others: make_group(*args[:3], backend, *args[4:], **others)
    for module in (_stores, _torch):
        module.init_process_group = lambda *_, **__: None
        module.destroy_process_group = lambda group=None: (
            destroy(group) if group not in (None, dist.group.WORLD) else None
        )


def begin_call(late: bool) -> None:
    """Begin a call of the candidate; nothing where no judge answers collectives."""
    if len(_HERE) > 1:
        _HERE[0].begin(late)


def end_call() -> None:
    """End a call of the candidate, or a part of it that its judge asks for; nothing where no judge answers them."""
    if len(_HERE) > 1:
        _HERE[0].end()


def is_rank() -> bool:
    """Whether this process is a rank."""
    return bool(_HERE)
