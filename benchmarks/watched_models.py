"""Models of many kinds under `opassay.watch`: what of a step is read, what is outside, and how the loss is explained.

    python benchmarks/watched_models.py [--model NAME ...] [--dtype float32|bfloat16] [--autocast] [--large]
                                        [--compiled] [--jobs N] [--contract NAME] [--to FILE] [--list]

Each model has random weights of a fixed seed and takes two steps of training: forward, backward, clipped gradients, and
an optimizer. The second one is watched. Told of each: calls by kind, how many of the computing ones were read, the
elements that were held, the sites outside, and the error of the loss against the same step in float64 beside what
the calls explain of it. `--large` takes each at three times its width. With `--jobs` each model has a process of its
own, so many at a time. With `--compiled` the loss is compiled by inductor, and each graph is held. Needs transformers
for the models that are its. A model that cannot be watched is told, and the exit code is 1 then.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import json
import math
import subprocess
import sys
import time
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from watched.float64 import Choices, exact_loss
from watched.programs import PROGRAMS

import opassay

SEED, LARGE = 5, 3
COMPUTING = ("computes", "casts", "region")
#: What the figures are held against: of all computing calls, of those of each model, and of the error of a loss.
SHARE_READ, SHARE_OF_EACH, LARGEST_REST, LARGEST_TOLD = 0.995, 0.97, 0.05, 0.001


@dataclass
class Outside:
    """A site with a call outside: its operation, the module, the line, and the largest error over its bound."""

    op: str
    module: str
    line: str
    ratio: float


@dataclass
class Figures:
    """What was seen of a model.

    Attributes:
        kinds: kind -> calls. computing: calls that compute. judged: of these. elements: of all results that were held.
        unread: why, for each operation of which a call was not read. outside: sites.
        error: of the loss, against the same step in float64, with the program's choices, draws and parameters.
        own: the same as the report has it. explained: by the calls; size: the sum of the magnitudes of the parts.
        seconds: of processor, for the step with its recording and for judging.
        failure: of the model under the watch; empty where it ran.
    """

    model: str
    dtype: str
    kinds: dict[str, int] = field(default_factory=dict)
    computing: int = 0
    judged: int = 0
    elements: int = 0
    unread: dict[str, str] = field(default_factory=dict)
    outside: list[Outside] = field(default_factory=list)
    error: float = math.nan
    own: float = math.nan
    explained: float = math.nan
    size: float = math.nan
    unknown: tuple[str, ...] = ()
    seconds: float = 0.0
    failure: str = ""

    @property
    def rest(self) -> float:
        """What is not explained of the loss's error, of the sum of sizes."""
        rest = abs(self.error - self.explained)
        return rest / self.size if self.size else (0.0 if not rest else math.inf)


def watch_model(name: str, options: argparse.Namespace) -> Figures:
    """The figures of a model's second step."""
    torch.manual_seed(0)
    program = PROGRAMS[name](LARGE if options.large else 1)
    program.become(getattr(torch, options.dtype), options.autocast)
    program.step()
    exact, choices = program.exact(), Choices()
    if options.compiled:
        compiled = functools.partial(torch.compile, backend=opassay.watched("inductor"))
        program.loss, program.second = compiled(program.loss), program.second and compiled(program.second)
    torch.manual_seed(SEED)
    start = time.process_time()
    # What is compiled is no call by itself, so its choices are not seen.
    listening = contextlib.nullcontext() if options.compiled else choices
    with listening, opassay.watch(program.module, contract=options.contract) as watched:
        loss = program.step()
    seconds = time.process_time() - start
    result, exact.prescribed = watched.result, list(program.states)
    form = " ".join(word for word in ("autocast", "compiled") if getattr(options, word))
    figures = Figures(name, f"{form} {options.dtype}".strip(), dict(result.kinds), seconds=seconds)
    for site in result.sites:
        figures.elements += site.totals.elements
        if site.kind in COMPUTING:
            figures.computing += site.totals.calls
            figures.judged += site.totals.judged
            if site.totals.judged < site.totals.calls:
                figures.unread.setdefault(site.place.op, site.reason)
        if site.outcome == "fail":
            figures.outside.append(Outside(site.place.name, site.place.module, site.place.line, site.ratio))
    figures.error = loss - exact_loss(exact, SEED, choices)
    if result.loss is not None:
        figures.own = result.loss.error
        figures.explained, figures.size, figures.unknown = result.loss.explained, result.loss.size, result.loss.unknown
    return figures


