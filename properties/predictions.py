"""What ops over ranks would cost on a network of many, for the report: a formula's prediction, nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..impl.comm import DryComm, sync_batch_norm

RANKS = (8, 64, 512, 4096)
CHANNELS = 256
#: Float32 numbers that are summed over ranks at once: the parameters of a ResNet-50, and the size of a usual bucket.
NUMBERS, BUCKET = 25_557_032, 10 * 2**20
_MODEL = "alpha-beta model of DryComm, 5 µs and 25 GB/s, links and ranks alike and idle"


def predictions(op: str) -> list[str]:
    """Lines about an op; none about most."""
    return _TABLE[op]() if op in _TABLE else []


def _batch_norm() -> list[str]:
    def sums(size: int) -> DryComm:
        comm, x = DryComm(0, size), torch.ones(2, CHANNELS, requires_grad=True)
        sync_batch_norm(x, None, None, training=True, comm=comm).sum().backward()
        return comm

    def gathered(size: int) -> DryComm:
        comm = DryComm(0, size)
        comm.all_gather(torch.zeros(1, 2 * CHANNELS + 1))
        comm.all_reduce(torch.zeros(2 * CHANNELS))
        return comm

    what = f"sync_batch_norm, {CHANNELS} channels, forward and backward"
    return [
        f"predicted, {what}: {_row(sums)} ({_MODEL})",
        f"predicted, the same where every rank gathers (mean, invstd, count) of all: {_row(gathered)}",
    ]


def _sums() -> list[str]:
    def bucketed(size: int) -> DryComm:
        comm, numbers = DryComm(1, size), NUMBERS  # not the root: nothing is added up here
        while numbers:
            part = min(numbers, BUCKET // 4)
            comm.reduce(torch.empty(part, device="meta"), 0)
            numbers -= part
        return comm

    what = f"{NUMBERS:,} float32 gradients reduced in buckets of {BUCKET // 2**20} MiB".replace(",", " ")
    return [f"predicted, {what}: {_row(bucketed)}"]


_TABLE: dict[str, Callable[[], list[str]]] = {"sync_batch_norm": _batch_norm, "reduce_add_coalesced": _sums}


def _row(scheme: Callable[[int], DryComm]) -> str:
    return "; ".join(f"{size} ranks {_cost(scheme(size))}" for size in RANKS)


def _cost(comm: DryComm) -> str:
    sent, seconds = sum(entry.sent for entry in comm.ledger), sum(entry.seconds for entry in comm.ledger)
    return f"{len(comm.ledger)} calls {sent / 1e3:.0f} kB {seconds * 1e6:.0f} µs"
