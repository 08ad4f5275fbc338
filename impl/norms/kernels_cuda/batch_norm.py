"""Kernels of batch norm on CUDA: ATen's values, by the kernels of the CPU."""

from __future__ import annotations

from ..kernels_cpu.batch_norm import batch_norm_backward as batch_norm_backward
from ..kernels_cpu.batch_norm import batch_norm_evaluation as batch_norm_evaluation
from ..kernels_cpu.batch_norm import batch_norm_evaluation_backward as batch_norm_evaluation_backward
from ..kernels_cpu.batch_norm import batch_norm_training as batch_norm_training
