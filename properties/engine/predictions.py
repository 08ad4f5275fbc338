"""What ops over ranks would cost on a network of many ranks, for the report. A formula predicts it; nothing is sent."""

from __future__ import annotations

from collections.abc import Callable

import torch

from ...impl.comm import DryComm, sync_batch_norm
from ...impl.comm.ranks.predicted import Entry

RANKS = (8, 64, 512, 4096)
CHANNELS = 256
#: The parameters of a ResNet-50, float32 numbers that are summed over ranks; and the bytes of a usual bucket.
NUMBERS, BUCKET = 25_557_032, 10 * 2**20
_MODEL = "alpha-beta model of DryComm, 5 µs and 25 GB/s, links and ranks alike and idle"


def predictions(op: str) -> list[str]:
    """Lines about an op; empty for most ops."""
    return _TABLE[op]() if op in _TABLE else []


def _batch_norm() -> list[str]:
    what = f"sync_batch_norm, {CHANNELS} channels, forward and backward"
    instead = "the same where every rank gathers (mean, invstd, count) of all"
    return [
        f"predicted, {what}: {_prediction_row(lambda size: _both(sums, size))} ({_MODEL})",
        f"predicted, {instead}: {_prediction_row(lambda size: _both(gathered, size))}",
    ]


def _sums() -> list[str]:
    def bucketed(size: int) -> list[Entry]:
        comm, numbers = DryComm(1, size), NUMBERS  # not the root: nothing is added up here
        while numbers:
            # A float32 number has four bytes. Tensors on the meta device have a size and no memory, and a size is all
            # that the prediction needs.
            part = min(numbers, BUCKET // 4)
            comm.reduce(torch.empty(part, device="meta"), 0)
            numbers -= part
        return comm.ledger

    what = f"{NUMBERS:,} float32 gradients reduced in buckets of {BUCKET // 2**20} MiB".replace(",", " ")
    return [f"predicted, {what}: {_prediction_row(bucketed)}"]


_TABLE: dict[str, Callable[[], list[str]]] = {"sync_batch_norm": _batch_norm, "reduce_add_coalesced": _sums}


def sums(comm: DryComm, channels: int) -> tuple[list[Entry], list[Entry]]:
    """The calls by which `sync_batch_norm` sends float32 numbers, forward and backward."""
    # How many samples a rank has changes nothing, because a rank sends sums per channel.
    x = torch.ones(2, channels, requires_grad=True)
    y = sync_batch_norm(x, None, None, training=True, comm=comm)
    forward = list(comm.ledger)
    y.sum().backward()
    return forward, comm.ledger[len(forward) :]


def gathered(comm: DryComm, channels: int) -> tuple[list[Entry], list[Entry]]:
    """The calls of torch.nn.SyncBatchNorm: (mean, invstd, count) to every rank; two sums backward. All float32."""
    comm.all_gather(torch.zeros(1, 2 * channels + 1))
    comm.all_reduce(torch.zeros(2 * channels))
    return comm.ledger[:1], comm.ledger[1:]


def _both(scheme: Callable[[DryComm, int], tuple[list[Entry], list[Entry]]], size: int) -> list[Entry]:
    forward, backward = scheme(DryComm(0, size), CHANNELS)
    return forward + backward


def _prediction_row(scheme: Callable[[int], list[Entry]]) -> str:
    return "; ".join(f"{size} ranks {_cost(scheme(size))}" for size in RANKS)


def _cost(entries: list[Entry]) -> str:
    sent, seconds = sum(entry.sent_bytes for entry in entries), sum(entry.seconds for entry in entries)
    return f"{len(entries)} calls {sent / 1e3:.0f} kB {seconds * 1e6:.0f} µs"
