"""`torch.compile`: a function of `F.max_pool1d`'s kind gets the compiled code of another one

`F.max_pool1d`, `F.adaptive_max_pool1d`, their kin of two and three dims and `F.fractional_max_pool2d` and `3d` are made
by one function, `boolean_dispatch`, so that they have one code object and differ in their closures. Compiled one after
the other with arguments of the same shapes, as they are, as an attribute of a module or in the closure of a function,
the second runs what was compiled for the first. Where each is called by a function with a code object of its own, both
are right, and so are functions of the user with one code object and two closures.

**Documented**: torch.compile promises the results of the same code without it.

**Does it matter?** A module that is given its pooling as a function, with one instance for each kind, computes the
wrong pooling in the second, without an error where the shapes of both results are the same.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(x: torch.Tensor) -> torch.Tensor:
    return F.adaptive_max_pool1d(x, 3)


def proof() -> Proof:
    x = torch.arange(10.0).reshape(1, 1, 10)
    torch.compile(F.max_pool1d, backend="eager")(x, 3)
    computed = torch.compile(F.adaptive_max_pool1d, backend="eager")(x, 3)
    return Proof(
        "torch.compile(F.adaptive_max_pool1d)(x, 3) after torch.compile(F.max_pool1d)(x, 3), x = 0, 1, ..., 9",
        computed, numbers(torch.tensor([3.0, 6.0, 9.0])), spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
