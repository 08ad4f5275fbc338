"""`torch.compile`: what is written in place to a float64 tensor without dimensions is lost

A compiled function that writes in place to a tensor of float64 without dimensions on the CPU, an argument, a buffer or
a global, does not write: the tensor keeps its old value, and what is computed from it afterwards is computed from the
old one. `TORCH_LOGS=graph_code` shows that the function is traced twice, and that the write is in the first graph only;
with `torch._dynamo.config.specialize_float = True` it is traced once and right. It is right, too, in float32, with a
dimension, where the result of `add_` itself is used, and with the backend "eager"; "aot_eager" and inductor, the
default, are wrong.

**Documented**: torch.compile promises the results of the same code without it, written inputs included.

**Does it matter?** Running totals, step counters and temperatures are often scalars in float64. They stand still, with
neither an error nor a warning, as a buffer of a module does that its `forward` counts up by `self.steps.add_(1)`.
"""

from __future__ import annotations

import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"


def count(steps: torch.Tensor) -> torch.Tensor:
    """Twice the number of steps, this one included; the tensor that was passed counts on."""
    steps.add_(1.0)
    return 2 * steps


def spec(steps: torch.Tensor) -> torch.Tensor:
    return 2 * (steps + 1)


def proof() -> Proof:
    steps = torch.tensor(3.0, dtype=torch.float64)
    (three,) = numbers(steps)
    compiled = torch.compile(count, backend="aot_eager")
    return Proof(
        'torch.compile(f, backend="aot_eager")(t), t = 3 in float64; f adds 1 to t in place and returns 2 t',
        compiled(steps.clone()), [2 * (three + 1)], spec, (steps,),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
