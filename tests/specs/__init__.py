"""Specs in plain PyTorch of the kinds that kernel authors have: single operations, fused chains, small networks.

Sizes are small: a spec is here for what it says, and its shapes are odd where kernels have tails.
"""

from .fused import FUSED as FUSED
from .holding import Agreement as Agreement
from .holding import bounds as bounds
from .holding import gradients as gradients
from .holding import hold as hold
from .holding import pullback as pullback
from .holding import values as values
from .making import Example as Example
from .making import make_example as make_example
from .networks import NETWORKS as NETWORKS
from .sampled import SAMPLED as SAMPLED
from .single import SINGLE as SINGLE

#: Every spec by its name: a function that makes the spec and the arguments of one call.
SPECS = {**SINGLE, **SAMPLED, **FUSED, **NETWORKS}
