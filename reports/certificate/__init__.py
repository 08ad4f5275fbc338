"""Certificates: what is claimed of an op, on what evidence, and whether it still holds."""
