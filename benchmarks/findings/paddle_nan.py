"""Paddle on the CPU: a NaN disappears in `relu`, `max_pool2d`, `logcumsumexp` and `sinc`

`relu` makes 0 of it, `max_pool2d` takes the largest of the other numbers, `logcumsumexp` goes on as if it were not
there, and `sinc` has 1 for it, as for 0 and for infinity. `relu6`, `leaky_relu`, `maximum` and `logsumexp` keep it.

**Documented**: nothing of NaN; max(x, 0), the maximum of a window, and so on.

**Does it matter?** Who looks for NaN in outputs or losses does not find that activations have become NaN.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "paddlepaddle", "3.3.1"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    import paddle

    x = torch.tensor([1.0, torch.nan, 2.0])
    computed = torch.tensor(paddle.logcumsumexp(paddle.to_tensor(x.tolist(), place="cpu")).tolist())
    first, missing = numbers(x)[:2]
    call = "paddle.logcumsumexp of [1, nan, 2]"
    return Proof(call, computed, [first, missing, missing], lambda x: torch.logcumsumexp(x, -1), (x,))


run(__name__, LIBRARY, VERSION, proof)
