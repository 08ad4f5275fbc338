"""`torch.autograd.Function`: under vmap the gradient of a shared argument is counted once for every slice

Where an output depends on no argument that is batched, all slices share it, and its cotangent is the sum over the
slices. With `generate_vmap_rule`, `backward` of every slice gets that sum, and the sum over the slices has it once for
each of them: the gradient by this output is too large by the number of slices. Without vmap, and with the same lines in
plain operations, it is right.

**Documented**: notes/extending.func: with `generate_vmap_rule = True` a function whose methods are PyTorch operations
and can be transformed by vmap needs no vmap rule of its own.

**Does it matter?** A regulariser or a scale of the parameters alone, beside the output, is such an output. In a batch
of a hundred its gradient is a hundred times too large, and nothing is said.
"""

from __future__ import annotations

from typing import Any

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


class Scaled(torch.autograd.Function):
    """v w, and beside it w², which all slices share."""

    generate_vmap_rule = True

    @staticmethod
    def forward(v: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return v * w, w * w

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        v, w = ctx.saved_tensors
        return first * w, first * v + 2 * second * w


def loss(w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    products, squares = torch.func.vmap(Scaled.apply, in_dims=(0, None))(v, w)
    return products.sum() + squares.sum()


def spec(w: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return v.sum() + 2 * w * v.shape[0]


def proof() -> Proof:
    w, v = torch.tensor(2.0), torch.tensor([3.0, 5.0, 7.0])
    (two,) = numbers(w)
    return Proof(
        "torch.func.grad(lambda w: sum of v w + w² over a vmap of v = [3, 5, 7])(w), w = 2",
        torch.func.grad(loss)(w, v), [mpmath.fsum(numbers(v)) + 2 * two * 3], spec, (w, v),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
