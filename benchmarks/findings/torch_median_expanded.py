"""`torch.median`: along an expanded dim it reads the numbers beside, and memory behind the tensor

The kernel for CPUs makes the dim contiguous only where its stride is larger than 1, and then reads neighbours. Along an
expanded dim, whose stride is 0, neighbours are other columns: of three equal rows 1, 2, 3, 4 the medians are 2, 3, 4
and 5, if 5 and 6 lie behind the tensor. `torch.nanmedian` does the same; `torch.kthvalue` is right.

**Documented**: the median of each row along the dim; nothing on strides.

**Does it matter?** Broadcasting a tensor is free and common, and the result is wrong in its first digit without a word;
what is read behind the tensor may be anything, so that it also changes from run to run.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.sort(x, 0).values[1]


def proof() -> Proof:
    storage = torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0, 6.0])  # what lies behind the four columns is known here
    x = storage[:4].expand(3, 4)
    return Proof(
        "torch.median(torch.tensor([1, 2, 3, 4, 5, 6])[:4].expand(3, 4), 0).values",
        torch.median(x, 0).values, [mpmath.mpf(number) for number in numbers(storage[:4])], spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
