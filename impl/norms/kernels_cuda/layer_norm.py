"""Kernels of layer norm on CUDA: ATen's values, by the kernels of the CPU."""

from __future__ import annotations

from ..kernels_cpu.layer_norm import layer_norm as layer_norm
from ..kernels_cpu.layer_norm import layer_norm_backward as layer_norm_backward
from ..kernels_cpu.layer_norm import native_layer_norm as native_layer_norm
