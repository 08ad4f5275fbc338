"""Kernels of the norms on the CPU."""
