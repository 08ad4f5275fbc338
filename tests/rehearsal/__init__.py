"""A rehearsal of CUDA: what opassay does on a GPU is done on two devices of host memory, with kernels executed as PTX.

What this is for: the ways through torch and through opassay that only CUDA tensors take, on a machine without a GPU.
What is rehearsed is not measured, and nothing here is part of the package: no report of it says "CUDA" of a result but
"rehearsal device (host memory)". README.md says what it can show and what it cannot.

`python -m tests.rehearsal COMMAND...` runs a command, and all Python processes that it starts, under the rehearsal.
"""
