"""How much one judgement sees: its calls, inputs, rows and elements, and how rare a fault may be and still be found.

    python benchmarks/seen.py [--seeds N]

The spec is `x * 2` of 16 x 32 numbers in float32, and all questions are asked, in this process. A candidate that counts
gives the first line. Then each fault of a ladder is judged N times with other draws: a candidate that is right but for
all calls after the first k, or for one in k calls, inputs, rows or elements, chosen by their bits, where 1 is added.
The table in `docs/green.md` is what this prints.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

import opassay
from opassay.properties.candidates.judgement import Ruling

SHAPE = (16, 32)
LADDERS = {
    "all calls after the first k": (100, 300, 1000),
    "one in k calls": (10, 100, 1000),
    "one in k inputs": (3, 10, 30, 100),
    "one in k rows": (1000, 10_000, 100_000, 1_000_000),
    "one in k elements": (10_000, 100_000, 1_000_000, 10_000_000),
}
#: Codes are taken modulo a prime, so that every k has equal shares.
_PRIME = 2**61 - 1


def spec(x: Tensor) -> Tensor:
    return x * 2


@dataclass
class Census:
    """A right candidate that counts what it is called with."""

    calls: int = 0
    rows: int = 0
    elements: int = 0
    inputs: set[int] = field(default_factory=set)

    def __call__(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.rows += x.numel() // x.shape[-1] if x.numel() else 0
        self.elements += x.numel()
        self.inputs.add(hash(x.detach().contiguous().numpy().tobytes()))
        return x * 2


def _codes(x: Tensor) -> Tensor:
    """A number for each element, by its bits alone."""
    bits = x.detach().contiguous().view(torch.int32).to(torch.int64)
    mixed = (bits * 0x9E3779B1) % _PRIME
    return (mixed ^ (mixed >> 29)) * 0x85EBCA77 % _PRIME


class RareFault:
    """`x * 2`, and 1 more in the share of calls, inputs, rows or elements that a row of the table names."""

    def __init__(self, kind: str, k: int, seed: int) -> None:
        self._kind, self._k, self._calls, self._generator = kind, k, 0, random.Random(seed)

    def __call__(self, x: Tensor) -> Tensor:
        self._calls += 1
        return x * 2 + self._where(x).to(x.dtype)

    def _where(self, x: Tensor) -> Tensor:
        kind, k = self._kind, self._k
        if kind == "all calls after the first k":
            return torch.tensor(self._calls > k)
        if kind == "one in k calls":
            return torch.tensor(self._generator.randrange(k) == 0)
        codes = _codes(x) if x.dtype is torch.float32 and x.ndim else torch.zeros(x.shape, dtype=torch.int64)
        if kind == "one in k elements":
            return codes % k == k // 2
        codes = codes.sum(-1 if kind == "one in k rows" else tuple(range(x.ndim)), keepdim=True)
        return (codes % _PRIME ^ codes >> 31) % k == k // 2


def _judge(candidate: Callable[[Tensor], Tensor], seed: int) -> Ruling:
    x = torch.randn(SHAPE, generator=torch.Generator().manual_seed(seed))
    return opassay.judge(candidate, spec, (x,), seed=seed).verdict


def _table(seeds: int) -> Iterator[str]:
    yield "| wrong for | found in all | in some | in none |"
    yield "|---|---|---|---|"
    for kind, ladder in LADDERS.items():
        counts = {k: sum(_judge(RareFault(kind, k, s), s) is Ruling.REJECTED for s in range(seeds)) for k in ladder}
        rows = (
            [f"{k:,}" for k in ladder if counts[k] == seeds],
            [f"{k:,} ({counts[k]} of {seeds})" for k in ladder if 0 < counts[k] < seeds],
            [f"{k:,}" for k in ladder if not counts[k]],
        )
        yield f"| {kind}, k = | {' | '.join(', '.join(row) or '–' for row in rows)} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, default=5)
    seeds = parser.parse_args().seeds
    census = Census()
    verdict = _judge(census, 0)
    print(
        f"One judgement ({verdict}): {census.calls:,} calls with {len(census.inputs):,} different inputs, "
        f"{census.rows:,} rows and {census.elements:,} elements.\n"
    )
    for line in _table(seeds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