def text_of(figures: Figures) -> str:
    """One line, and one more for each operation that was not read or is outside."""
    if figures.failure:
        return f"{figures.model:20} {figures.dtype}: FAILED: {figures.failure}"
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(figures.kinds.items()))
    lines = [
        f"{figures.model:20} {figures.dtype}: {figures.judged} of {figures.computing} computing calls read, "
        f"{figures.elements} elements, {len(figures.outside)} sites outside; loss {figures.error:+.2e} from float64, "
        f"told {figures.own:+.2e}, explained {figures.explained:+.2e}, rest {figures.rest:.1%} of {figures.size:.1e}; "
        f"{figures.seconds:.1f} CPU s; {kinds}"
    ]
    lines += [f"    not read: {op}: {reason[:160]}" for op, reason in figures.unread.items()]
    worst: dict[str, float] = {}
    for site in figures.outside:
        worst[site.op] = max(worst.get(site.op, 0.0), site.ratio)
    lines += [f"    outside: {op}, {ratio:.4g} times its bound" for op, ratio in worst.items()]
    return "\n".join(lines)


def total_text(rows: list[Figures]) -> Iterator[str]:
    """The sums over all models, and how many reach what is asked of them."""
    ran = [row for row in rows if not row.failure]
    judged, computing = sum(row.judged for row in ran), sum(row.computing for row in ran)
    yield f"{len(ran)} of {len(rows)} models ran; {sum(row.elements for row in ran)} elements held"
    if not computing:
        return
    yield f"computing calls read: {judged} of {computing}, {judged / computing:.3%} (wanted {SHARE_READ:.1%})"
    less = [row.model for row in ran if row.judged < SHARE_OF_EACH * row.computing]
    yield f"models with less than {SHARE_OF_EACH:.0%} read: {', '.join(less) or 'none'}"
    kinds = sum((Counter(row.kinds) for row in ran), Counter[str]())
    yield f"calls by kind: {', '.join(f'{count} {kind}' for kind, count in kinds.most_common())}"
    outside = Counter(site.op for row in ran for site in row.outside)
    yield f"sites outside: {', '.join(f'{count} {op}' for op, count in outside.most_common()) or 'none'}"
    explained = [row for row in ran if row.rest <= LARGEST_REST]
    more = ", ".join(f"{row.model} {row.rest:.1%}" for row in ran if row not in explained)
    reached = f"{len(explained)} of {len(ran)} (not: {more or 'none'})"
    yield f"loss explained to {LARGEST_REST:.0%} of the sum of sizes: {reached}"
    count = sum(abs(row.own - row.error) <= LARGEST_TOLD * row.size for row in ran)
    yield f"error of the loss told to {LARGEST_TOLD:.1%} of the sum of sizes: {count} of {len(ran)}"
    yield f"{sum(row.seconds for row in ran):.0f} CPU s"


def _attempt(name: str, options: argparse.Namespace) -> Figures:
    """The figures, or why there are none: a model that breaks must not hide the others."""
    try:
        return watch_model(name, options)
    except Exception as error:
        return Figures(name, options.dtype, failure=f"{type(error).__name__}: {error}"[:300])


def _attempt_apart(name: str, options: argparse.Namespace) -> Figures:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--model", name, "--dtype", options.dtype, "--contract", options.contract]
    command += ["--json"] + ["--autocast"] * options.autocast + ["--large"] * options.large
    command += ["--compiled"] * options.compiled
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    lines = ended.stdout.strip().splitlines()
    if not lines or not lines[-1].startswith("{"):
        return Figures(name, options.dtype, failure=f"its process ended with {ended.returncode}: {ended.stderr[-200:]}")
    return figures_from(json.loads(lines[-1]))


def figures_from(data: dict[str, Any]) -> Figures:
    """Back from JSON."""
    return Figures(**data | {"outside": [Outside(**site) for site in data["outside"]]})


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--model", nargs="+", default=list(PROGRAMS), choices=PROGRAMS, metavar="NAME")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "float16", "float64"))
    parser.add_argument("--contract", default="torch")
    for name, text in (
        ("autocast", "run the forward passes under autocast to bfloat16"),
        ("large", f"take models at {LARGE} times their width"),
        ("compiled", "compile the model by inductor, and hold its graphs"),
        ("json", "print the figures as lines of JSON"),
        ("list", "print the names of the models and end"),
    ):
        parser.add_argument(f"--{name}", action="store_true", help=text)
    parser.add_argument("--jobs", type=int, default=0, help="a process for each model, so many at a time")
    parser.add_argument("--to", type=Path, help="write the figures as lines of JSON")
    options = parser.parse_args()
    if options.list:
        print("\n".join(PROGRAMS))
        return 0
    rows: list[Figures] = []
    with ThreadPoolExecutor(max(1, options.jobs)) as pool:
        attempt = _attempt_apart if options.jobs else _attempt
        for row in pool.map(lambda name: attempt(name, options), options.model):
            rows.append(row)
            print(json.dumps(asdict(row)) if options.json else text_of(row), flush=True)
    if options.to is not None:
        options.to.write_text("".join(f"{json.dumps(asdict(row))}\n" for row in rows))
    if not options.json:
        print("\n".join(total_text(rows)))
    return int(any(row.failure for row in rows))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.exit(main())
