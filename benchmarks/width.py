"""How wide bounds are beside what a legal evaluation reaches: `python benchmarks/width.py [NAME ...] [--elements 6]`.

For each spec, of values: the half-width of the accept set and the radius, divided by the largest error of evaluations
whose roundings all push one element the same way (`workshop/checking/directed.py`), over some elements. For the chains
the target is the largest share that a half-width may be of that error; for the families the smallest share of the
radius that the error reaches. Inputs are normal and have a fixed seed; the contract is `torch`, the dtype float32.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the workshop is not installed

import torch
from torch import Tensor
from torch.nn import functional as F

import opassay
from workshop.checking.directed import decompose, directed_errors

Spec = Callable[..., Any]
#: How many times the error a half-width may be for chains, and which share of the radius the error reaches for others.
WIDEST, SHARE = 100.0, 0.3


def sinkhorn(rounds: int) -> Spec:
    def spec(x: Tensor) -> Tensor:
        p = torch.exp(x)
        for _ in range(rounds):
            p = p / p.sum(-1, keepdim=True)
            p = p / p.sum(-2, keepdim=True)
        return p

    return spec


def layer_norms(x: Tensor) -> Tensor:
    for _ in range(8):
        x = F.layer_norm(x, (x.shape[-1],))
    return x


def norms_spelled_out(x: Tensor) -> Tensor:
    for _ in range(8):
        apart = x - x.mean(-1, keepdim=True)
        x = apart * torch.rsqrt((apart * apart).mean(-1, keepdim=True) + 1e-5)
    return x


def newton_schulz(g: Tensor) -> Tensor:
    x = g / (torch.sqrt((g * g).sum()) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * (a @ a)) @ x
    return x


def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    scores = (q @ k.T) * 0.125
    powers = torch.exp(scores - scores.amax(-1, keepdim=True))
    return (powers / powers.sum(-1, keepdim=True)) @ v


def mlp(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    hidden = x @ w
    return (hidden * torch.sigmoid(hidden)) @ v


def residual(x: Tensor, w: Tensor, v: Tensor) -> Tensor:
    y = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    return x + mlp(y, w, v)


def scan(a: Tensor, b: Tensor) -> Tensor:
    h = b[0]
    for t in range(1, len(b)):
        h = a[t] * h + b[t]
    return h


def cross_entropy(x: Tensor) -> Tensor:
    largest = x.amax(-1, keepdim=True)
    return torch.log(torch.exp(x - largest).sum(-1)) + largest[..., 0] - x[:, 3]


def _draw(*shapes: tuple[int, ...]) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=generator) for shape in shapes)


def _decays(steps: int) -> tuple[Tensor, ...]:
    a, b = _draw((steps, 2), (steps, 2))
    return torch.sigmoid(a), b


#: Of each name: the spec, the same without functions of several algorithms, its inputs, and whether it is a chain.
SPECS: dict[str, tuple[Spec, Spec, Callable[[], tuple[Tensor, ...]], bool]] = {
    "Sinkhorn, 8 rounds": (sinkhorn(8), sinkhorn(8), lambda: _draw((3, 4, 4)), True),
    "Sinkhorn, 20 rounds": (sinkhorn(20), sinkhorn(20), lambda: _draw((3, 4, 4)), True),
    "8 layer norms": (layer_norms, norms_spelled_out, lambda: _draw((4, 64)), True),
    "8 layer norms, spelled out": (norms_spelled_out, norms_spelled_out, lambda: _draw((4, 64)), True),
    "Newton-Schulz, 5 steps": (newton_schulz, newton_schulz, lambda: _draw((16, 32)), True),
    "attention": (attention, attention, lambda: _draw((16, 64), (128, 64), (128, 64)), False),
    "two-layer MLP": (mlp, mlp, lambda: _draw((8, 64), (64, 128), (128, 64)), False),
    "residual block": (residual, residual, lambda: _draw((8, 64), (64, 128), (128, 64)), False),
    "scan of 256 steps": (scan, scan, lambda: _decays(256), False),
    "cross entropy of 128,256": (cross_entropy, cross_entropy, lambda: _draw((2, 128_256)), False),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of specs; all of them by default")
    parser.add_argument("--elements", type=int, default=6)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    beyond = 0
    print("| spec | half-width / error | error / radius | CPU s of the bound |\n|---|---|---|---|")
    for name, (spec, text, inputs, is_chain) in SPECS.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        tensors = inputs()
        opassay.bound(spec, *tensors)  # traced
        started = time.process_time()
        bound = opassay.bound(spec, *tensors)
        assert isinstance(bound, opassay.Bound)
        seconds = time.process_time() - started
        width = bound.half_width.reshape(-1)
        radius = width - 2.0**-24 * torch.exp2(torch.floor(torch.log2(bound.centre.reshape(-1).abs() + width)))
        graph = decompose(text, tensors)
        ratios, shares = [], []
        for element in torch.linspace(0, len(width) - 1, min(arguments.elements, len(width))).long().tolist():
            error = float(directed_errors(graph, tensors, 0, element).reshape(-1)[element].abs())
            ratios.append(float(width[element]) / error)
            shares.append(error / float(radius[element]))
        good = max(ratios) <= WIDEST if is_chain else min(shares) >= SHARE
        beyond += not good
        print(
            f"| {name} | {min(ratios):.2f} to {max(ratios):.2f} | {min(shares):.2f} to {max(shares):.2f} |"
            f" {seconds:.2f} |{'' if good else ' beyond its target'}",
            flush=True,
        )
    return 1 if beyond else 0


if __name__ == "__main__":
    sys.exit(main())
