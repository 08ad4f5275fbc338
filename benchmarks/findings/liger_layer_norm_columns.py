"""Liger, `LigerLayerNorm` on Hopper: rows that do not fill the threads' loads are scaled too small

On GPUs since sm_90 the kernel of CuTe DSL is taken where it is installed. It reads rows in tiles of 256 elements of
half types or 128 of float32 (fewer for short rows), and zeros behind the row. The mean divides by the row's length, so
zeros do no harm; the variance then counts (0 − mean)² for each of them. QuACK, from which the kernel was taken, sets
those columns to 0 again (`utils.fill_oob`); the copy has not this line. Lengths of 320, 1600 and, in half types, 1152
are such rows; 768 and 4096 are not. Here the PTX was executed.

**Documented**: (x − E[x]) / sqrt(Var[x] + ε); the documentation of the kernel has "var = sum((x - mean)^2) / N".

**Does it matter?** The error grows with the square of the mean by the spread: none at mean 0, at which kernels are
tested; at a length of 1600 in bfloat16 all outputs are 5.5% too small where the mean is as large as the spread. The
reciprocal deviation that the backward reads is wrong as well.
"""

from __future__ import annotations

import os
import sys

import torch
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "liger-kernel", "0.8.5"
KIND, SEVERITY = "wrong result", "high"


def proof() -> Proof:
    if not torch.cuda.is_available():  # without a GPU on the rehearsal device, which a process has from its start
        os.execv(sys.executable, [sys.executable, "-m", "opassay.properties.rehearsal", *sys.argv])
    from liger_kernel.functional import layer_norm

    x = around(2.0)
    operands = (each.cuda() for each in (x.reshape(1, 8), torch.ones(8), torch.zeros(8)))
    computed = layer_norm(*operands, 1e-5).cpu()
    call = "liger_kernel.functional.layer_norm of 8 numbers around 2, eps 1e-5, compiled for sm_90"
    return Proof(call, computed.reshape(-1), normalised(x, "1e-5"), normalisation(1e-5), (x,))


run(__name__, LIBRARY, VERSION, proof)
