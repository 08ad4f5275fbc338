"""Custom functions as ops: generated ones, whose truth is known, and custom functions and kernels of others."""
