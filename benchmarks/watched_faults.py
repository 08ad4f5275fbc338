"""Faults planted in one call of a transformer's step, and what `opassay.watch` names.

    python benchmarks/watched_faults.py [--fault NAME ...] [--dtype float32|bfloat16] [--contract NAME]
                                        [--beside N] [--list] [--against]

The model has twelve layers whose norms, gates, rotations, attention, products and loss are written by hand, forward and
backward, and have specs (`watched/faults/`). Each fault takes the place of one of them in one layer. Told of each: the
site that is named first, whether that is the wrong one, its largest error over its bound, how far the loss moved and
what the wrong sites contribute to that by the watch's own account, and what else is outside. Blocks that are put
together wrongly, of right calls, come last: without a spec of the block nothing may be outside, and with one the block
is. Without a fault nothing may be outside. The exit code is 1 where this is not so.

With --against each of these blocks is compared with the right program instead, without a spec of the block: the first
difference has to name a call of that layer, which may be one that is lost, and no call may be outside.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from watched.faults import BLOCK_FAULTS, BLOCK_SPECS, FAULTS, LARGE_SCORES, LAYERS, OUTSIDE, PLAN, SPECS, build

import opassay
from opassay.oracles.verdicts.watched import Watched
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.keeping import Keep
from opassay.properties.watch.recorder import Recorder

#: The layer with the fault.
LAYER = 7
#: part -> the region that has to be named: a class, or an operator.
REGIONS = {
    "norm": "Norm",
    "gate": "Gate",
    "rotate": "planted::rotate",
    "rotate_backward": "planted::rotate_backward",
    "attend": "Attention",
    "project": "Project",
    "entropy": "Entropy",
    "embed": "Embed",
    "compose": "Block",
}


@dataclass(frozen=True)
class Finding:
    """What was named in a run.

    Attributes:
        named: the sites that are outside, in order: (region, module, ratio, contribution).
        loss: of the run. unread: operations of which a call was not read. seconds: of processor.
    """

    named: tuple[tuple[str, str, float, float], ...]
    loss: float
    largest: float
    unread: tuple[str, ...]
    seconds: float


class Step:
    """Forward and backward of one model. What judges its calls stays the same, so that it knows their traces."""

    def __init__(self, dtype: torch.dtype, contract: str, beside: int = LAYERS) -> None:
        self.model, self.tokens, self.labels = build()
        self.model.to(dtype)
        self.judge, self.beside = CallJudge(contract), beside

    def watch(self, layer: int | None = None) -> Finding:
        """What is outside, of all calls or of those beside a layer."""
        start = time.process_time()
        watched, loss = self.record(layer)
        return finding_of(watched.result, loss, time.process_time() - start)

    def record(self, layer: int | None = None) -> tuple[opassay.Watcher, float]:
        """A step of which all calls are kept, or those beside a layer; and its loss."""
        self.model.zero_grad()
        # The error of the loss is known where every call is kept.
        is_whole = layer is None or layer == OUTSIDE or self.beside >= LAYERS
        modules = () if is_whole else self._modules(layer)
        recorder = Recorder(Keep(modules=modules))
        recorder.origins.modules.name(self.model)
        with opassay.Watcher(recorder, self.judge, "transformer", None) as watched:
            loss = self.model(self.tokens, self.labels)
            loss.backward()
        return watched, float(loss.detach())

    def _modules(self, layer: int) -> tuple[str, ...]:
        near = [number for number in range(LAYERS) if abs(number - layer) <= self.beside]
        return tuple(f"blocks.{number}" for number in near)


def finding_of(result: Watched, loss: float, seconds: float) -> Finding:
    sites = result.sites
    named = tuple(
        (site.place.op, site.place.module, site.ratio, site.totals.contribution)
        for site in sorted(sites, key=lambda site: site.first)
        if site.outcome == "fail"
    )
    largest = max((site.ratio for site in sites if site.outcome != "fail" and site.kind == "region"), default=0.0)
    return Finding(named, loss, largest, _unread(sites), seconds)


def _unread(sites: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{s.place.op}: {s.reason}" for s in sites if s.outcome == "unsupported"))


def layer_of(part: str, wrong: Callable[..., Any]) -> int:
    """Where a fault is planted: the embedding and the loss are in no layer, and one fault needs large scores."""
    if part.startswith(("entropy", "embed")):
        return OUTSIDE
    return LARGE_SCORES if wrong.__name__ == "forget_the_maximum" else LAYER


def is_place(part: str, layer: int, op: str, module: str) -> bool:
    """Whether a site is that of the planted fault: its region, forward or backward, in its layer."""
    region = REGIONS.get(part) or REGIONS[part.removesuffix("_backward")]
    return op.removesuffix(" backward") == region and (layer == OUTSIDE or f"{module}.".startswith(f"blocks.{layer}."))


def describe_fault(part: str, wrong: Callable[..., Any], finding: Finding, right: Finding) -> tuple[str, bool]:
    """A line, and whether the fault was named first and nothing else at all."""
    layer = layer_of(part, wrong)
    own = [site for site in finding.named if is_place(part, layer, *site[:2])]
    others = [site for site in finding.named if site not in own]
    is_first = bool(own) and finding.named[0] == own[0]
    ratio = max((site[2] for site in own), default=0.0)
    share = sum(site[3] for site in own if not math.isnan(site[3]))
    first = f"{finding.named[0][0]} ({finding.named[0][1]})" if finding.named else "nothing"
    text = (
        f"{wrong.__name__:44} {'named' if is_first else 'MISSED':6} first {first:40} {ratio:10.4g} x; "
        f"loss moved {finding.loss - right.loss:+.2e}, contributed {share:+.2e}; "
        f"{'nothing else' if not others else f'ELSE {others[:3]}'}"
    )
    return text, is_first and not others


def call_rows(right: Finding, names: list[str], step: Step) -> Iterator[tuple[str, bool]]:
    """Faults in one call."""
    for part, wrongs in FAULTS.items():
        for wrong in wrongs:
            if not names or wrong.__name__ in names:
                layer = layer_of(part, wrong)
                with PLAN.planting(part, wrong, layer):
                    finding = step.watch(layer)
                yield describe_fault(part, wrong, finding, right)


def block_rows(right: Finding, names: list[str], step: Step) -> Iterator[tuple[str, bool]]:
    """Wrong compositions: nothing is outside without a spec of the block, and the block alone with one."""
    wrongs = [wrong for wrong in BLOCK_FAULTS["compose"] if not names or wrong.__name__ in names]
    for wrong in wrongs:
        with PLAN.planting("compose", wrong, LAYER):
            named = step.watch(LAYER).named
        yield f"{wrong.__name__:44} without a spec of the block: {named[:2] or 'nothing outside'}", not named
    if not wrongs:
        return
    for target, reference in BLOCK_SPECS.items():
        opassay.spec(target, reference)
    whole = step.watch()
    yield f"{'no fault, with the spec of the block':44} {_summary(whole)}", not whole.named
    for wrong in wrongs:
        with PLAN.planting("compose", wrong, LAYER):
            finding = step.watch(LAYER)
        yield describe_fault("compose", wrong, finding, right)


def compared_rows(names: list[str], step: Step) -> Iterator[tuple[str, bool]]:
    """Wrong compositions against the right one: told of each, what is named first."""
    right, _ = step.record(LAYER)
    again = opassay.compare_programs(step.record(LAYER)[0], right)
    yield f"{'no fault':44} {len(again.differences)} differences", not again.differences
    for wrong in BLOCK_FAULTS["compose"]:
        if names and wrong.__name__ not in names:
            continue
        start = time.process_time()
        with PLAN.planting("compose", wrong, LAYER):
            here, _ = step.record(LAYER)
        differences = opassay.compare_programs(here, right).differences
        is_named = bool(differences) and f"(blocks.{LAYER}" in differences[0].line
        outside = sum(bool(each.wrong) for each in differences)
        first = differences[0].line if differences else "nothing"
        line = (
            f"{wrong.__name__:30} {'named' if is_named else 'MISSED'} {time.process_time() - start:.0f} CPU s: {first}"
        )
        yield f"{line}; {outside} outside", is_named and not outside


def _summary(finding: Finding) -> str:
    return (
        f"{'nothing outside' if not finding.named else f'OUTSIDE {finding.named[:5]}'}; the largest error of a region "
        f"is {finding.largest:.3f} of its bound; not read: {', '.join(finding.unread) or 'none'}; "
        f"{finding.seconds:.1f} CPU s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--fault", nargs="+", default=[], metavar="NAME")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"))
    parser.add_argument("--contract", default="torch")
    parser.add_argument("--beside", type=int, default=LAYERS, metavar="N", help="judge the layers that are so near")
    parser.add_argument("--against", action="store_true", help="compare wrong blocks with the right program")
    parser.add_argument("--list", action="store_true", help="print the names of the faults and end")
    options = parser.parse_args()
    if options.list:
        print("\n".join(f"{part}: {f.__name__}" for part, each in (FAULTS | BLOCK_FAULTS).items() for f in each))
        return 0
    for target, reference in SPECS.items():
        opassay.spec(target, reference)
    step = Step(getattr(torch, options.dtype), options.contract, options.beside)
    if options.against:
        compared = [(print(text, flush=True), is_right)[1] for text, is_right in compared_rows(options.fault, step)]
        print(f"against the right program: {sum(compared[1:])} of {len(compared) - 1} named")
        return int(not all(compared))
    right = step.watch()
    print(f"{'no fault':44} {_summary(right)}", flush=True)
    reached = [not right.named]
    for rows, title in ((call_rows, "in one call"), (block_rows, "of right calls")):
        outcomes = []
        for text, is_right in rows(right, options.fault, step):
            print(text, flush=True)
            outcomes.append(is_right)
        print(f"{title}: {sum(outcomes)} of {len(outcomes)} as they should be", flush=True)
        reached += outcomes
    return int(not all(reached))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    sys.exit(main())
