"""What the CUDA kernels of all families share: how they are launched, in which blocks, and with what arithmetic.

No module here imports Triton but `arithmetic.py` and the families' own `kernels_triton.py`, and these are imported when
the first CUDA tensor arrives.
"""
