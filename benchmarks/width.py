"""How wide bounds are beside what a legal evaluation reaches: `python benchmarks/width.py [NAME ...] [--elements 6]`.

`python benchmarks/width.py --trees` shows instead how much narrower they are along a declared tree of sums, and
`python benchmarks/width.py --half` how wide those of chains are in half types, where evaluations store every result.
`--probes` along the trees that a probe of torch's own sums and products on this machine shows.

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
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the workshop is not installed

import torch
from torch import Tensor
from torch.nn import functional as F

import opassay
from opassay.oracles.bound.contract import Contract
from opassay.oracles.bound.terms import Terms, terms
from opassay.oracles.bound.trees import Tree
from opassay.reference.formats import FORMATS
from tests.oracles.chain_specs import layer_norms as of_norms
from tests.oracles.chain_specs import newton_schulz, sinkhorn
from workshop.checking.directed import decompose, directed_errors
from workshop.probing.tree_probe import probe

Spec = Callable[..., Any]
#: How many times the error a half-width may be for chains, and which share of the radius the error reaches for others.
WIDEST, SHARE = 100.0, 0.3
#: Eight norms in turn, each computed by one function.
layer_norms = of_norms(8)


def norms_spelled_out(x: Tensor) -> Tensor:
    for _ in range(8):
        apart = x - x.mean(-1, keepdim=True)
        # The copy marks the result of a norm, which alone is stored where a norm is one function.
        x = (apart * torch.rsqrt((apart * apart).mean(-1, keepdim=True) + 1e-5)).clone()
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


def scan_written_out(a: Tensor, b: Tensor) -> Tensor:
    """The last state as the sum of all terms, as a scan by weights has it."""
    weight, terms = torch.ones_like(b[0]), [b[-1]]
    for t in range(len(b) - 1, 0, -1):
        weight = weight * a[t]
        terms.append(weight * b[t - 1])
    return torch.stack(terms).sum(0)


def cross_entropy(x: Tensor) -> Tensor:
    largest = x.amax(-1, keepdim=True)
    return torch.log(torch.exp(x - largest).sum(-1)) + largest[..., 0] - x[:, 3]


#: Specs whose bounds along a declared tree are shown besides: their largest sums are of 4,096 terms, or of a head.
LONG: dict[str, tuple[Spec, Callable[[], tuple[Tensor, ...]]]] = {
    "sum of 4,096": (lambda x: x.sum(-1), lambda: _draw((4, 4096))),
    "product of 4,096": (lambda x, w: x @ w, lambda: _draw((4, 4096), (4096, 4))),
    "variance of 4,096": (lambda x: x.var(-1), lambda: _draw((4, 4096))),
    "RMS norm of 4,096": (lambda x: F.rms_norm(x, (x.shape[-1],)), lambda: _draw((4, 4096))),
    "attention, heads of 256": (
        lambda q, k, v: attention(q * 0.5, k, v),
        lambda: _draw((16, 256), (512, 256), (512, 256)),
    ),
}
TREES = ("pairwise", "blocks32", "lanes128")
#: Specs of one sum, which torch computes, too: of so many terms.
OF_ONE_SUM: dict[str, tuple[Spec, Callable[[int], tuple[Tensor, ...]]]] = {
    "sum of a row": (lambda x: x.sum(-1), lambda n: _draw((16, n))),
    "sum of a column": (lambda x: x.sum(0), lambda n: _draw((n, 16))),
    "mean of a row": (lambda x: x.mean(-1), lambda n: _draw((16, n))),
    "product of matrices": (lambda x, w: x @ w, lambda n: _draw((16, n), (n, 16))),
    "linear layer": (F.linear, lambda n: _draw((16, n), (16, n), (16,))),
}
LENGTHS = (64, 512, 4096)


class _NoError(Tree):
    """Additions without any error, of sums of `only` terms or of all: what is left of a radius is not theirs."""

    def height(self, terms: int) -> int:
        return 0 if self.only in (0, terms) else super().height(terms)

    def error(self, terms: int, unit: float, before: int = 0) -> float:
        return before * unit if self.only in (0, terms) else super().error(terms, unit, before)


@dataclass(frozen=True)
class _Part(Terms):
    """Terms without the errors of one part: sums, of so many terms or of all, or functions."""

    sums: int | None = None
    functions: bool = False

    def contract(self, dtype: str, device: str = "cpu", order: int = 0) -> Contract:
        whole = super().contract(dtype, device, order)
        if self.sums is not None:
            return replace(whole, tree=_NoError("", 1, self.sums))
        return replace(whole, functions=replace(whole.functions, ulps=dict.fromkeys(whole.functions.ulps, 0.0)))


def _without(**part: Any) -> Terms:
    torch_terms = terms("torch")
    return _Part(**{field.name: getattr(torch_terms, field.name) for field in fields(Terms)}, **part)


def _bound(spec: Spec, tensors: tuple[Tensor, ...], contract: str | Terms = "torch") -> opassay.Bound:
    bound = opassay.bound(spec, *tensors, contract=contract)
    assert isinstance(bound, opassay.Bound)
    return bound


def _radius(bound: opassay.Bound) -> Tensor:
    width = bound.half_width.reshape(-1)
    size = bound.centre.reshape(-1).abs() + width
    radius: Tensor = width - 2.0**-24 * torch.exp2(torch.floor(torch.log2(size)))
    return radius


def show_trees(names: list[str]) -> int:
    """Print of each spec how many times narrower a half-width is along trees, and which part of a radius is whose."""
    every = {name: (spec, inputs) for name, (spec, _, inputs, is_chain) in SPECS.items() if not is_chain} | LONG
    print(f"| spec | median half-width | {' | '.join(TREES)} | of additions | of functions |")
    print(f"|{'---|' * (4 + len(TREES))}")
    for name, (spec, inputs) in every.items():
        if names and not any(part in name for part in names):
            continue
        tensors = inputs()
        wide = _bound(spec, tensors)
        narrower = [
            float((wide.half_width / _bound(spec, tensors, f"torch+{tree}").half_width).median()) for tree in TREES
        ]
        lengths = sorted({length for tensor in tensors for length in tensor.shape if length > 8})
        parts = {length: _without(sums=length) for length in lengths}
        of_sums, of_functions, *others = (
            float((1.0 - _radius(_bound(spec, tensors, part)) / _radius(wide)).median())
            for part in (_without(sums=0), _without(functions=True), *parts.values())
        )
        shares = zip(parts, others, strict=True)
        text = "".join(f", {share:.0%} of {length} terms" for length, share in shares if share >= 0.005)
        print(
            f"| {name} | {float(wide.half_width.median()):.2e} | {' | '.join(f'{each:.1f}' for each in narrower)} |"
            f" {of_sums:.0%}{text} | {of_functions:.0%} |",
            flush=True,
        )
    return 0


def show_half_types(names: list[str], elements: int) -> int:
    """Print of each chain how many times the error of directed evaluations a half-width is, and that error itself."""
    chains = {name: each[:3] for name, each in SPECS.items() if each[3]}
    chains |= {f"Newton-Schulz, {n} steps": (*[newton_schulz(n)] * 2, lambda: _draw((16, 32))) for n in (3, 4)}
    print("| chain | dtype | half-width / error | error / largest result |\n|---|---|---|---|")
    beyond = 0
    for name, (spec, text, inputs) in chains.items():
        for dtype in (torch.bfloat16, torch.float16):
            if names and not any(part in name for part in names):
                continue
            tensors = tuple(x.to(dtype) for x in inputs())
            bound, graph = _bound(spec, tensors), decompose(text, tensors)
            width, largest = bound.half_width.reshape(-1), float(bound.centre.abs().max())
            stores, at = FORMATS[str(dtype).removeprefix("torch.")], "clone" if spec is layer_norms else ""
            ratios, sizes = [], []
            for element in torch.linspace(0, len(width) - 1, min(elements, len(width))).long().tolist():
                error = directed_errors(graph, tensors, 0, element, stores, at).reshape(-1)[element].abs()
                ratios.append(float(width[element] / error))
                sizes.append(float(error) / largest)
            good = max(ratios) <= WIDEST
            beyond += not good
            print(
                f"| {name} | {stores.name} | {min(ratios):.1f} to {max(ratios):.1f} | {min(sizes):.4f} to"
                f" {max(sizes):.4f} |{'' if good else ' beyond its target'}",
                flush=True,
            )
    return 1 if beyond else 0


def show_probes(names: list[str]) -> int:
    """Print of specs of one sum which tree torch shows, and how many times narrower half-widths are along it."""
    print("| spec | terms | height | trees in outputs | pairs | calls | narrower | in bfloat16 |")
    print("|---|---|---|---|---|---|---|---|")
    for name, (spec, draw) in OF_ONE_SUM.items():
        for terms_ in LENGTHS if not names or any(part in name for part in names) else ():
            tensors, narrower = draw(terms_), list[float]()
            for dtype in (torch.bfloat16, torch.float32):
                inputs = tuple(tensor.to(dtype) for tensor in tensors)
                result = probe(spec, spec, inputs)
                own = terms(f"torch+{result.name}")
                # Along a tree what tensor cores cut off counts, which may be more than the order.
                ratio = _bound(spec, inputs).half_width / _bound(spec, inputs, own).half_width
                narrower.append(max(float(ratio.median()), 1.0))
            height = result.name.removeprefix("height").partition("of")[0]
            pairs = sum(tree.pairs for tree in result.trees)
            print(
                f"| {name} | {terms_} | {height} | {len(result.trees)} in {result.outputs} | {pairs} |"
                f" {result.calls} | {narrower[1]:.1f} | {narrower[0]:.1f} |",
                flush=True,
            )
    return 0


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
    "Newton-Schulz, 5 steps": (newton_schulz(5), newton_schulz(5), lambda: _draw((16, 32)), True),
    "attention": (attention, attention, lambda: _draw((16, 64), (128, 64), (128, 64)), False),
    "two-layer MLP": (mlp, mlp, lambda: _draw((8, 64), (64, 128), (128, 64)), False),
    "residual block": (residual, residual, lambda: _draw((8, 64), (64, 128), (128, 64)), False),
    "scan of 256 steps": (scan, scan_written_out, lambda: _decays(256), False),
    "cross entropy of 128,256": (cross_entropy, cross_entropy, lambda: _draw((2, 128_256)), False),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="parts of names of specs; all of them by default")
    parser.add_argument("--elements", type=int, default=6)
    parser.add_argument("--trees", action="store_true")
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--probes", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.trees:
        return show_trees(arguments.names)
    if arguments.half:
        return show_half_types(arguments.names, arguments.elements)
    if arguments.probes:
        return show_probes(arguments.names)
    beyond = 0
    print("| spec | half-width / error | error / radius | CPU s of the bound |\n|---|---|---|---|")
    for name, (spec, text, inputs, is_chain) in SPECS.items():
        if arguments.names and not any(part in name for part in arguments.names):
            continue
        tensors = inputs()
        _bound(spec, tensors)  # traced
        started = time.process_time()
        bound = _bound(spec, tensors)
        seconds = time.process_time() - started
        width = bound.half_width.reshape(-1)
        radius = _radius(bound)
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
