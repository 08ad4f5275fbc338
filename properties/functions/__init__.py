"""Custom functions and kernels of others as ops."""
