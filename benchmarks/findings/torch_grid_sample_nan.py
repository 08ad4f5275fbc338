"""`F.grid_sample` on CPUs: the backward ends the process where the grid has a NaN

With the paddings "border" and "reflection" in two dims the forward function reads some pixel for a NaN, and for
"reflection" for an infinity, too. The backward computes an index of it that lies far outside, and writes there.

**Documented**: NaN and infinite coordinates are not spoken of; a function of tensors does not end the process.

**Does it matter?** A grid that diverges in training ends the job by a signal, without a message or a line of Python.
"""

from __future__ import annotations

import subprocess
import sys

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "torch", "2.13.0"
KIND, SEVERITY = "wrong result", "high"

_BACKWARD = """
import torch
x = torch.randn(1, 1, 4, 4, requires_grad=True)
grid = torch.full((1, 2, 2, 2), torch.nan, requires_grad=True)
torch.nn.functional.grid_sample(x, grid, padding_mode="border", align_corners=False).sum().backward()
"""


def spec(survivors: torch.Tensor) -> torch.Tensor:
    return survivors * 1.0


def proof() -> Proof:
    code = subprocess.run([sys.executable, "-c", _BACKWARD], capture_output=True).returncode
    survivors = torch.tensor([float(code >= 0)])
    return Proof(
        "backward of F.grid_sample(x, NaN, padding_mode='border'): 1 where the process goes on",
        survivors, [mpmath.mpf(1)], spec, (torch.ones(1),),
    )  # fmt: skip


run(__name__, LIBRARY, VERSION, proof)
