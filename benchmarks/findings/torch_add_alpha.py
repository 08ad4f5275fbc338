"""`torch.add` and `torch.sub` of half types on CPUs: `alpha` is rounded to the half type

x + alpha·y of bfloat16 or float16 is computed with an alpha that is rounded to that type: 900 − 0.9·1000 is 1.5625
where 0.9 becomes 0.8984375, as in bfloat16. `torch._foreach_add` and `_foreach_sub` do the same. Of elements behind the
last whole vector the product is rounded to the type as well, so that a result depends on its place: so it is of all of
66,400 such elements of each type, and of none of 76,800 others. `y * 0.9` has neither.

**Documented**: input + alpha × other, with alpha a number and no tensor of the type.

**Does it matter?** `torch.optim.SGD` adds the gradient with alpha = −lr, so its learning rate is off by up to 0.2
percent in bfloat16, and so is the weight decay. On GPUs alpha keeps its digits.
"""

from __future__ import annotations

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "less accurate", "medium"
_ALPHA = 0.9


def spec(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.add(x, y, alpha=_ALPHA)


def proof() -> Proof:
    y = torch.tensor([1000.0, 1024.0, 1.5, 7.0] * 8).bfloat16()
    x = torch.tensor([-900.0, 0.0, -1.0, 1.0] * 8).bfloat16()
    exact = [a + mpmath.mpf(_ALPHA) * b for a, b in zip(numbers(x), numbers(y), strict=True)]
    return Proof(
        "torch.add of 32 numbers, -900, 0, -1, 1, and 1000, 1024, 1.5, 7 with alpha=0.9, bfloat16",
        torch.add(x, y, alpha=_ALPHA), exact, spec, (x, y),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
