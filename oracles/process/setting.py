"""One setting of the process: what it is called, how it is read, how it is set."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

#: The default of a setting whose value at the beginning of a cell may be anything; the value of one not there yet.
ANY = object()


@dataclass(frozen=True)
class Setting:
    """One setting.

    Attributes:
        read, write: get the value, and set it. default: the value in a fresh process, where a cell must begin with it.
        show: a value as text; None where values say nothing to a reader.
        drifts: whether the framework changes it between samples: Hypothesis, or the drawing of an op's samples.
        quiet: whether it decides no number, so that it is compared at the end of a cell only.
        compiler: whether torch's compiler, when it runs, sets it for good.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    default: Any = ANY
    show: Callable[[Any], str] | None = str
    drifts: bool = False
    quiet: bool = False
    compiler: bool = False

    def line(self, before: Any, after: Any) -> str:
        if self.show is None:
            return f"{self.name}: changed"
        old, new = self.show(before), self.show(after)
        return f"{self.name}: {old} -> {new}" if old != new else f"{self.name}: changed"


class Table:
    """Several settings that are read together."""

    def __init__(self, *settings: Setting) -> None:
        self.settings = settings
        self._reads = [setting.read for setting in settings]

    def read(self) -> list[Any]:
        return list(map(operator.call, self._reads))  # This runs around every sample; a comprehension is slower.

    def restored(self, before: list[Any], compiled: bool = False) -> list[str]:
        """Put earlier values back, and report each difference as a line; values that the compiler set for good stay."""
        after = self.read()
        if after == before:
            return []
        changed = [row for row in zip(self.settings, before, after, strict=True) if row[1] != row[2]]
        changed = [row for row in changed if row[1] is not ANY and not (compiled and row[0].compiler)]
        for setting, old, _ in changed:
            setting.write(old)
        return [setting.line(old, new) for setting, old, new in changed]


def onoff(value: Any) -> str:
    return "on" if value else "off"
