"""The command line of the workshop, called in this process."""

from __future__ import annotations

from collections.abc import Sequence

from opassay.reports.cli.main import main


def workshop(words: Sequence[str]) -> int:
    """The exit code of `python -m workshop` with these words."""
    return main(words, commands="workshop.commands.group:cli", program="python -m workshop")
