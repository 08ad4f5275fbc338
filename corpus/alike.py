"""Claims of two implementations that are to have equal bits, and what a program says whose engine nobody has here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .seen import Answer, Claim

#: What a bug needs that is rebuilt here: an engine that serves a model on GPUs.
ENGINE = ("a model that is served on GPUs",)


def unseen() -> bool:
    """What is observed of an engine that nobody has here."""
    return False


def align(
    first: Callable[..., Any], inputs: Sequence[Any], word: str, fault: Callable[..., Any], right: Callable[..., Any]
) -> Claim:
    """A claim of `opassay.parity`: beside the first, which is right, one has other bits, and one has the same.

    Args:
        first: one of the two, and what is right. inputs: arguments of one call.
        word: with which the answer about `fault` begins. fault, right: the other one.
    """

    def ask(second: Callable[..., Any]) -> Answer:
        from opassay import parity

        judgement = parity(first, second, tuple(inputs))
        if judgement.error or not judgement.difference.startswith(("equal", word)):
            raise RuntimeError(f"PARITY: {judgement.error or judgement.difference}")
        if judgement.difference.startswith("equal"):
            return Answer(False, "accepted")
        return Answer(True, f"refused by PARITY ({word})")

    return Claim("`parity`", ask, None, fault, right)
