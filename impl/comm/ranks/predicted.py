"""`DryComm`: a rank without others. Nothing is sent; each call is booked, with the time that a model predicts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from .base import Call, Comm, carry_out


@dataclass(frozen=True)
class Network:
    """The alpha-beta model of a network (R. Thakur, R. Rabenseifner, W. Gropp, Int. J. HPC Appl. 19, 2005).

    A message of n bytes takes latency + n / bandwidth, and every rank sends and receives one at a time.

    Attributes:
        latency: seconds that a message of no bytes takes.
        bandwidth: bytes per second.
    """

    latency: float = 5e-6
    bandwidth: float = 25e9

    def seconds(self, messages: float, sent: float) -> float:
        """The time of `messages` messages one after the other, of `sent` bytes in all."""
        return messages * self.latency + sent / self.bandwidth


@dataclass(frozen=True)
class Entry:
    """A call as it was booked: bytes that this rank sends, and seconds until it has its result."""

    call: Call
    sent_bytes: float
    seconds: float


class DryComm(Comm):
    """A rank of `size` ranks that all pass what this one passes.

    Attributes:
        ledger: an `Entry` for every call so far.
    """

    def __init__(self, rank: int, size: int, network: Network | None = None) -> None:
        if not 0 <= rank < size:
            raise ValueError(f"DryComm: got rank={rank}, size={size}, need 0 <= rank < size.")
        self.rank, self.size = rank, size
        self.network = network or Network()
        self.ledger: list[Entry] = []

    def _run(self, call: Call, x: Tensor) -> list[Tensor]:
        self.ledger.append(self._entry(call, x.numel() * x.element_size()))
        return carry_out(call, [x] * self.size, self.rank)

    def _entry(self, call: Call, size: int) -> Entry:
        """The entry of the fastest usual algorithm: trees and halving for short messages, rings and pipelines else."""
        # After Thakur, Rabenseifner and Gropp: (messages one after the other, bytes sent) of each algorithm,
        # for k ranks. `part`: a whole is cut in k parts, of which a rank sends all but its own.
        k, steps = self.size, math.ceil(math.log2(self.size)) if self.size > 1 else 0
        part = size * (k - 1) / k
        table: dict[str, list[tuple[float, float]]] = {
            "all_reduce": [(2 * steps, 2 * part), (2 * (k - 1), 2 * part), (steps, steps * size)],
            "all_gather": [(steps, size * (k - 1)), (k - 1, size * (k - 1))],
            "gather": [(steps, size * (k - 1))],
            "scatter": [(steps, part)],
            "all_to_all": [(k - 1, part)],
            "barrier": [(steps, 0)],
        }
        # Broadcast and reduce: a tree; or halves as for all_reduce, of which one direction scatters or gathers alone.
        options = table.get(call.op, [(steps, steps * size), (2 * steps, 2 * part), (steps + k - 1, 2 * part)])
        seconds, sent = min((self.network.seconds(messages, sent), sent) for messages, sent in options)
        return Entry(call, sent, seconds)
