"""Whether tolerances that were derived from a few inputs refuse what is right at others.

python -m benchmarks.derived_tolerances [MILLIONS]

Two evaluations are compared by the tolerance of each spec and dtype, at fresh inputs: torch's own, and that of float64
(or float32), rounded. None may be refused. The last column has the largest difference as a share of what is accepted.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from torch.nn import functional

from opassay.properties.candidates.tolerances import derive_tolerances

Tensor = torch.Tensor
ROWS, N = 256, 128


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def log_softmax(x: Tensor) -> Tensor:
    return torch.log_softmax(x, -1)


def gelu(x: Tensor) -> Tensor:
    return functional.gelu(x)


def silu(x: Tensor) -> Tensor:
    return functional.silu(x)


def rms_norm(x: Tensor) -> Tensor:
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def layer_norm(x: Tensor) -> Tensor:
    return functional.layer_norm(x, x.shape[-1:])


def logsumexp(x: Tensor) -> Tensor:
    return x.logsumexp(-1)


def product(x: Tensor) -> Tensor:
    return x @ x.T


def gated(x: Tensor) -> Tensor:
    a, b = x.chunk(2, -1)
    return functional.silu(a) * b


SPECS = (softmax, log_softmax, gelu, silu, rms_norm, layer_norm, logsumexp, product, gated)
DTYPES = ("float32", "bfloat16", "float16")


def inputs() -> tuple[Tensor, ...]:
    """What tolerances are derived from, and compared at."""
    return (torch.randn(ROWS, N),)


def main() -> None:
    """Print a line for each spec and dtype, and the sum."""
    wanted = float(sys.argv[1]) * 1e6 if len(sys.argv) > 1 else 1e7
    every = compared = 0
    print(f"{'spec':12}{'dtype':10}{'atol':>9}{'rtol':>9}{'elements':>10}{'false':>7}{'largest':>9}")
    for spec in SPECS:
        for row in derive_tolerances(f"{Path(__file__)}:{spec.__name__}", DTYPES, [{}], "torch"):
            dtype, count, wrong, largest = getattr(torch, row.dtype), 0, 0, 0.0
            generator = torch.Generator().manual_seed(1000)
            while count < wanted / len(SPECS) / len(DTYPES):
                x = torch.randn(ROWS, N, generator=generator).to(dtype)
                right = spec(x).double()
                for other in (spec(x.double()).to(dtype), spec(x.float()).to(dtype)):
                    share = (other.double() - right).abs() / (row.pair.atol + row.pair.rtol * right.abs())
                    share = torch.where(other.double() == right, 0.0, share)
                    wrong, largest = wrong + int((share > 1).sum()), max(largest, float(share.max()))
                    count += right.numel()
            every, compared = every + wrong, compared + count
            numbers = f"{row.pair.atol:>9.2g}{row.pair.rtol:>9.2g}{count:>10}{wrong:>7}{largest:>9.2g}"
            print(f"{spec.__name__:12}{row.dtype:10}{numbers}", flush=True)
    print(f"{compared} elements, {every} of them refused")


if __name__ == "__main__":
    main()
