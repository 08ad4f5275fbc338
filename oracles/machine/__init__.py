"""A machine for Triton kernels without a GPU: Triton's interpreter, every address judged and every byte booked."""
