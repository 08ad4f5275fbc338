"""Texts of the norms' Triton kernels."""
