"""What everything follows from that a judgement draws: a seed that is known, or a secret until there is a verdict."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass, replace
from typing import Any

from ..table import former_name

#: Bytes of a secret, and bits of what it gives as seeds to functions of others, which take no more.
_BYTES, _BITS = 16, 31
#: Digits of a seed and of a secret, as a verdict has them.
_OF_SEED, _OF_SECRET = 8, 2 * _BYTES


@dataclass(frozen=True)
class Draws:
    """What a judgement draws from.

    Attributes:
        seed: as a user gives it; beside a secret that of parameters, which the candidate is told.
        secret: 128 bits in hexadecimal digits; empty where all follows from `seed`, or where it is not drawn yet.
    """

    seed: int
    secret: str = ""

    @classmethod
    def of(cls, seed: int | str | None) -> Draws:
        """Those of a seed, of the digits that a verdict told, or of a new secret.

        Raises:
            ValueError: a seed below 0, or other digits.
        """
        return cls.public(seed).draw_secret(seed)

    @classmethod
    def public(cls, seed: int | str | None) -> Draws:
        """What of them is drawn before a candidate is loaded; the rest, `draw_secret`, when it has been.

        Raises:
            ValueError: as of `of`.
        """
        if isinstance(seed, int):
            if seed < 0:
                raise ValueError(f"seed={seed}: need a whole number from 0 on")
            return cls(seed)
        if seed is None:
            # These are no random numbers without a seed: the verdict has them, and they can be given again.
            return cls(int.from_bytes(os.urandom(_OF_SEED // 2), "big") >> 32 - _BITS)
        if len(seed) != _OF_SEED + _OF_SECRET or set(seed.lower()) - set("0123456789abcdef"):
            raise ValueError(f"draws={seed!r}: need {_OF_SEED + _OF_SECRET} hexadecimal digits")
        return cls(int(seed[:_OF_SEED], 16))

    def draw_secret(self, seed: int | str | None) -> Draws:
        """The same with the secret that belongs to `seed`: see `of`."""
        if isinstance(seed, int):
            return self
        return replace(self, secret=os.urandom(_BYTES).hex() if seed is None else seed[_OF_SEED:].lower())

    def generator(self, question: str) -> Any:
        """NumPy's generator for a question; who knows that of one knows nothing of another."""
        import numpy as np  # not above: the command line sets how NumPy's library starts, and imports this before

        # A seed draws what it drew when a kind had a name of its own, so that a known fault is drawn again.
        question = re.sub(r"\b[A-Z]+:[a-z]+", lambda match: former_name(match[0]), question)
        words = [_derive(self.secret, f"question {question}")] if self.secret else [self.seed, *question.encode()]
        return np.random.default_rng(words)

    def inputs(self, number: int) -> int:
        """The seed of inputs that the spec's file gives; those of number 0 are the given ones."""
        return _derive(self.secret, f"inputs {number}") >> (256 - _BITS) if self.secret else self.seed + number

    @property
    def digits(self) -> str:
        """The seed and the secret in hexadecimal digits; empty where there is no secret."""
        return f"{self.seed:0{_OF_SEED}x}{self.secret}" if self.secret else ""

    @property
    def origin(self) -> int | str:
        """What gives the same again: see `of`."""
        return self.digits or self.seed

    def __str__(self) -> str:
        return f"draws {self.digits}" if self.secret else f"seed {self.seed}"


def _derive(secret: str, use: str) -> int:
    """256 bits, from which nobody computes the secret."""
    return int.from_bytes(hashlib.sha256(f"{secret} {use}".encode()).digest(), "big")
