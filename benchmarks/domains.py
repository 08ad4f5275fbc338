"""Which calls specs take, derived: `python benchmarks/domains.py FILE-OR-FOLDER ... [--lines 60] [--seconds 60]`.

For each spec, a problem file of `opassay judge --spec`: whether its domain is derived, the processor seconds that takes
(copies of the process among them), how many calls are proposed, and how many of these the spec refuses with values.
Problems too large to be called often are made smaller: numbers above 64 that a file gives names are halved, if it then
can be called. A file that draws no inputs here, or none that its spec takes, is skipped.

`--lines N` prints the domains of N specs, drawn at random, which somebody has to read: an axis that moves alone and
should not, or a tie that is chance, shows in no number. A Python module may have several: FILE.py:SPECS, a dictionary
from names to functions of nothing that give a spec and the arguments of a call, or a function that draws them.
"""

from __future__ import annotations

import argparse
import ast
import functools
import itertools
import json
import os
import random
import resource
import select
import signal
import statistics
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # collections of specs stand beside the tests

import torch

from opassay.oracles.bound.terms import terms
from opassay.properties.candidates.arguments import CallArguments
from opassay.properties.candidates.domain.copies import CopyError, run_in_copies, takes_each
from opassay.properties.candidates.host.host import CandidateHost
from opassay.properties.candidates.host.sources import sources
from opassay.properties.candidates.judge_draws import Draws
from opassay.properties.candidates.other_calls import (
    calls_at_branches,
    calls_of_sizes,
    calls_of_values,
    joint_calls,
)
from opassay.properties.candidates.session import Session
from opassay.properties.candidates.specification import Specification, specification
from opassay.properties.candidates.suites.opening import open_pair
from opassay.properties.candidates.workload import limit_of

_LIMITS, _BRANCHES, _SEED = (64, 16, 8, 256, 10**9), 12, 5
#: Seconds by the clock in which a spec must be called once; a copy of the process has some seconds for so many calls.
_OPENING, _AT_ONCE = 60, 8
Draw = Callable[[int], Any]


class SkippedError(Exception):
    """A file of which nothing is asked here; the text says why."""


