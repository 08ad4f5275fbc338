"""Flax, `nnx.LayerNorm`: wrong in the first digit where the mean is a thousand times the spread

`LayerNorm`, `GroupNorm`, `InstanceNorm` and `BatchNorm`, in `linen` and in `nnx`, take the variance as E[x²] − E[x]² by
default (`use_fast_variance=True`).

**Documented**: "a faster, but less numerically stable, calculation for the variance". How much less is not said.

**Does it matter?** Yes, for a default: the output is off by a tenth, and with ε = 1e-6 it is 950 in place of 1.7 at a
mean of 3000. `use_fast_variance=False` is off by 1.4e-5 and 1.1e-4 there, torch's layer norm by 2.4e-5 and 1.9e-4.
"""

from __future__ import annotations

import os

import numpy as np
import torch
from proof import Proof, around, normalisation, normalised, run

LIBRARY, VERSION = "flax", "0.12.8"
KIND, SEVERITY = "wrong result", "medium"


def proof() -> Proof:
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax
    from flax import nnx

    x = around(1000.0)
    module = nnx.LayerNorm(8, rngs=nnx.Rngs(0))
    computed = torch.from_numpy(np.array(module(jax.numpy.array(x.numpy()))))
    call = "flax.nnx.LayerNorm(8) of 8 float32 numbers around 1000, epsilon 1e-6"
    return Proof(call, computed, normalised(x, "1e-6"), normalisation(1e-6), (x,))


run(__name__, LIBRARY, VERSION, proof)
