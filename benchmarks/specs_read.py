"""Reads every spec of the collection, and holds torch's eager results against what was read.

    python benchmarks/specs_read.py [NAME ...] [--dtype float32 ...]

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
from specs import SPECS, Example, made

from opassay.oracles import accept
from opassay.oracles.contract import contract
from opassay.oracles.rounding import Ball, balls
from opassay.oracles.specs import Call, UntraceableError, trace
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


def read_and_hold(example: Example, dtype: str) -> Found:
    """torch's own results for a spec, held against the balls that its reading gives."""
    call = Call.of(example.spec, *example.args)
    spec = trace(call, of_values=True)
    with torch.no_grad():
        torch.manual_seed(0)
        results, after = call.outputs(*call.tensors)
    computed = [*results, *(after[i] for i in spec.written)]
    # torch stores every intermediate of a graph that it runs operation by operation.
    terms = replace(contract(dtype), intermediates=True)
    read = balls(spec, [_values(t) for t in call.tensors], terms)
    found = Found()
    for ball, tensor in zip(read, computed, strict=True):
        _hold(found, ball, tensor)
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="specs of the collection; all of them by default")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    told = parser.parse_args()
    torch.set_num_threads(1)
    read, judged, refused, begun = 0, 0, 0, time.perf_counter()
    names = [name for name in SPECS if not told.names or any(word in name for word in told.names)]
    for name in names:
        start = time.perf_counter()
        parts = []
        try:
            for dtype in told.dtype:
                found = read_and_hold(made(name, SPECS[name], getattr(torch, dtype)), dtype)
                judged, refused = judged + found.judged, refused + found.refused
                parts.append(found.line())
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
