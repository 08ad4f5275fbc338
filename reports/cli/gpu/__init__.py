"""The command about the kernels of CUDA, and how its tables are written."""
