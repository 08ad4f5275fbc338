"""Aten operations of images and other signals: convolved, pooled, interpolated and sampled."""

from . import antialiasing as antialiasing  # The modules enter their rules into the table.
from . import convolution as convolution
from . import grids as grids
from . import interpolation as interpolation
from . import pooling as pooling
