"""`F.scaled_dot_product_attention`: reverse over forward mode is NaN where a query sees no key

A query whose keys are all masked gets zeros, by an operation that computes softmax so that such rows are 0. Its rule
for forward mode multiplies the result by the derivative of a logarithm of a sum; of a row of −∞ the derivative of
that is NaN, and 0 · NaN is NaN. Reverse mode twice, and forward over either mode, are right. Seen with
`SDPBackend.MATH`, the backend that has forward mode.

**Documented**: rows that are masked altogether give zeros, as the change that made it so says.

**Does it matter?** Padding has such rows in almost every batch, and one NaN spoils the gradient of all weights:
training by Hessian-vector products, or by forward gradients, ends.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def spec(query: torch.Tensor) -> torch.Tensor:
    return query * 0.0


def proof() -> Proof:
    from torch.nn.attention import SDPBackend, sdpa_kernel

    query, keys = torch.ones(1, 1, 2, 2, dtype=torch.float64), torch.eye(2, dtype=torch.float64).reshape(1, 1, 2, 2)
    mask = torch.tensor([[False, False], [True, True]])  # the first query sees no key

    def attend(query: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, keys, keys, attn_mask=mask)[..., 0].sum()

    def slope(query: torch.Tensor) -> torch.Tensor:
        _, tangent = torch.func.jvp(attend, (query,), (torch.ones_like(query),))
        return tangent

    with sdpa_kernel(SDPBackend.MATH):
        computed = torch.func.grad(slope)(query)[0, 0, 0]
    return Proof(
        "torch.func.grad(lambda q: torch.func.jvp(attention, (q,), (t,))[1])(q), at a query that sees no key",
        computed, [mpmath.mpf(0)] * 2, spec, (query[0, 0, 0],),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
