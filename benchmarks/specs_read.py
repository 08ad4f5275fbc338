"""Reads every spec of the collection, and holds torch's eager results against what was read.

    python benchmarks/specs_read.py [NAME ...] [--dtype float32 ...] [--gradients]

For each spec: whether it is read, how many elements were judged, and per dtype the largest error over its bound (above
1: not accepted) and the median half-width of the accept sets in ulp; then how long reading and judging took.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from specs import SPECS, made

from opassay.oracles import accept
from opassay.oracles.contract import contract
from opassay.oracles.rounding import Ball, balls
from opassay.oracles.specs import BUFFER, PARAMETER, RESULT, Call, UntraceableError, trace
from opassay.reference.derivative import vjp
from opassay.reference.formats import FORMATS

DTYPES = ("float32", "bfloat16", "float16")


@dataclass
class Found:
    """What one spec showed in one dtype.

    Attributes:
        judged: elements. refused: elements outside their accept sets. worst: the largest error over its bound.
        widths: half-widths of the accept sets in ulp.
    """

    judged: int = 0
    refused: int = 0
    worst: float = 0.0
    widths: list[np.ndarray] = field(default_factory=list)

    def line(self) -> str:
        widths = np.concatenate([np.ravel(w) for w in self.widths]) if self.widths else np.zeros(0)
        widths = widths[np.isfinite(widths)]
        median = f"{np.median(widths):9.3g} ulp" if widths.size else f"{'':13s}"
        told = f"{self.worst:6.3f} {median}" if self.judged else "  nothing judged   "
        return told + (f" REFUSED {self.refused}" if self.refused else "")


def read_and_hold(call: Call, results: list[torch.Tensor], after: list[torch.Tensor], dtype: str) -> Found:
    """torch's own results for a spec, held against the balls that its reading gives."""
    spec = trace(call, of_values=True)
    computed = [*results, *(after[i] for i in spec.written)]
    # torch stores every intermediate of a graph that it runs operation by operation.
    terms = replace(contract(dtype), intermediates=True)
    read = balls(spec, [_values(t) for t in call.tensors], terms)
    found = Found()
    for ball, tensor in zip(read, computed, strict=True):
        _hold(found, ball, tensor.detach())
    return found


def _moving(call: Call) -> list[int]:
    return [i for i, x in enumerate(call.operands) if x.dtype.is_floating_point and x.role != BUFFER]


def gradients(call: Call, moving: list[int]) -> Found:
    """torch's own gradients in float32, held against those that the reading of the spec has."""
    spec = trace(call, of_values=True)
    results = [i for i, y in enumerate(spec.outputs) if y.role == RESULT and y.dtype.is_floating_point]
    leaves = [t.detach().clone().requires_grad_(i in moving) for i, t in enumerate(call.tensors)]
    found = Found()
    with torch.enable_grad():
        outputs = [call.outputs(*leaves)[0][i] for i in results]
        outputs, results = zip(*((y, i) for y, i in zip(outputs, results, strict=True) if y.requires_grad), strict=True)
        cotangents = [torch.randn(y.shape) for y in outputs]
        pulled = torch.autograd.grad(outputs, [leaves[i] for i in moving], cotangents, allow_unused=True)

    def formula(*operands: object) -> object:
        arrays = [_values(t) for t in call.tensors]

        def of_moving(*moved: object) -> list[object]:
            given = dict(zip(moving, moved, strict=True))
            read = spec(*(given.get(i, array) for i, array in enumerate(arrays)))
            return [read[i] for i in results]

        return vjp(of_moving, operands[: len(moving)])[1](*operands[len(moving) :])

    operands = [call.tensors[i] for i in moving] + cotangents
    read = balls(formula, [_values(t) for t in operands], replace(contract("float32", order=1), intermediates=True))
    for ball, gradient, i in zip(read, pulled, moving, strict=True):
        _hold(found, ball, torch.zeros(call.tensors[i].shape) if gradient is None else gradient)
    return found


def _values(tensor: torch.Tensor) -> object:
    tensor = tensor.detach()
    return tensor.double().numpy() if tensor.is_floating_point() else tensor.numpy()


def _hold(found: Found, ball: object, tensor: torch.Tensor) -> None:
    found.judged += tensor.numel()
    if not isinstance(ball, Ball):
        found.refused += int(np.sum(np.asarray(ball) != tensor.numpy()))
        return
    fmt = FORMATS[str(tensor.dtype).removeprefix("torch.")]
    elements = accept.judge(tensor.double().numpy(), fmt, ball, None)
    found.judged -= int(np.sum(~elements.judged))
    found.refused += int(np.sum(~elements.accepted))
    found.worst = max(found.worst, float(np.max(elements.ratio, initial=0.0)))
    found.widths.append(elements.width)


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="specs of the collection; all of them by default")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--gradients", action="store_true", help="hold torch's gradients in float32, too")
    told = parser.parse_args()
    torch.set_num_threads(1)
    read, judged, refused, begun = 0, 0, 0, time.perf_counter()
    names = [name for name in SPECS if not told.names or any(word in name for word in told.names)]
    for name in names:
        start = time.perf_counter()
        parts = []
        try:
            for dtype in told.dtype:
                example = made(name, SPECS[name], getattr(torch, dtype))
                call = Call.of(example.spec, *example.args)
                try:
                    results, after = call.outputs(*call.tensors)
                except (NotImplementedError, RuntimeError) as err:
                    parts.append(f"{f'torch: {err}':.30s}")
                    continue
                found = read_and_hold(call, results, after, dtype)
                judged, refused = judged + found.judged, refused + found.refused
                parts.append(found.line())
            if told.gradients:
                example = made(name, SPECS[name])
                call = Call.of(example.spec, *example.args)
                try:
                    found = gradients(call, _moving(call))
                except RuntimeError:  # Of targets and weights of losses torch has no gradients.
                    found = gradients(call, [i for i in _moving(call) if i == 0 or call.operands[i].role == PARAMETER])
                judged, refused = judged + found.judged, refused + found.refused
                parts.append(f"gradients {found.line()}")
            read += 1
        except UntraceableError as err:
            parts.append(f"not read: {err}")
        except Exception as err:
            parts.append(f"ERROR {type(err).__name__}: {err}")
        print(f"{name:36s} {' | '.join(parts)} {time.perf_counter() - start:6.2f} s", flush=True)
    seconds = time.perf_counter() - begun
    print(f"{read} of {len(names)} specs read, {judged} elements judged, {refused} refused, {seconds:.0f} s")
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
