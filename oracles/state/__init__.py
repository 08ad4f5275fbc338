"""The state of the process, which a subject must leave as it was; and whether an interrupt is the user's."""

from .settings import MODES
from .watch import (
    DEEP,
    LEFTOVERS,
    MAX_LINE,
    MAX_LINES,
    SETTINGS,
    Pin,
    Tier,
    make_canonical,
    pinned,
    shortened,
    undisturbed,
    watched,
)

__all__ = [
    "DEEP",
    "LEFTOVERS",
    "MAX_LINE",
    "MAX_LINES",
    "MODES",
    "SETTINGS",
    "Pin",
    "Tier",
    "make_canonical",
    "pinned",
    "shortened",
    "undisturbed",
    "watched",
]
