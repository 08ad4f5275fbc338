"""Where ranks meet that are told nothing of when another comes: what each has begun, and what it gets of that.

A rank that waits has posted all that it has begun. Once every rank waits or has ended, and none can go on, none ever
will: what each of them does then is the error, which is found without a clock. No rank learns when another has come to
a collective, so in whatever order they come, the results are the same, but where one takes a message of any rank.

A collective has one meaning, whatever it is called: each rank passes a tensor for all members of the group, or one for
each of them, and each gets what was meant for it, as a list or as a sum. `results_of` is that meaning.

The production ops over ranks and the judge of somebody's ranks share this module, so it needs the standard library
alone: what ranks pass are tensors, of which it asks operators and methods.
"""

from __future__ import annotations

import functools
import operator
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

#: Of a root, that there is none; of the other side of a message, any rank.
ANY = -1
_PAIRWISE: Mapping[str, Callable[[Any, Any], Any]] = {
    "sum": operator.add, "avg": operator.add, "product": operator.mul,
    "min": lambda x, y: x.minimum(y), "max": lambda x, y: x.maximum(y),
    "band": operator.and_, "bor": operator.or_, "bxor": operator.xor,
}  # fmt: skip


@dataclass(frozen=True)
class Post:
    """One collective, or one side of a message from rank to rank.

    Attributes:
        number: of this rank's calls, in the order in which it makes them. op: see `results_of`; or "send", "recv".
        group, members: its name, and the numbers of its ranks in the world.
        tensors: what it passes: one for all members, or one for each.
        text: what it is, in words. key: in what all members must agree, besides op, members, root and reduction.
        root: the member that sends or receives alone; the other side of a message, or `ANY`.
        reduction: empty for none. tag: of a message.
    """

    number: int
    op: str
    group: str
    members: list[int]
    tensors: list[Any] = field(default_factory=list)
    text: str = ""
    key: str = ""
    root: int = ANY
    reduction: str = ""
    tag: int = 0

    @property
    def agreed(self) -> tuple[object, ...]:
        """In what all members must agree."""
        return (self.op, tuple(self.members), self.root, self.reduction, self.key)


@dataclass(frozen=True)
class Turn:
    """What a rank says when it waits: its posts since the last time, and which of its calls it waits for.

    Attributes:
        awaited: number of that call; -1 where its call of the candidate has ended.
    """

    posts: list[Post]
    awaited: int = -1


@dataclass(frozen=True)
class Delivery:
    """What a rank gets: tensors in the order of its outputs, and the member that a message of any rank came from."""

    tensors: list[Any] = field(default_factory=list)
    source: int = ANY


