"""Whether tolerances that were derived from a few inputs refuse what is right at others.

python -m benchmarks.derived_tolerances [MILLIONS] [--libraries]

Evaluations are compared by the tolerance of each spec and dtype, at fresh inputs: torch's own with that of float64 (or
float32), rounded; with `--libraries` torch's own with functions of installed libraries, which are said where they are
absent. None may be refused. The last column has the largest difference as a share of what is accepted.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

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


def sigmoid(x: Tensor) -> Tensor:
    return torch.sigmoid(x)


def _image(x: Tensor) -> Tensor:
    return x[:, :126].reshape(-1, 3, 6, 7)


def yuv(x: Tensor) -> Tensor:
    r, g, b = _image(x).unbind(1)
    return torch.stack([0.299 * r + 0.587 * g + 0.114 * b, -0.147 * r - 0.289 * g + 0.436 * b,
                        0.615 * r - 0.515 * g - 0.100 * b], 1)  # fmt: skip


def grayscale(x: Tensor) -> Tensor:
    r, g, b = _image(x).unbind(1)
    return (0.299 * r + 0.587 * g + 0.114 * b)[:, None]


def box_blur(x: Tensor) -> Tensor:
    return functional.avg_pool2d(functional.pad(_image(x), (1, 1, 1, 1), "reflect"), 3, 1)


def gradients(x: Tensor) -> Tensor:
    sobel = torch.tensor([[-1.0, 0.0, 1.0], [-2.0, 0.0, 2.0], [-1.0, 0.0, 1.0]], dtype=x.dtype) / 8
    padded = functional.pad(_image(x).reshape(-1, 1, 6, 7), (1, 1, 1, 1), "replicate")
    return functional.conv2d(padded, torch.stack([sobel, sobel.T])[:, None]).reshape(-1, 3, 2, 6, 7)


def sparsemax(x: Tensor) -> Tensor:
    ordered = x.sort(-1, descending=True).values
    counts = torch.arange(1, x.shape[-1] + 1, dtype=x.dtype)
    thresholds = (ordered.cumsum(-1) - 1) / counts
    return (x - thresholds.amax(-1, keepdim=True)).clamp(min=0)


def _heads(x: Tensor) -> Sequence[Tensor]:
    return x[:192].reshape(3, 1, 32, 4, 64).unbind(0)


def linear_attention(x: Tensor) -> Tensor:
    """Causal linear attention: queries, keys and values of 32 positions, 4 heads of 64."""
    q, k, v = (t.transpose(1, 2) for t in _heads(x))
    return ((q * 64**-0.5) @ k.mT).tril() @ v


def kronecker(x: Tensor) -> Tensor:
    a, b, y = x[:8, :8], x[8:24, :16], x[24:40].reshape(8, 16, 16)
    return torch.einsum("ij,kl,jlc->ikc", a, b, y).reshape(128, 16)


OWN = (softmax, log_softmax, gelu, silu, rms_norm, layer_norm, logsumexp, product, gated)
DTYPES = ("float32", "bfloat16", "float16")


class Other(NamedTuple):
    """A function of a library: its distribution and module, what it computes, and how it is called with x."""

    library: str
    module: str
    spec: Callable[[Tensor], Tensor]
    call: Callable[[Any, Tensor], Tensor]


def _of_numpy(name: str, **how: int) -> Callable[[Any, Tensor], Tensor]:
    return lambda m, x: torch.from_numpy(getattr(m, name)(x.double().numpy(), **how)).to(x.dtype)


LIBRARIES = (
    Other("kornia", "kornia.color", yuv, lambda m, x: m.rgb_to_yuv(_image(x))),
    Other("kornia", "kornia.color", grayscale, lambda m, x: m.rgb_to_grayscale(_image(x))),
    Other("kornia", "kornia.filters", box_blur, lambda m, x: m.box_blur(_image(x), 3)),
    Other("kornia", "kornia.filters", gradients, lambda m, x: m.spatial_gradient(_image(x))),
    Other("entmax", "entmax", sparsemax, lambda m, x: m.sparsemax(x, -1)),
    Other("scipy", "scipy.special", softmax, _of_numpy("softmax", axis=-1)),
    Other("scipy", "scipy.special", log_softmax, _of_numpy("log_softmax", axis=-1)),
    Other("scipy", "scipy.special", logsumexp, _of_numpy("logsumexp", axis=-1)),
    Other("scipy", "scipy.special", sigmoid, _of_numpy("expit")),
    Other("fla-core", "fla.modules.layernorm", rms_norm, lambda m, x: m.rms_norm_ref(x, torch.ones_like(x[0]), None)),
    Other("fla-core", "fla.modules.layernorm", layer_norm,
          lambda m, x: m.layer_norm_ref(x, torch.ones_like(x[0]), torch.zeros_like(x[0]))),
    Other("fla-core", "fla.ops.linear_attn.naive", linear_attention,
          lambda m, x: m.naive_recurrent_linear_attn(*_heads(x), normalize=False)[0].transpose(1, 2)),
    Other("linear_operator", "linear_operator.operators", kronecker,
          lambda m, x: m.KroneckerProductLinearOperator(m.DenseLinearOperator(x[:8, :8]),
                                                        m.DenseLinearOperator(x[8:24, :16]))
          @ x[24:40].reshape(128, 16)),
)  # fmt: skip


def inputs() -> tuple[Tensor, ...]:
    """What tolerances are derived from, and compared at."""
    return (torch.randn(ROWS, N),)


def count_refused(
    label: str, spec: Callable[[Tensor], Tensor], evaluations: Sequence[Callable[[Tensor], Tensor]], wanted: float
) -> tuple[int, int]:
    """Elements of a spec that are compared, and those that its tolerances refuse; prints a line for each dtype."""
    compared = refusals = 0
    for row in derive_tolerances(f"{Path(__file__)}:{spec.__name__}", DTYPES, [{}], "torch"):
        dtype, count, wrong, largest = getattr(torch, row.dtype), 0, 0, 0.0
        generator = torch.Generator().manual_seed(1000)
        while count < wanted / len(DTYPES):
            x = torch.randn(ROWS, N, generator=generator).to(dtype)
            right = spec(x).double()
            for evaluation in evaluations:
                other = evaluation(x).to(dtype).double()
                share = (other - right).abs() / (row.pair.atol + row.pair.rtol * right.abs())
                share = torch.where(other == right, 0.0, share)
                wrong, largest = wrong + int((share > 1).sum()), max(largest, float(share.max()))
                count += right.numel()
        compared, refusals = compared + count, refusals + wrong
        numbers = f"{row.pair.atol:>9.2g}{row.pair.rtol:>9.2g}{count:>10}{wrong:>7}{largest:>9.2g}"
        print(f"{label:32}{row.dtype:10}{numbers}", flush=True)
    return compared, refusals


def count_of_libraries(wanted: float) -> list[tuple[int, int]]:
    """The counts of every function whose library is installed."""
    counts = []
    for other in LIBRARIES:
        label = f"{other.library} {other.spec.__name__}"
        try:
            module = importlib.import_module(other.module)
        except ImportError as err:
            print(f"{label:32}not compared: {err}")
            continue
        label = f"{other.library} {importlib.metadata.version(other.library)} {other.spec.__name__}"
        counts.append(count_refused(label, other.spec, [lambda x, o=other, m=module: o.call(m, x)], wanted))
    return counts


def main() -> None:
    """Print a line for each spec and dtype, and the sum."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("millions", nargs="?", type=float, default=10.0)
    parser.add_argument("--libraries", action="store_true", help="functions of installed libraries, not torch's alone")
    options = parser.parse_args()
    print(f"{'spec':32}{'dtype':10}{'atol':>9}{'rtol':>9}{'elements':>10}{'false':>7}{'largest':>9}")
    if options.libraries:
        counts = count_of_libraries(options.millions * 1e6 / len(LIBRARIES))
    else:
        share = math.ceil(options.millions * 1e6 / len(OWN))
        counts = [
            count_refused(s.__name__, s, [lambda x, s=s: s(x.double()), lambda x, s=s: s(x.float())], share)
            for s in OWN
        ]
    print(f"{sum(n for n, _ in counts)} elements, {sum(bad for _, bad in counts)} of them refused")


if __name__ == "__main__":
    main()