class _Smaller(ast.NodeTransformer):
    """Halves the numbers that a module gives names until they are at most a limit."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.FunctionDef:
        return node

    visit_ClassDef = visit_FunctionDef

    def visit_Constant(self, node: ast.Constant) -> ast.Constant:
        value = node.value
        while type(value) is int and value > self._limit:
            value //= 2
        return ast.copy_location(ast.Constant(value), node)


def open_problem(path: Path) -> tuple[Specification, CallArguments, Draw]:
    """The spec of a file, made small, and a call that it takes.

    Raises:
        SkippedError: see the head of this file.
    """
    why = "too large"
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(SkippedError("too slow to be called")))
    signal.alarm(_OPENING)
    for limit in _LIMITS:
        with tempfile.TemporaryDirectory() as folder:
            smaller = path
            if path.suffix == ".py":
                smaller = Path(folder) / path.name
                smaller.write_text(ast.unparse(_Smaller(limit).visit(ast.parse(path.read_text()))))
            try:
                problem = open_pair(str(smaller), str(smaller), Path(folder), _SEED, {}).problem
                spec = specification(problem.spec)
                arguments = CallArguments.of(problem.draw(_SEED)).with_names(problem.spec)
                spec.outputs(arguments, spec.state)
            except SkippedError:
                raise
            except (Exception, SystemExit) as err:
                why = f"{type(err).__name__}: {err}"
                continue
            signal.alarm(0)
            return spec, arguments, problem.draw
    raise SkippedError(why)


def problems(addresses: list[str]) -> Iterator[tuple[str, Callable[[], tuple[Specification, CallArguments, Draw]]]]:
    for address in addresses:
        path, colon, name = address.rpartition(":")
        if colon:
            for each, make in getattr(sources().module_of_file(Path(path).resolve()), name).items():
                yield each, functools.partial(_make_spec, make)
        else:
            root = Path(address)
            for file in sorted(root.rglob("*.py")) if root.is_dir() else [root]:
                yield str(file.relative_to(root)) if root.is_dir() else file.name, functools.partial(open_problem, file)


def _make_spec(make: Callable[[], Any]) -> tuple[Specification, CallArguments, Draw]:
    function, inputs = make()
    draw = inputs if callable(inputs) else lambda seed: inputs
    return specification(function), CallArguments.of(draw(_SEED)).with_names(function), draw


def derive(make: Callable[[], tuple[Specification, CallArguments, Draw]]) -> dict[str, Any]:
    """One line of the table."""
    try:
        spec, arguments, draw = make()
    except SkippedError as err:
        return {"skipped": str(err)}
    session = Session(spec, CandidateHost(spec.name, spec.function), terms("torch"), Draws.of(_SEED), arguments, draw)
    before = _processor_seconds()
    domain = session.domain
    seconds = _processor_seconds() - before
    rng = session.generator("SIZES")
    with torch.no_grad():
        calls = [
            *calls_of_sizes(session, rng, limit_of(session)), *joint_calls(session, rng),
            *calls_of_values(session, rng),
            *itertools.islice(calls_at_branches(session, rng), _BRANCHES), *domain.empties(arguments),
        ]  # fmt: skip
    batches = [calls[n : n + _AT_ONCE] for n in range(0, len(calls), _AT_ONCE)]
    answers = b"".join(run_in_copies(functools.partial(takes_each, spec, some)) for some in batches)
    refusals = [" ".join(map(str, call.shapes)) for call, took in zip(calls, answers, strict=True) if not took]
    lines = [f"given {arguments.text}", *domain.describe(arguments)]
    note = domain.shapes.note
    return {"seconds": seconds, "calls": len(calls), "refused": refusals, "lines": lines, "note": note}


def _processor_seconds() -> float:
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in both)


def derive_apart(make: Callable[[], Any], limit: float) -> dict[str, Any]:
    """The same in a process of its own, because it may end there or take too long."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            result = derive(make)
        except (Exception, CopyError) as err:
            result = {"error": f"{type(err).__name__}: {err}"}
        os.write(into, json.dumps(result).encode()[: 1 << 16])
        os._exit(0)
    os.close(into)
    received = os.read(out, 1 << 16) if select.select([out], [], [], limit)[0] else b""
    os.close(out)
    if not received:
        os.kill(child, 9)
    os.waitpid(child, 0)
    return json.loads(received) if received else {"error": f"ended, or took {limit:g} seconds"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("specs", nargs="+", metavar="FILE-OR-FOLDER")
    parser.add_argument("--lines", type=int, default=0, metavar="N", help="print the domains of N specs")
    parser.add_argument("--seconds", type=float, default=60.0, help="for each spec")
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = {}
    for name, make in problems(options.specs):
        row = rows[name] = derive_apart(make, options.seconds)
        words = row.get("skipped") or row.get("error") or "; ".join([*row["refused"][:2], row["note"]])
        numbers = f"{row.get('seconds', 0):6.2f} {row.get('calls', 0):4} {len(row.get('refused', [])):3}"
        print(f"{name[-60:]:60} {numbers} {words[:150]}", flush=True)
    results = {name: row for name, row in rows.items() if "seconds" in row}
    seconds = sorted(row["seconds"] for row in results.values()) or [0.0]
    skipped = sum("skipped" in row for row in rows.values())
    print(
        f"{len(results)} of {len(rows) - skipped} derived, {skipped} skipped; "
        f"{sum(bool(row['note']) for row in results.values())} with a note; "
        f"processor seconds: median {statistics.median(seconds):.2f}, p90 {seconds[len(seconds) * 9 // 10]:.2f}, "
        f"most {seconds[-1]:.2f}; {sum(len(row['refused']) for row in results.values())} of "
        f"{sum(row['calls'] for row in results.values())} calls refused, of "
        f"{sum(bool(row['refused']) for row in results.values())} specs"
    )
    for name in random.Random(1).sample(sorted(results), min(options.lines, len(results))):
        print(f"\n{name}", *results[name]["lines"], sep="\n    ")


if __name__ == "__main__":
    main()
