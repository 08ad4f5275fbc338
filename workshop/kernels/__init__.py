"""The kernels of the production ops on CUDA, judged without a GPU: shape classes, machine code, traffic."""
