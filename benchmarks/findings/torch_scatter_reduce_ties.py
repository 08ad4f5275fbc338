"""`scatter_reduce` and `index_reduce` without `include_self`: what is left out takes a share of the gradient

With `include_self=False` the elements of the input are no part of the maxima and minima. In backward torch counts an
element of the input that happens to equal the result among those that share its gradient, and then gives it nothing:
where one source is the largest, and the input has the same number, the source's gradient is half of what it is. The
shares no longer add up to the gradient of the result. torch's own `gradcheck` fails on it.

**Documented**: "include_self: whether elements from the self tensor are included in the reduction".

**Does it matter?** Where the input is a buffer of zeros and values are zeros or integers, or after a ReLU, equal
numbers are common, and the gradient is halved in silence.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run
from torch import Tensor

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "medium"

PLACES = torch.tensor([0, 0, 1, 1])


def proof() -> Proof:
    buffer = torch.tensor([3.0, 0.0])
    source = torch.tensor([3.0, 1.0, 2.0, 0.5], requires_grad=True)
    largest = torch.scatter_reduce(buffer, 0, PLACES, source, "amax", include_self=False)
    (slope,) = torch.autograd.grad(largest, source, torch.tensor([1.0, 1.0]))
    # 3 is the largest of 3 and 1, and 2 of 2 and 0.5: the result moves as these two do.
    exact = [mpmath.mpf(share) for share in (1, 0, 1, 0)]
    return Proof(
        "the gradient of scatter_reduce(amax, include_self=False) where the input equals the largest source",
        slope, exact, _by_its_text, (source.detach(),),
    )  # fmt: skip


def _by_its_text(source: Tensor) -> Tensor:
    """What is the largest of its place has the slope 1."""
    first, second = source[:2], source[2:]
    return torch.cat([(first == first.amax()).to(source.dtype), (second == second.amax()).to(source.dtype)])


run(__name__, LIBRARY, VERSION, proof)
