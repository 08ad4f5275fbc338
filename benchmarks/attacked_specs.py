"""Attacks the bounds of every spec of the collection with random legal evaluations, under every preset of terms.

    python benchmarks/attacked_specs.py [NAME ...] [--evaluations 6] [--seed 0]

For each spec, of values and gradients in float32 and bfloat16: the largest error over its bound, by preset, and how
many elements lie outside (none may). Specs are where presets differ: in factors of products, stores and algorithms.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the workshop and the specs are not installed

import numpy as np
import torch

from opassay.oracles.bound.rounding import Ball, balls
from opassay.oracles.bound.terms import PRESETS
from opassay.oracles.specs import BUFFER, RESULT, SpecCall, UntraceableError, Values, trace
from opassay.reference.algorithms import Inapplicable
from opassay.reference.derivative import vjp
from tests.specs import SPECS, make_example
from workshop.checking.attacks import WIDE, Row, hold
from workshop.random_evaluation import evaluate_at_random

DTYPES = ("float32", "bfloat16")
Formula = Callable[..., Any]


def _array(tensor: torch.Tensor) -> Any:
    tensor = tensor.detach()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def _formulas_of(call: SpecCall, dtype: str) -> list[tuple[str, Formula, list[Any], int]]:
    """The values of a spec and its gradient: a name, a formula, its floating operands, and the order."""
    spec = trace(call, Values.ALL)
    arrays = [_array(t) for t in call.tensors]
    moving = [i for i, x in enumerate(call.operands) if x.dtype.is_floating_point]
    outputs = [i for i, y in enumerate(spec.outputs) if y.role == RESULT and y.dtype.is_floating_point]

    def of(moved: Sequence[Any], places: Sequence[int]) -> list[Any]:
        values = dict(zip(places, moved, strict=True))
        results = spec(*(values.get(i, array) for i, array in enumerate(arrays)))
        return [results[i] for i in outputs]

    questions = [("values", lambda *moved: of(moved, moving), [arrays[i] for i in moving], 0)]
    leaves = [i for i in moving if call.operands[i].role != BUFFER]
    if dtype == "float32" and leaves and outputs:
        draws = torch.Generator().manual_seed(0)
        shapes = [tuple(spec.outputs[i].shape) for i in outputs]
        cotangents = [_array(torch.randn(shape, generator=draws)) for shape in shapes]

        def pulled(*operands: Any) -> Any:
            count = len(leaves)
            return vjp(lambda *moved: of(moved, leaves), operands[:count])[1](*operands[count:])

        questions.append(("gradients", pulled, [*(arrays[i] for i in leaves), *cotangents], 1))
    return questions


def _attack(name: str, evaluations: int, seed: int) -> dict[tuple[str, str], Row]:
    rows: dict[tuple[str, str], Row] = {}
    for dtype in DTYPES:
        example = make_example(name, SPECS[name], getattr(torch, dtype))
        for part, formula, operands, order in _formulas_of(SpecCall.of(example.spec, *example.args), dtype):
            for preset, terms in PRESETS.items():
                contract = terms.contract(dtype, "cpu" if preset in ("strict", "torch") else "cuda", order)
                row = rows.setdefault((part, preset), Row())
                readings = balls(formula, operands, contract)
                for number in range(evaluations):
                    computed = evaluate_at_random(formula, operands, contract, np.random.default_rng([seed, number]))
                    for one, ball in zip(computed, readings, strict=True):
                        at = hold(row, one, ball) if isinstance(ball, Ball) else None
                        if at is not None:
                            print(f"  outside: {name} {dtype} {part} {preset} evaluation {number} {at}: "
                                  f"{one[at]!r}, {ball.centre[at]!r} +- {ball.radii()[at]!r}")  # fmt: skip
    return rows


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="specs of the collection; all of them by default")
    parser.add_argument("--evaluations", type=int, default=6)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    torch.set_num_threads(1)
    names = [name for name in SPECS if not options.names or any(word in name for word in options.names)]
    elements = outside = 0
    print(f"seed {options.seed}; columns: {', '.join(PRESETS)}")
    for name in names:
        try:
            rows = _attack(name, options.evaluations, options.seed)
        except (UntraceableError, Inapplicable, NotImplementedError) as err:
            print(f"{name:36s} not attacked: {type(err).__name__}: {err}", flush=True)
            continue
        for part in dict.fromkeys(part for part, _ in rows):
            of = [rows[part, preset] for preset in PRESETS]
            wide = " wide" if 0 < max(row.ratio for row in of) <= WIDE else ""
            wrong = sum(row.outside for row in of)
            print(
                f"{name:36s} {part:9s} {' '.join(f'{row.ratio:6.3f}' for row in of)} outside {wrong}{wide}", flush=True
            )
            elements, outside = elements + sum(row.elements for row in of), outside + wrong
    print(f"{elements:,} elements, {outside} outside")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
