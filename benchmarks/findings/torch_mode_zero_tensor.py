"""`torch.func.jvp`: under a mode of the dispatcher `torch.sub(x, y, alpha=2)` ends the process

Forward mode gives an argument without a tangent a ZeroTensor, which has no memory. A derivative that multiplies it by a
number, as those of `sub` and `add` with `alpha` and of `addcmul` and `addcdiv` with `value` do, reads that memory where
a `TorchDispatchMode` is open, `FlopCounterMode` for one: the process ends by a segmentation fault. Without the mode the
tangent is right.

**Documented**: a mode whose `__torch_dispatch__` calls the operation that it is given changes no result.

**Does it matter?** Whoever counts, logs or traces the operations of a forward-mode derivative loses the process, with
no Python error that says where.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run
from torch.utils.flop_counter import FlopCounterMode

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"


def spec(x: torch.Tensor, direction: torch.Tensor) -> torch.Tensor:
    return direction * 1.0


def tangent(x: torch.Tensor, direction: torch.Tensor, into: torch.Tensor) -> None:
    other = torch.ones_like(x)
    with FlopCounterMode(display=False):
        into.copy_(torch.func.jvp(lambda t: torch.sub(t, other, alpha=2), (x,), (direction,))[1])


def proof() -> Proof:
    x, direction = torch.ones(3), torch.tensor([1.0, 2.0, 3.0])
    # NaN stays there where the process that writes it ends before.
    computed = torch.full((3,), torch.nan).share_memory_()
    process = torch.multiprocessing.get_context("fork").Process(target=tangent, args=(x, direction, computed))
    process.start()
    process.join()
    return Proof(
        f"torch.func.jvp of torch.sub(x, y, alpha=2) in FlopCounterMode, whose process ends with {process.exitcode}",
        computed, numbers(direction), spec, (x, direction),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
