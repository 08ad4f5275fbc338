"""What the ISA leaves to the hardware: errors of approximations, the order of warps, and what unwritten memory holds.

A kernel must be right on every hardware that the ISA allows. So each of these freedoms has values here, and kernels
are executed under several of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(frozen=True)
class Hardware:
    """One hardware that the ISA allows.

    Attributes:
        approximation: where within its bound the result of an approximation lies: "nearest" to the exact value, at the
            end above ("up") or below ("down"), or at one of both by the bits of the argument ("mixed"). Sums of a
            tensor core may also be "truncating": cut off as an H100 cuts them.
        order: of warps between barriers, of `ORDERS`: "together", or one after the other, from the last ("apart") or
            from the first ("onward").
        poison: the byte that fills memory and registers to which nothing was written.
        winner: where threads of a block store to one address of shared memory by one instruction, whose value is there
            afterwards: the "largest", the "smallest", or that of "any" by the address.
    """

    approximation: str = "nearest"
    order: str = "together"
    poison: int = 0xFF
    winner: str = "largest"

    def __str__(self) -> str:
        return f"approximations {self.approximation}, warps {self.order}, poison {self.poison:#04x}" + (
            f", of stores to one address {self.winner} wins" if self.winner != "largest" else ""
        )


ORDERS = ("together", "apart", "onward")
NEAREST = Hardware()
#: Those whose approximations err as far as they may. Where the largest and the smallest of the values that are stored
#: to one address are right, those between them are.
ENDS = (Hardware("up"), Hardware("down", winner="smallest"), Hardware("mixed", winner="any"))
#: Tensor cores as they were measured; all else at its nearest.
TRUNCATING = Hardware("truncating")
#: The one that differs in what no result may depend on. 0x3C makes a number near 0.01 of float32.
APART = Hardware(order="apart", poison=0x3C, winner="smallest")

_current: list[Hardware] = [NEAREST]


def current() -> Hardware:
    """The hardware that kernels are executed on."""
    return _current[-1]


@contextmanager
def on(hardware: Hardware) -> Iterator[None]:
    """Within the block, kernels are executed on a hardware: of this process, in all its threads."""
    _current.append(hardware)
    try:
        yield
    finally:
        _current.pop()
