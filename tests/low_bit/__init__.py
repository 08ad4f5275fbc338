"""Kernels of few bits: what they mean, versions of them that are right, and mistakes that are made in them."""
