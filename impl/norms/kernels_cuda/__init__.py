"""Kernels of the norms on CUDA."""
