"""Times layer norm against torch's own on the CPU: call overhead on a small input, throughput on
large ones.

Run `python benchmarks/op_overhead.py`. Both sides are timed alternately in one process and the
minimum of all rounds is kept, because on a shared machine the minimum is what the code costs and
the rest is the neighbours. Outputs of many megabytes are kept on the heap: by default glibc maps
and unmaps them, and the page faults of that take longer than the kernels.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable

import torch
from torch import Tensor

from opassay.impl import layer_norm

LayerNorm = Callable[..., Tensor]

CASES = (
    (8, 32, torch.float32, 1000),
    (512, 768, torch.float32, 20),
    (4096, 1024, torch.float32, 3),
    (512, 768, torch.bfloat16, 20),
    (4096, 1024, torch.bfloat16, 3),
)
"""(rows, row length, dtype, calls per timing)"""

ROUNDS = 15


def _seconds(call: Callable[[], object], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _forward(f: LayerNorm, rows: int, length: int, dtype: torch.dtype) -> Callable[[], object]:
    x = torch.randn(rows, length, dtype=dtype)
    weight, bias = torch.randn(length, dtype=dtype), torch.randn(length, dtype=dtype)
    shape = (length,)
    return lambda: f(x, shape, weight, bias)


def _forward_backward(f: LayerNorm, rows: int, length: int, dtype: torch.dtype) -> Callable[[], object]:
    x = torch.randn(rows, length, dtype=dtype, requires_grad=True)
    weight, bias = (torch.randn(length, dtype=dtype, requires_grad=True) for _ in range(2))
    shape, cotangent = (length,), torch.randn(rows, length, dtype=dtype)
    return lambda: torch.autograd.grad(f(x, shape, weight, bias), (x, weight, bias), cotangent)


def measure(
    make: Callable[..., Callable[[], object]], rows: int, length: int, dtype: torch.dtype, calls: int
) -> tuple[float, float]:
    """Seconds per call, ours and torch's: interleaved minima."""
    ours = make(layer_norm, rows, length, dtype)
    theirs = make(torch.nn.functional.layer_norm, rows, length, dtype)
    times = [(_seconds(ours, calls), _seconds(theirs, calls)) for _ in range(ROUNDS)]
    return min(t[0] for t in times), min(t[1] for t in times)


def _keep_large_blocks() -> None:
    """Tells glibc to serve blocks up to 32 MB, its maximum, from the heap and not to give them back."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mmap_threshold, trim_threshold = -3, -1
        mallopt(mmap_threshold, 1 << 25)
        mallopt(trim_threshold, (1 << 31) - 1)


def main() -> None:
    """Prints the table."""
    _keep_large_blocks()
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")
    print(f"{'case':28} {'pass':18} {'ours µs':>10} {'torch µs':>10} {'ratio':>6}")
    for rows, length, dtype, calls in CASES:
        for label, make in (("forward", _forward), ("forward + backward", _forward_backward)):
            ours, theirs = measure(make, rows, length, dtype, calls)
            case = f"{rows}x{length} {str(dtype).removeprefix('torch.')}"
            print(f"{case:28} {label:18} {ours * 1e6:10.2f} {theirs * 1e6:10.2f} {ours / theirs:6.2f}")


if __name__ == "__main__":
    main()
