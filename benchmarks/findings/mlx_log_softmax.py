"""MLX on the CPU, `nn.log_softmax`: the process ends where a row has one element

Of a matrix with one column the function ends the process by a segmentation fault. It is compiled with
`shapeless=True`, and so does any function that is compiled so and takes from a column its largest element with
`keepdims=True`. Compiled for a shape, or not compiled, they are right.

**Documented**: the function; of `shapeless`, that a function is not compiled again for other shapes.

**Does it matter?** A classifier of one class, or a loop over vocabularies that comes to one, ends without a traceback.
"""

from __future__ import annotations

import subprocess
import sys

import mpmath
import torch
from proof import Proof, run

LIBRARY, VERSION = "mlx", "0.32.4"
KIND, SEVERITY = "wrong result", "medium"


_CODE = "import mlx.core as mx; from mlx import nn; print(nn.log_softmax(mx.zeros((2, 1))).tolist())"


def proof() -> Proof:
    ended = subprocess.run([sys.executable, "-c", _CODE], capture_output=True, check=False)
    computed = torch.zeros(2, 1) if ended.returncode == 0 else torch.full((2, 1), torch.nan)
    call = f"mlx.nn.log_softmax of a matrix of zeros with one column, which ends with {ended.returncode}"
    return Proof(call, computed, [mpmath.mpf(0)] * 2, lambda x: torch.log_softmax(x, -1), (torch.zeros(2, 1),))


run(__name__, LIBRARY, VERSION, proof)
