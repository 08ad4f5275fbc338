"""`torch.autograd.Function`: the second derivative by forward mode twice is zero

`torch.func.jvp` of `torch.func.jvp` of a function with a `jvp` of its own is 0, whatever the function is: the outer
tangent of what was saved is lost. `jacfwd` of `jacfwd` is 0, too. Reverse mode over either mode is right.

**Documented**: notes/extending.func: a function with `setup_context` and `jvp`, written in PyTorch operations, composes
with the transforms of torch.func.

**Does it matter?** A Laplacian or a Hessian by forward mode over forward mode leaves the function out, without a word.
"""

from __future__ import annotations

from typing import Any

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


class Exp(torch.autograd.Function):
    """The exponential, as the documentation has a function written."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, cotangent: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return cotangent * x.exp()

    @staticmethod
    def jvp(ctx: Any, tangent: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return tangent * x.exp()


def spec(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x)


def proof() -> Proof:
    x, one = torch.tensor([0.0, 1.0, 2.0]), torch.ones(3)
    _, second = torch.func.jvp(lambda x: torch.func.jvp(Exp.apply, (x,), (one,))[1], (x,), (one,))
    return Proof(
        "torch.func.jvp(lambda x: torch.func.jvp(Exp.apply, (x,), (one,))[1], (x,), (one,))[1], x = [0, 1, 2]",
        second, [mpmath.exp(value) for value in numbers(x)], spec, (x,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
