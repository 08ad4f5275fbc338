"""A machine for PTX without a GPU: what Triton compiled, executed with NumPy, every address and every order judged."""
