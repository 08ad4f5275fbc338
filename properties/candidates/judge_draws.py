"""What everything follows from that a judgement draws: a seed that is known, or a secret until there is a verdict."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Bytes of a secret, and bits of what it gives as seeds to functions of others, which take no more.
_BYTES, _BITS = 16, 31


@dataclass(frozen=True)
class Draws:
    """What a judgement draws from.

    Attributes:
        seed: as a user gives it; of a secret, that of parameters, which the candidate is told.
        secret: 128 bits in hexadecimal digits; empty where all follows from `seed`.
    """

    seed: int
    secret: str = ""

    @classmethod
    def of(cls, chosen: int | str | None) -> Draws:
        """Those of a seed, of the digits of a secret that was told, or of a new secret.

        Raises:
            ValueError: a seed below 0, or other digits.
        """
        if isinstance(chosen, int):
            if chosen < 0:
                raise ValueError(f"seed={chosen}: need a whole number from 0 on")
            return cls(chosen)
        # These are no random numbers without a seed: the verdict has them, and they can be given again.
        secret = os.urandom(_BYTES).hex() if chosen is None else chosen.lower()
        if len(secret) != 2 * _BYTES or set(secret) - set("0123456789abcdef"):
            raise ValueError(f"draws={chosen!r}: need {2 * _BYTES} hexadecimal digits")
        return cls(_derive(secret, "parameters") >> (256 - _BITS), secret)

    def generator(self, question: str) -> Any:
        """NumPy's generator for a question; who knows that of one knows nothing of another."""
        words = [_derive(self.secret, f"question {question}")] if self.secret else [self.seed, *question.encode()]
        return np.random.default_rng(words)

    def inputs(self, number: int) -> int:
        """The seed of inputs that the spec's file gives; those of number 0 are the given ones."""
        return _derive(self.secret, f"inputs {number}") >> (256 - _BITS) if self.secret else self.seed + number

    @property
    def chosen(self) -> int | str:
        """What gives the same again: see `of`."""
        return self.secret or self.seed

    def __str__(self) -> str:
        return f"draws {self.secret}" if self.secret else f"seed {self.seed}"


def _derive(secret: str, use: str) -> int:
    """256 bits, from which nobody computes the secret."""
    return int.from_bytes(hashlib.sha256(f"{secret} {use}".encode()).digest(), "big")
