"""A rehearsal of CUDA: what is done on a GPU is done on two devices of host memory, with kernels executed as PTX.

What this is for: the ways through torch, through somebody's host code and through opassay that only CUDA tensors take,
on a machine without a GPU. What is rehearsed is not measured: no report says "CUDA" of a result of it but "rehearsal
device (host memory)". `docs/rehearsed.md` says what it can show and what it cannot.
"""
