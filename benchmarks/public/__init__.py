"""Public kernels as their packages launch them, for `../public_kernels.py`: a module for each kind."""
