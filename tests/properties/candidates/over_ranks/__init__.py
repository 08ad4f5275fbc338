"""Kernels of several ranks, right and wrong, a file for each kind: `reference`, its placements, and implementations."""
