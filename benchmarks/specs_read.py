"""Reads every spec of the collection, and holds torch's eager results against what was read.

    python benchmarks/specs_read.py [NAME ...] [--dtype float32 ...] [--gradients]

For each spec: whether it is read, how many elements were judged, and per dtype the largest error over its bound (above
1: not accepted) and the median half-width of the accept sets in ulp; then how long reading and judging took.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the collection of specs stands beside the tests

import torch

from opassay.oracles.specs import SpecCall, UntraceableError
from tests.specs import SPECS, gradients, make_example, values

DTYPES = ("float32", "bfloat16", "float16")


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="specs of the collection; all of them by default")
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=DTYPES)
    parser.add_argument("--gradients", action="store_true", help="hold torch's gradients in float32, too")
    options = parser.parse_args()
    torch.set_num_threads(1)
    read, judged, refusals, begun = 0, 0, 0, time.perf_counter()
    names = [name for name in SPECS if not options.names or any(word in name for word in options.names)]
    for name in names:
        start = time.perf_counter()
        parts = []
        try:
            for dtype in options.dtype:
                example = make_example(name, SPECS[name], getattr(torch, dtype))
                call = SpecCall.of(example.spec, *example.args)
                try:
                    results, after = call.outputs(*call.tensors)
                except (NotImplementedError, RuntimeError) as err:
                    parts.append(f"{f'torch: {err}':.30s}")
                    continue
                result = values(call, dtype, results, after)
                judged, refusals = judged + result.judged, refusals + result.refusals
                parts.append(result.line())
            if options.gradients:
                example = make_example(name, SPECS[name])
                result = gradients(SpecCall.of(example.spec, *example.args))
                judged, refusals = judged + result.judged, refusals + result.refusals
                parts.append(f"gradients {result.line()}")
            read += 1
        except UntraceableError as err:
            parts.append(f"not read: {err}")
        except Exception as err:
            parts.append(f"ERROR {type(err).__name__}: {err}")
        print(f"{name:36s} {' | '.join(parts)} {time.perf_counter() - start:6.2f} s", flush=True)
    seconds = time.perf_counter() - begun
    print(f"{read} of {len(names)} specs read, {judged} elements judged, {refusals} refused, {seconds:.0f} s")
    return 1 if refusals else 0


if __name__ == "__main__":
    sys.exit(main())
