"""flash-linear-attention, `softmax_fwd`: of strided rows it reads other numbers, and memory behind the tensor

The function makes rows of the tensor by `view` and starts a program for each, which reads D numbers from row · D on.
That is right of contiguous tensors alone. Of every second column of a matrix it is the softmax of other numbers of
the matrix, and of an expanded row memory behind the tensor is read. The kernel was run in Triton's interpreter.

**Documented**: nothing; the functions of the library around it take strided tensors, or make them contiguous.

**Does it matter?** The library's own calls pass new tensors, which are contiguous. It is exported, and whoever passes
a slice gets other numbers in silence.
"""

from __future__ import annotations

import os

import mpmath
import torch
from proof import Proof, numbers, run

LIBRARY, VERSION = "fla-core", "0.6.0"
KIND, SEVERITY = "wrong result", "low"


def proof() -> Proof:
    os.environ["TRITON_INTERPRET"] = "1"
    from fla.ops.utils import softmax

    kernel = softmax.softmax_fwd_kernel
    kernel.configs = kernel.configs[:1]  # the tuner asks for a driver where there are several
    x = torch.tensor([[1.0, 9.0, 2.0, 9.0], [3.0, 9.0, 5.0, 9.0]])[:, ::2]
    powers = [[mpmath.exp(value) for value in numbers(row)] for row in x]
    exact = [power / sum(row) for row in powers for power in row]
    call = "fla.ops.utils.softmax_fwd of [[1, 2], [3, 5]], every second column of a matrix"
    return Proof(call, softmax.softmax_fwd(x), exact, lambda x: torch.softmax(x, -1), (x,))


run(__name__, LIBRARY, VERSION, proof)
