"""Where collectives of ranks meet: in threads of the judge, each of which speaks for the process of one rank.

A rank that waits has posted all that it has begun. Once every rank waits or has ended its call, and none can go on,
none ever will: what each of them does then is the error, which is found without a clock. No rank learns when another
has come to a collective, so in whatever order they come, the results are the same, but where a program asks for a
message of any rank.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from .posts import ANY, Delivery, Post, Turn, received


class MeetingError(RuntimeError):
    """A collective that cannot take place; the text says what each rank does."""


#: (what a rank posts) -> what it gets; MeetingError where it gets nothing.
Meet = Callable[[Turn], Delivery]
#: Of messages the group, the sender and the receiver in it, and the tag; of collectives the group.
_Channel = tuple[str | int, ...]


class _Entry(NamedTuple):
    """A post, where its other sides look for it, and which it is among those there."""

    post: Post
    channel: _Channel
    place: int


class Meeting:
    """The collectives of one call of a candidate of `size` ranks.

    Args:
        size: how many ranks. order: they add in this order, and a message of any rank is of the first that has one.
        broken: a rank that has lost all others from the beginning; None for none.

    Attributes:
        failed: what could not take place; empty for nothing. victims: ranks that were told of a failure.
    """

    def __init__(self, size: int, order: Sequence[int] = (), broken: int | None = None) -> None:
        self._order, self._broken = list(order) or list(range(size)), broken
        self._state = ["runs"] * size
        self._changed = threading.Condition()
        self._entries: list[dict[int, _Entry]] = [{} for _ in range(size)]
        self._counts: list[dict[str, int]] = [defaultdict(int) for _ in range(size)]
        self._calls: dict[_Channel, dict[int, Post]] = defaultdict(dict)
        self._sent: dict[_Channel, list[Post]] = defaultdict(list)
        self._receipts: dict[_Channel, int] = defaultdict(int)
        self._waits: list[_Entry | None] = [None] * size
        self.failed = ""
        self.victims: set[int] = set()

    def take_turn(self, rank: int, turn: Turn) -> Delivery:
        """Post what a rank has begun, and wait until the call that it waits for has taken place.

        Raises:
            MeetingError: it never will.
        """
        with self._changed:
            if rank == self._broken:
                self.victims.add(rank)
                raise MeetingError(f"rank {rank} has lost its connection to all others")
            for post in turn.posts:
                self._add(rank, post)
            self._changed.notify_all()
            if turn.awaited < 0:
                return Delivery()
            entry = self._entries[rank].get(turn.awaited)
            if entry is None:
                raise MeetingError(f"rank {rank} waits for call {turn.awaited}, which it has not made")
            self._state[rank], self._waits[rank] = "waits", entry
            try:
                return self._await(rank, entry)
            finally:
                self._state[rank], self._waits[rank] = "runs", None

    def leave(self, rank: int, how: str) -> None:
        """Say that the call of a rank has ended; how: "has returned", say."""
        with self._changed:
            self._state[rank] = how
            self._changed.notify_all()

    # What follows is called with the lock held.

    def _add(self, rank: int, post: Post) -> None:
        """Keep a post where its other sides will look for it."""
        size = len(self._state)
        if rank not in post.members or not all(0 <= each < size for each in post.members):
            raise MeetingError(f"rank {rank} makes {post.op} among ranks {post.members} of {size}")
        if not ANY <= post.root < len(post.members):
            raise MeetingError(f"rank {rank} makes {post.op} with root {post.root} of {len(post.members)} ranks")
        here = post.members.index(rank)
        channel: _Channel = (post.group,)
        place = 0
        if post.op == "send":
            channel = (post.group, here, post.root, post.tag)
            self._sent[channel].append(post)
            place = len(self._sent[channel])
        elif post.op == "recv" and post.root != ANY:
            channel = (post.group, post.root, here, post.tag)
            place = self._receipts[channel]
            self._receipts[channel] += 1
        elif post.op != "recv":
            place = self._counts[rank][post.group]
            self._counts[rank][post.group] += 1
            channel = (post.group, place)
            self._calls[channel][rank] = post
        self._entries[rank][post.number] = _Entry(post, channel, place)

    def _await(self, rank: int, entry: _Entry) -> Delivery:
        while True:
            if self._is_ready(rank, entry):
                delivery = self._delivery(rank, entry)
                self._changed.notify_all()
                return delivery
            if not self.failed and "runs" not in self._state and not any(map(self._can_go_on, range(len(self._state)))):
                self.failed = "; ".join(map(self._describe, range(len(self._state))))
                self._changed.notify_all()
            if self.failed:
                self.victims.add(rank)
                raise MeetingError(self.failed)
            self._changed.wait()

    def _can_go_on(self, rank: int) -> bool:
        entry = self._waits[rank]
        return entry is not None and self._is_ready(rank, entry)

    def _is_ready(self, rank: int, entry: _Entry) -> bool:
        """Whether a call has taken place."""
        match entry.post.op:
            case "send":
                return self._receipts[entry.channel] >= entry.place
            case "recv" if entry.post.root == ANY:
                return "runs" not in self._state and self._sender_for(rank, entry.post) is not None
            case "recv":
                return len(self._sent[entry.channel]) > entry.place
        return len(self._calls[entry.channel]) == len(entry.post.members)

    def _delivery(self, rank: int, entry: _Entry) -> Delivery:
        """What a rank gets of a call that has taken place; MeetingError where its members have made other calls."""
        post, channel = entry.post, entry.channel
        if post.op == "send":
            return Delivery()
        if post.op == "recv" and post.root == ANY:
            sender = self._sender_for(rank, post)
            assert sender is not None
            self._receipts[sender] += 1
            return Delivery(self._sent[sender][self._receipts[sender] - 1].tensors, int(sender[1]))
        if post.op == "recv":
            return Delivery(self._sent[channel][entry.place].tensors, post.root)
        posts = [self._calls[channel][each] for each in post.members]
        if len({str(each.key) for each in posts}) > 1:
            lines = (f"rank {each} makes {call}" for each, call in zip(post.members, posts, strict=True))
            raise MeetingError(f"different calls: {'; '.join(lines)}")
        order = [post.members.index(each) for each in self._order if each in post.members]
        try:
            return Delivery(received(posts, post.members.index(rank), order))
        except Exception as err:  # what ranks post need be no tensors, nor as many as they say
            raise MeetingError(f"rank {rank} makes {post}: {type(err).__name__}: {err}") from err

    def _sender_for(self, rank: int, post: Post) -> _Channel | None:
        """The channel from which a message of any rank is taken; None where there is none yet."""
        here = post.members.index(rank)
        senders = [post.members.index(each) for each in self._order if each in post.members]
        channels: list[_Channel] = [(post.group, sender, here, post.tag) for sender in senders]
        return next((each for each in channels if len(self._sent[each]) > self._receipts[each]), None)

    def _describe(self, rank: int) -> str:
        entry = self._waits[rank]
        return f"rank {rank} {self._state[rank]}" if entry is None else f"rank {rank} waits in {entry.post}"
