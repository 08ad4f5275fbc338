"""Vector clocks: the events of a stream of a logical device, and the events of other streams that it has waited for."""

from __future__ import annotations

from typing import TypeAlias

import torch


class LogicalStream:
    """A queue of a logical device, whose events happen in order.

    Attributes:
        clock: for every stream, the number of its events that come before the next event of this stream.
    """

    def __init__(self, device: torch.device, name: str) -> None:
        self.device, self.name = device, name
        self.clock: dict[LogicalStream, int] = {self: 0}

    def __repr__(self) -> str:
        return f"{self.device}/{self.name}"

    def tick(self) -> int:
        """Count a new event; returns its number."""
        self.clock[self] += 1
        return self.clock[self]

    def wait_stream(self, other: LogicalStream) -> None:
        """Order all later events of this stream after the events that the other one has by now."""
        # For every stream the larger count: events that come before either of the two come before this one from now on.
        for stream, count in other.clock.items():
            self.clock[stream] = max(self.clock.get(stream, 0), count)

    def has_seen(self, stream: LogicalStream, event: int) -> bool:
        return self.clock.get(stream, 0) >= event


#: A stream, the number of its event, and what was done.
Event: TypeAlias = "tuple[LogicalStream, int, str]"
