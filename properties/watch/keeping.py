"""Which calls of a program are kept to be judged: a choice, and its words, because nothing is known of the others."""

from __future__ import annotations

import random
import threading
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
        self._lock = threading.Lock()  # Threads of the program are recorded as they run.
        self._positions: dict[int, int] = {}
        self._draws = random.Random(keep.seed)

    @property
    def calls(self) -> list[DispatcherCall]:
        return [self._calls[number] for number in sorted(self._calls)]

    def count(self, key: SiteKey) -> int | None:
        """Count a call of a site: its number where it is to be kept, else None."""
        with self._lock:
            return self._count(key)

    def _count(self, key: SiteKey) -> int | None:
        self.counts[key] += 1
        self.order.append(key)
        wanted = self.keep.modules
        if wanted and not any(key[1].module == name or key[1].module.startswith(f"{name}.") for name in wanted):
            return None
        most, position = self.keep.per_site, len(self._of_site.setdefault(key, []))
        if most and position >= most:
            position = self._draws.randrange(self.counts[key])
            if position >= most:
                return None
        number = len(self.order) - 1
        self._positions[number] = position
        return number

    def put(self, key: SiteKey, call: DispatcherCall) -> None:
        """Keep a call that was counted, perhaps in place of another one of its site."""
        with self._lock:
            places, position = self._of_site[key], self._positions.pop(call.number)
            if position < len(places):
                del self._calls[places[position]]
                places[position] = call.number
            else:
                places.append(call.number)
            self._calls[call.number] = call
