"""Faults of a transformer, planted one at a time in one call, which `../../watched_faults.py` looks for."""

from . import backward, blocks, forward
from .model import BLOCK_SPECS as BLOCK_SPECS
from .model import LARGE_SCORES as LARGE_SCORES
from .model import LAYERS as LAYERS
from .model import OUTSIDE as OUTSIDE
from .model import SPECS as SPECS
from .model import Transformer as Transformer
from .model import build as build
from .regions import PLAN as PLAN

#: part -> wrong ones.
FAULTS = forward.PARTS | backward.PARTS
BLOCK_FAULTS = blocks.PARTS
