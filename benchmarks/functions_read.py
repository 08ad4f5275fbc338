"""Reads one call of every function of torch.nn.functional, and writes the page docs/specs.md.

    python benchmarks/functions_read.py > docs/specs.md

What torch computes for each call in float32 is held against what was read; on standard error it is told what is not
accepted, and how many functions were read. About a minute on one core.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the collection of specs stands beside the tests

import torch

from opassay.oracles.specs import SpecCall, UntraceableError, trace
from tests.specs import make_example, values
from tests.specs.functional import CALLS, NOT_CALLED, functions
from tests.specs.listing import page


def read() -> tuple[list[str], dict[str, str]]:
    """The functions that are read, and why each of the others is not."""
    known, refusals = [], dict(NOT_CALLED)
    for name in functions():
        if name in NOT_CALLED:
            continue
        example = make_example(name, CALLS[name])
        try:
            call = SpecCall.of(example.spec, *example.args)
            trace(call)  # without reading any value, as it is done for users
            result = values(call, "float32", *call.outputs(*call.tensors))
        except UntraceableError as err:
            refusals[name] = str(err)
            continue
        known.append(name)
        if result.refusals or not result.judged:
            print(f"{name}: {result.line()}", file=sys.stderr)
    return known, refusals


def main() -> int:
    torch.set_num_threads(1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        known, refusals = read()
    print(page(known, refusals), end="")
    print(f"{len(known)} of {len(known) + len(refusals)} functions read", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
