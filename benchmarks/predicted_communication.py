"""What batch norm over ranks costs on a network, and a model's parameters, as a formula predicts it. Nothing is sent.

`python benchmarks/predicted_communication.py` prints the tables of docs/ranks.md and docs/devices.md; a test holds the
pages to it.

The formula is the alpha-beta model: a message of n bytes takes α + n / β, here α = 5 µs and β = 25 GB/s, the defaults
of `Network`; a rank sends one message and receives one at a time; of the algorithms that `DryComm` knows for a
collective (trees, recursive doubling, rings, pipelines) the fastest is booked. Source: R. Thakur, R. Rabenseifner,
W. Gropp, Optimization of collective communication operations in MPICH, Int. J. HPC Appl. 19, 2005. It assumes that all
links are alike and carry nothing else, that all ranks come at the same time, and that adding, packing and launching
take none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from opassay.impl.comm import DryComm, sync_batch_norm
from opassay.impl.comm.devices.planner import Piece, buckets
from opassay.impl.comm.ranks.predicted import Entry

RANKS = (8, 64, 512, 4096)
CHANNELS = (64, 256, 1024)
#: Bytes of a bucket; None is one call per tensor.
LIMITS: dict[str, int | None] = {
    "one call per tensor": None,
    "buckets of 1 MiB": 2**20,
    "buckets of 10 MiB": 10 * 2**20,
    "buckets of 25 MiB": 25 * 2**20,
}
FLOAT32 = 4


# ------------------------------------------------------------------------------------------------- batch norm


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


def batch_norm_table(ranks: Iterable[int] = RANKS) -> str:
    """Calls, kB that a rank sends, and µs, for each number of channels."""
    header = [
        "C", "ranks", "sums forward: calls, kB, µs", "backward: calls, kB, µs",
        "gathered forward: calls, kB, µs", "backward: calls, kB, µs",
    ]  # fmt: skip
    rows = []
    for channels in CHANNELS:
        for size in ranks:
            results = [part for scheme in (sums, gathered) for part in scheme(DryComm(0, size), channels)]
            rows.append([str(channels), str(size), *map(_calls, results)])
    return _table(header, rows)


def _calls(entries: Sequence[Entry]) -> str:
    sent, seconds = sum(e.sent_bytes for e in entries), sum(e.seconds for e in entries)
    return f"{len(entries)}, {sent / 1e3:.1f}, {seconds * 1e6:.0f}"


# ------------------------------------------------------------------------------------------------- parameters


def resnet50() -> list[tuple[int, ...]]:
    """Shapes of the 161 parameters of a ResNet-50 (K. He et al., arXiv:1512.03385), in the order of its layers."""
    shapes: list[tuple[int, ...]] = []

    def convolution(out: int, channels: int, kernel: int) -> None:
        shapes.extend([(out, channels, kernel, kernel), (out,), (out,)])  # a batch norm follows: weight and bias

    convolution(64, 3, 7)
    channels = 64
    for width, blocks in ((64, 3), (128, 4), (256, 6), (512, 3)):
        for block in range(blocks):
            convolution(width, channels, 1)
            convolution(width, width, 3)
            convolution(4 * width, width, 1)
            if block == 0:
                convolution(4 * width, channels, 1)
            channels = 4 * width
    return [*shapes, (1000, channels), (1000,)]


def messages(limit: int | None) -> list[int]:
    """Elements of each message, where the parameters travel in buckets of at most `limit` bytes; None: one by one."""
    elements = [torch.Size(shape).numel() for shape in resnet50()]
    if limit is None:
        return elements
    planned = buckets([Piece(FLOAT32 * n, torch.float32) for n in elements], limit)
    return [sum(elements[i] for i in bucket) for bucket in planned]


def step(comm: DryComm, limit: int | None) -> list[Entry]:
    """The calls of a step of training: the parameters are broadcast, their gradients are reduced."""
    for elements in messages(limit):
        x = torch.empty(elements, device="meta")  # the model needs sizes alone
        comm.broadcast(x, 0)
        comm.reduce(x, 0)
    return comm.ledger


def bucket_table(ranks: Sequence[int] = RANKS) -> str:
    """ms to broadcast the parameters and to reduce their gradients, and in how many calls."""
    rows = []
    for name, limit in LIMITS.items():
        # Rank 1 is not the root, so nothing is added up here.
        results = [step(DryComm(1, size), limit) for size in ranks]
        times = [f"{sum(entry.seconds for entry in entries) * 1e3:.1f}" for entries in results]
        rows.append([name, str(len(results[0])), *times])
    return _table(["sent in", "calls", *(f"{size} ranks, ms" for size in ranks)], rows)


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def main() -> None:
    print(batch_norm_table())
    print(bucket_table(), end="")


if __name__ == "__main__":
    main()
