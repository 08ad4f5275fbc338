"""The recording of a program as data: its calls, who wrote their operands, and what the program asked `backward` of."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from .call import DispatcherCall, Origin
from .writers import Sources

#: A call site: the operation and where the program calls it.
SiteKey = tuple[str, Origin]


@dataclass(frozen=True)
class ProgramRun:
    """The run of a program: its name, the contract of its calls, and how it ended.

    Attributes:
        status: as a shell would see it. error: what it raised, in a line. device: "cpu", or "cuda" where it was used.
    """

    name: str = "program"
    contract: str = "torch"
    status: int = 0
    error: str = ""
    device: str = "cpu"


@dataclass(frozen=True)
class FollowedNumber:
    """A number whose error is followed in place of the loss: an element of a tensor.

    Attributes:
        name, about: "logits[0, 3]", "the largest of its 2 × 5 elements, of aten::addmm (head, train.py:7)".
        value: as it was computed.
    """

    name: str
    about: str
    value: float


@dataclass(frozen=True)
class FollowedError:
    """The error of what is followed.

    Attributes:
        value: NaN where it is not known. shares: number of a call -> what it adds to that.
        lost: where it is not known, numbers of calls that reach the number in a way whose derivative is not known.
    """

    value: float = math.nan
    shares: dict[int, float] = field(default_factory=dict)
    lost: set[int] = field(default_factory=set)


@dataclass
class Recording:
    """What was recorded.

    Attributes:
        calls: that were kept, in order. sources: number of a call -> who wrote its operands. order: the site of every
            call that the program made. losses: what `backward` was called on: the value of each, times its gradient.
        last: how many calls had been made when `backward` was called last. functions: name of an autograd function
            without a spec -> its calls. views: calls that gave a view. choice: of the calls that were kept, in words.
        faults: what kept calls from being recorded, in words. run: of the program.
        followed: the number whose error is followed; None for the loss. Then `last` is behind the call that gives it.
        error: of the number or of the loss.
    """

    calls: Sequence[DispatcherCall]
    sources: Mapping[int, Sources]
    order: Sequence[SiteKey]
    losses: Sequence[float] = ()
    last: int = 0
    functions: Mapping[str, int] = field(default_factory=dict)
    views: int = 0
    choice: str = ""
    faults: Sequence[str] = ()
    run: ProgramRun = ProgramRun()
    followed: FollowedNumber | None = None
    error: FollowedError = field(default_factory=FollowedError)

    @property
    def counts(self) -> Counter[SiteKey]:
        """Site -> how many calls the program made there."""
        return Counter(self.order)
