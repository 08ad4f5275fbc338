"""Vector clocks: what a stream of a logical device has done, and what of other streams it has waited for."""

from __future__ import annotations

from typing import TypeAlias

import torch


class LogicalStream:
    """A queue of a logical device: what is on it happens in order.

    Attributes:
        clock: for every stream, how many of its events have happened before what this one does next.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self.device, self.name = device, name
        self.clock: dict[LogicalStream, int] = {self: 0}

    def __repr__(self) -> str:
        return f"{self.device}/{self.name}"

    def tick(self) -> int:
        """A new event; its number."""
        self.clock[self] += 1
        return self.clock[self]

    def wait_stream(self, other: LogicalStream) -> None:
        """What comes next here happens after all that is on the other by now."""
        # The larger count for every stream: whatever either of the two has seen, the waiting one has seen from now on.
        for stream, count in other.clock.items():
            self.clock[stream] = max(self.clock.get(stream, 0), count)

    def has_seen(self, stream: LogicalStream, event: int) -> bool:
        return self.clock.get(stream, 0) >= event


#: A stream, the number of its event, and what was done.
Event: TypeAlias = "tuple[LogicalStream, int, str]"