def results_of(
    op: str, passed: Sequence[Sequence[Any]], index: int, root: int, reduction: str, order: Sequence[int]
) -> list[Any]:
    """What a member of a group gets of a collective: the meaning of each of them.

    Args:
        passed: what each member passes. index: of the member. root: `ANY` for none. order: of summation.
    """
    mine = root in (ANY, index)
    match op:
        case "all_gather" | "all_gather_into_tensor" | "gather":
            return [tensors[0] for tensors in passed] if mine else []
        case "broadcast":
            return list(passed[root])
        case "scatter":
            return [passed[root][index]]
        case "all_to_all":
            return [tensors[index] for tensors in passed]
        case "all_reduce" | "reduce" | "reduce_scatter":
            at = index if op == "reduce_scatter" else 0
            # One after the other in their dtype, as a ring does it.
            total = functools.reduce(_PAIRWISE[reduction], [passed[i][at] for i in order]) if mine else None
            return [] if total is None else [total / len(order) if reduction == "avg" else total]
    return []


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
    """The collectives of `size` ranks, each of which has a thread.

    Args:
        size: how many ranks. order: they add in this order, and a message of any rank is of the first that has one.
        broken: a rank that has lost all others from the beginning; None for none.
        choose: (ranks that can go on) -> the one that does, where one runs at a time.

    Attributes:
        failed: what could not take place; empty for nothing. victims: ranks that were told of a failure.
    """

    def __init__(
        self, size: int, order: Sequence[int] = (), broken: int | None = None,
        choose: Callable[[list[int]], int] | None = None,
    ) -> None:  # fmt: skip
        self._order, self._broken, self._choose = list(order) or list(range(size)), broken, choose
        self._state = ["begins" if choose else "runs"] * size
        self._changed = threading.Condition()
        self._entries: list[dict[int, _Entry]] = [{} for _ in range(size)]
        self._calls: dict[_Channel, dict[int, Post]] = defaultdict(dict)
        self._sent: dict[_Channel, list[Post]] = defaultdict(list)
        # Messages that were taken of a channel, and collectives that a rank has made in a group.
        self._counts: dict[_Channel, int] = defaultdict(int)
        self._waits: list[_Entry | None] = [None] * size
        self.failed = ""
        self.victims: set[int] = set()

    def begin(self, rank: int) -> None:
        """Wait for the first turn, where one runs at a time."""
        with self._changed:
            self._pass_turn()
            while self._state[rank] != "is chosen":
                self._changed.wait()
            self._state[rank] = "runs"

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
            self._pass_turn()
            self._changed.notify_all()

    # What follows is called with the lock held.

    def _pass_turn(self) -> None:
        """Choose who runs next, where one runs at a time and none does."""
        if self._choose is None or not {"runs", "is chosen"}.isdisjoint(self._state):
            return
        able = [r for r, state in enumerate(self._state) if state == "begins" or self._can_go_on(r)]
        if able:
            self._state[self._choose(able)] = "is chosen"
            self._changed.notify_all()

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
            place = self._counts[channel]
            self._counts[channel] += 1
        elif post.op != "recv":
            place = self._counts[post.group, rank]
            self._counts[post.group, rank] += 1
            channel = (post.group, place)
            self._calls[channel][rank] = post
        self._entries[rank][post.number] = _Entry(post, channel, place)

    def _await(self, rank: int, entry: _Entry) -> Delivery:
        while True:
            self._pass_turn()
            if self._is_ready(rank, entry) and (self._choose is None or self._state[rank] == "is chosen"):
                delivery = self._delivery(rank, entry)
                self._changed.notify_all()
                return delivery
            stuck = {"runs", "begins", "is chosen"}.isdisjoint(self._state)
            if not self.failed and stuck and not any(map(self._can_go_on, range(len(self._state)))):
                self._fail("; ".join(map(self._describe, range(len(self._state)))))
            if self.failed:
                self.victims.add(rank)
                raise MeetingError(self.failed)
            self._changed.wait()

    def _fail(self, text: str) -> None:
        self.failed = text
        self._changed.notify_all()

    def _can_go_on(self, rank: int) -> bool:
        entry = self._waits[rank]
        return entry is not None and self._is_ready(rank, entry)

    def _is_ready(self, rank: int, entry: _Entry) -> bool:
        """Whether a call has taken place."""
        match entry.post.op:
            case "send":
                return self._counts[entry.channel] >= entry.place
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
            self._counts[sender] += 1
            return Delivery(self._sent[sender][self._counts[sender] - 1].tensors, int(sender[1]))
        if post.op == "recv":
            return Delivery(self._sent[channel][entry.place].tensors, post.root)
        posts = [self._calls[channel][each] for each in post.members]
        if len({each.agreed for each in posts}) > 1:
            pairs = zip(post.members, posts, strict=True)
            text = f"different calls: {'; '.join(_words(each, 'waits in', call) for each, call in pairs)}"
            if self._choose is not None:  # all ranks are in one group
                self._fail(text)
            raise MeetingError(text)
        order = [post.members.index(each) for each in self._order if each in post.members]
        # Where ranks run by turns, no two sums need have one order: who relies on that is to show it.
        start = entry.place % len(order) if self._choose else 0
        order = order[start:] + order[:start]
        passed = [each.tensors for each in posts]
        try:
            index = post.members.index(rank)
            return Delivery(results_of(post.op, passed, index, post.root, post.reduction, order))
        except Exception as err:  # what ranks post need be no tensors, nor as many as they say
            raise MeetingError(f"rank {rank} makes {post.text}: {type(err).__name__}: {err}") from err

    def _sender_for(self, rank: int, post: Post) -> _Channel | None:
        """The channel from which a message of any rank is taken; None where there is none yet."""
        here = post.members.index(rank)
        senders = [post.members.index(each) for each in self._order if each in post.members]
        channels: list[_Channel] = [(post.group, sender, here, post.tag) for sender in senders]
        return next((each for each in channels if len(self._sent[each]) > self._counts[each]), None)

    def _describe(self, rank: int) -> str:
        entry, every = self._waits[rank], self._entries[rank]
        if entry is not None:
            return _words(rank, "waits in", entry.post)
        return _words(rank, f"{self._state[rank]} after", every[max(every)].post if every else None)


def _words(rank: int, how: str, post: Post | None) -> str:
    return f"rank {rank} {how} call 0" if post is None else f"rank {rank} {how} call {post.number + 1}, {post.text}"
