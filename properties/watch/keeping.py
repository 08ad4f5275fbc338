"""Which calls of a program are kept to be judged: a choice, and its words, because nothing is known of the others."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass

from .call import DispatcherCall
from .recording import SiteKey
from .writers import StorageWriters


@dataclass(frozen=True)
class Keep:
    """Which calls are kept.

    Attributes:
        every: of so many steps one, the first of them.
        modules: paths of modules whose calls are kept, with those of the modules in them; empty for all calls.
        per_site: at most so many calls of a call site, drawn evenly by a reservoir; 0 for all. seed: of these draws.
        memory: bytes of copies beyond which no further call is kept; 0 for no limit.
    """

    every: int = 1
    modules: tuple[str, ...] = ()
    per_site: int = 0
    memory: int = 0
    seed: int = 0

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ValueError(f"every: got {self.every}, need 1 or more")
        for name in ("per_site", "memory"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: got {getattr(self, name)}, need 0 or more")

    @property
    def text(self) -> str:
        """In words."""
        parts = ["all calls" if self.every == 1 else f"all calls of one step in {self.every}"]
        parts += [f"in {', '.join(self.modules)}"] if self.modules else []
        parts += [f"at most {self.per_site} of a call site, drawn by seed {self.seed}"] if self.per_site else []
        parts += [f"up to {self.memory / 2**20:.0f} MiB of copies"] if self.memory else []
        return ", ".join(parts)


class CallStore:
    """The calls that are kept.

    Attributes:
        calls: in order. counts: site -> how many calls the program made there. order: the site of every call.
        writers: of the memory of operands. beyond: how many calls were not kept for lack of memory.
    """

    def __init__(self, keep: Keep) -> None:
        self.keep = keep
        self.counts: Counter[SiteKey] = Counter()
        self.order: list[SiteKey] = []
        self.beyond = 0
        self.writers = StorageWriters()
        self._calls: dict[int, DispatcherCall] = {}
        self._of_site: dict[SiteKey, list[int]] = {}
        self._draws = random.Random(keep.seed)

    @property
    def calls(self) -> list[DispatcherCall]:
        return [self._calls[number] for number in sorted(self._calls)]

    def count(self, key: SiteKey) -> int | None:
        """Count a call of a site: its number where it is to be kept, else None."""
        self.counts[key] += 1
        self.order.append(key)
        wanted, number = self.keep.modules, len(self.order) - 1
        if wanted and not any(key[1].module == name or key[1].module.startswith(f"{name}.") for name in wanted):
            return None
        most = self.keep.per_site
        if not most:
            return number
        places = self._of_site.setdefault(key, [])
        # A call has its place before it is kept: another thread may make one at the same site meanwhile.
        if len(places) < most:
            places.append(number)
            return number
        position = self._draws.randrange(self.counts[key])
        if position >= most:
            return None
        self._calls.pop(places[position], None)
        places[position] = number
        return number

    def put(self, key: SiteKey, call: DispatcherCall) -> None:
        """Keep a call that was counted, unless another one of its site has its place by now."""
        if not self.keep.per_site or call.number in self._of_site[key]:
            self._calls[call.number] = call
