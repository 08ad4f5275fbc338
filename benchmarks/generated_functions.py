"""Generated custom functions by the thousand: false alarms, internal errors, time per function, features covered.

    python benchmarks/generated_functions.py --functions 20000 --jobs 2

Every function is judged on the path of its values, in reverse and forward mode through autograd and torch.func, under
vmap, under six nestings of jvp, vjp and vmap of the 39 up to depth 3, and on exact laws. Exit status 1 after any fault.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import hypothesis
from hypothesis import HealthCheck, Phase

from opassay.oracles.bound.contract import contract
from opassay.oracles.judge.judge import Judge
from opassay.oracles.verdicts.violation import Violation
from opassay.properties.catalog.loading import load_op
from opassay.properties.checks import CHECKS
from opassay.properties.declaring import strategies
from opassay.properties.table import PROPERTIES
from workshop.functions import FUNCTION
from workshop.functions.spec import Spec, spec_of

CHUNK = 100
DTYPES = ("float64", "float32", "float64", "bfloat16", "float64", "float16")
ALWAYS = ("FWD", "VJP", "JVP", "WORD")
IN_TURN = ("VMAP", "NEST", "LAW", "ADJ", "DUAL", "PURE", "LAYOUT")


def features_of(spec: Spec) -> Iterator[str]:
    """The features of the contract that the function uses, by name."""
    yield f"arity {spec.arity}"
    yield f"outputs in {spec.container}"
    yield f"vmap rule: {spec.rule}"
    for way in sorted(set(spec.ways)):
        yield f"output: {way}"
    results = {
        "sum over all elements": any(term.total for term in spec.terms),
        "outputs that are no floating tensors": spec.extras,
        "None as a gradient": bool(spec.constants),
        "saved in another order for forward": spec.backward_order != spec.forward_order,
        "outputs saved": spec.saves_outputs,
        "gradients in broadcast shape": spec.broadcasts,
        "undefined cotangents": not spec.materializes,
        "needs_input_grad asked": spec.frugal,
        "number between tensors": 0 < spec.number_at < spec.arity,
        "batch put last by the vmap rule": spec.last_dim and spec.rule == "whole",
    }
    yield from (name for name, used in results.items() if used)


def chunk(number: int, subject: str, seed: int) -> tuple[int, Counter[str], list[str], float]:
    """(functions, their features, faults, seconds) of one chunk."""
    op, dtype = load_op(FUNCTION), DTYPES[number % len(DTYPES)]
    features: Counter[str] = Counter()
    faults: list[str] = []
    codes = [
        code for code in (*ALWAYS, IN_TURN[number // len(DTYPES) % len(IN_TURN)]) if dtype in PROPERTIES[code].dtypes
    ]
    done = 0

    def ask(draft: Any, data_seed: int) -> None:
        nonlocal done
        sample = draft.sample(data_seed, 7)
        done += 1
        features.update(features_of(spec_of(sample.args[0])))
        for code in codes:
            try:
                CHECKS[code](Judge(op, subject, contract(dtype)), sample)
            except Violation as violation:
                faults.append(f"{code} {dtype}: {violation.title}\n  {sample.args[0]}")
            except Exception as err:
                faults.append(f"{code} {dtype}: internal error {type(err).__name__}: {err}\n  {sample.args[0]}")

    settings = hypothesis.settings(
        max_examples=CHUNK, database=None, deadline=None, phases=(Phase.generate,), derandomize=False,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    start = time.perf_counter()
    test = hypothesis.given(draft=op.samples(dtype, "ordinary"), data_seed=strategies.seeds())(ask)
    hypothesis.seed(seed * 1_000_003 + number)(settings(test))()
    return done, features, faults, time.perf_counter() - start


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--functions", type=int, default=20_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--subject", choices=("opassay", "torch"), default="opassay")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    print(
        f"{options.functions} functions, subject {options.subject}, seed {options.seed}, {options.jobs} processes",
        flush=True,
    )
    chunks = range(-(-options.functions // CHUNK))
    done, features, faults, seconds = 0, Counter[str](), list[str](), 0.0
    start = time.perf_counter()
    with concurrent.futures.ProcessPoolExecutor(options.jobs) as pool:
        futures = [pool.submit(chunk, number, options.subject, options.seed) for number in chunks]
        for future in concurrent.futures.as_completed(futures):
            count, result, wrong, took = future.result()
            done, seconds = done + count, seconds + took
            features += result
            faults += wrong
            for text in wrong[:5]:
                print(text, flush=True)
            if done % 1000 < CHUNK:
                print(f"{done} functions, {len(faults)} faults, {time.perf_counter() - start:.0f} s", flush=True)
    print(f"\n{done} functions, {len(faults)} faults, {1e3 * seconds / max(done, 1):.1f} ms per function")
    for name, count in sorted(features.items()):
        print(f"  {name:45} {count:7}  {100 * count / max(done, 1):5.1f} %")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
