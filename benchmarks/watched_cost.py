"""What watching costs: recording against the plain step, one step in so many, memory, and judging against the call.

    python benchmarks/watched_cost.py [--layers 12] [--width 512] [--tokens 512] [--rounds 7] [--every 50]
                                      [--elements 1000000] [--only steps|every|judging|calls]

Seconds are those of the processor, of one thread, and for a recorded step those of the clock, too: it writes to the
disk. Steps with and without the recording take turns in one process, and a figure is the median of the ratios of single
turns, with the quartiles. A call is judged twice, and the second time
counts, when its trace is known; the first is told as well.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from measurement import Row, line
from torch import nn
from torch.nn import functional as F
from torch.utils import _pytree as pytree

from opassay.properties.watch.call import DispatcherCall
from opassay.properties.watch.judging import CallJudge
from opassay.properties.watch.keeping import Keep
from opassay.properties.watch.recorder import Recorder

PARTS = ("steps", "every", "judging", "calls")


def cpu_seconds(call: Callable[[], object]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start


def quartiles(ratios: list[float]) -> tuple[float, float, float]:
    """The first, the median, and the third; of fewer than two the one itself."""
    low, middle, high = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
    return low, middle, high


class Training:
    """Steps of a transformer: forward, backward, clipped gradients, AdamW."""

    def __init__(self, layers: int, width: int, tokens: int) -> None:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(width, 8, 4 * width, 0.0, F.gelu, batch_first=True, norm_first=True)
        self.module = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.x = torch.randn(1, tokens, width)
        self.optimizer = torch.optim.AdamW(self.module.parameters(), 1e-4)

    def step(self) -> None:
        self.optimizer.zero_grad()
        loss = self.module(self.x).square().mean()
        loss.backward()
        nn.utils.clip_grad_norm_(self.module.parameters(), 1.0)
        self.optimizer.step()

    def record(self, steps: int, keep: Keep | None = None) -> Recorder:
        """Steps under a recording."""
        recorder = Recorder(keep)
        recorder.origins.modules.name(self.module)
        recorder.start()
        try:
            for _ in range(steps):
                self.step()
        finally:
            recorder.stop()
        return recorder

    @property
    def parameter_bytes(self) -> int:
        return sum(p.numel() * p.element_size() for p in self.module.parameters())


@dataclass(frozen=True)
class Comparison:
    """Turns beside plain ones: their ratios in seconds of the processor and of the clock, and a plain turn in both."""

    ratios: list[float]
    by_clock: list[float]
    seconds: float
    clock_seconds: float


def _compared(plain: Callable[[], object], watched: Callable[[], object], rounds: int) -> Comparison:
    turns = []
    for _ in range(rounds):
        marks = [(time.process_time(), time.perf_counter())]
        for call in (plain, watched):
            call()
            marks.append((time.process_time(), time.perf_counter()))
        turns.append([[b - a for a, b in zip(*pair, strict=True)] for pair in itertools.pairwise(marks)])
    ratios, by_clock = ([after[i] / before[i] for before, after in turns] for i in (0, 1))
    seconds, clock_seconds = (statistics.median(before[i] for before, _ in turns) for i in (0, 1))
    return Comparison(ratios, by_clock, seconds, clock_seconds)


def _ratio_rows(case: str, pair: Comparison) -> Iterator[Row]:
    rows = (("CPU s", pair.seconds, pair.ratios), ("s by the clock", pair.clock_seconds, pair.by_clock))
    for unit, seconds, ratios in rows:
        low, middle, high = quartiles(ratios)
        yield Row("watched cost", f"{case}: plain", seconds, unit)
        yield Row(
            "watched cost", f"{case}: recorded, of plain", middle, f"x in {unit}, quartiles {low:.3f} to {high:.3f}"
        )


def step_rows(training: Training, rounds: int) -> Iterator[Row]:
    """One step recorded whole, and what its copies take."""
    recorders: list[Recorder] = []

    def record() -> None:
        recorders[:] = [training.record(1)]

    training.step()
    record()
    yield from _ratio_rows("a step", _compared(training.step, record, rounds))
    mebibytes = recorders[0].copies.nbytes / 2**20
    yield Row("watched cost", "copies of a step", mebibytes, "MiB")
    yield Row("watched cost", "copies, of the parameters", mebibytes * 2**20 / training.parameter_bytes, "x")
    yield Row("watched cost", "calls of a step", len(recorders[0].store.calls), "")


def every_rows(training: Training, every: int, rounds: int) -> Iterator[Row]:
    """So many steps of which the first is recorded."""

    def take_steps() -> None:
        for _ in range(every):
            training.step()

    take_steps()
    pair = _compared(take_steps, lambda: training.record(every, Keep(every=every)), rounds)
    yield from _ratio_rows(f"{every} steps, one recorded", pair)


def judging_rows(training: Training) -> Iterator[Row]:
    """All calls of a step: to judge them against to make them again, which is what they took themselves."""
    judge, calls = CallJudge(), training.record(1).store.calls
    for call in calls:
        judge.hold(call)
    own = judged = elements = 0.0
    for call in calls:
        leaves = [x.clone() if isinstance(x, torch.Tensor) else x for x in call.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, call.structure)
        with torch.no_grad():
            seconds = cpu_seconds(lambda call=call, args=args, kwargs=kwargs: call.op(*args, **kwargs))
        start = time.process_time()
        finding = judge.hold(call)
        if finding.elements:
            judged += time.process_time() - start
            own, elements = own + seconds, elements + finding.elements
    yield Row("judging", "a step: its calls", own, "CPU s")
    yield Row("judging", "a step: of the calls' own time", judged / own, f"x, {elements / 1e6:.1f} million elements")
    yield Row("judging", "a step: an element", judged / elements * 1e9, "ns")


def calls_of(elements: int) -> dict[str, Callable[[], object]]:
    """Operations whose results, or operands, or scores, have so many elements."""
    side = round(elements**0.5)
    x, y, w = torch.randn(side, side), torch.randn(side, side), torch.randn(side)
    tokens = torch.randint(0, side, (side,))
    q, k, v = torch.randn(3, 1, 8, round((elements / 8) ** 0.5), 64).unbind(0)
    picture, kernel = torch.randn(1, 16, side // 4, side // 4), torch.randn(16, 16, 3, 3)
    adam = [torch.randn(elements) for _ in range(3)] + [torch.rand(elements)]

    def update() -> None:
        torch._fused_adamw_(
            [adam[0]], [adam[1]], [adam[2]], [adam[3]], [], [torch.tensor(3.0)],
            lr=1e-3, beta1=0.9, beta2=0.999, weight_decay=0.01, eps=1e-8, amsgrad=False, maximize=False,
        )  # fmt: skip

    return {
        "add": lambda: x + y,
        "mul": lambda: x * y,
        "exp": lambda: torch.exp(x),
        "gelu": lambda: F.gelu(x),
        "sum over rows": lambda: x.sum(-1),
        "softmax": lambda: torch.softmax(x, -1),
        "log_softmax": lambda: torch.log_softmax(x, -1),
        "layer_norm": lambda: F.layer_norm(x, (side,), w, w),
        "mm": lambda: x @ y,
        "addmm": lambda: F.linear(x, y, w),
        "attention": lambda: F.scaled_dot_product_attention(q, k, v),
        "convolution": lambda: F.conv2d(picture, kernel, padding=1),
        "embedding": lambda: F.embedding(tokens, x),
        "fused AdamW": update,
        "clone": lambda: x.clone(),
    }


def record_call(call: Callable[[], object]) -> list[DispatcherCall]:
    recorder = Recorder()
    recorder.start()
    try:
        call()
    finally:
        recorder.stop()
    return recorder.store.calls


def call_rows(elements: int, rounds: int) -> Iterator[Row]:
    """Judging against the time of the call itself."""
    multiples = []
    for name, call in calls_of(elements).items():
        calls, judge = record_call(call), CallJudge()
        first = cpu_seconds(lambda calls=calls, judge=judge: [judge.hold(each) for each in calls])
        findings = [judge.hold(each) for each in calls]
        pair = _compared(call, lambda calls=calls, judge=judge: [judge.hold(c) for c in calls], rounds)
        seconds = pair.seconds
        judged = sum(finding.elements for finding in findings)
        multiples.append(statistics.median(pair.ratios))
        yield Row("judging", f"{name}: of the call's own time", multiples[-1], f"x, {seconds * 1e3:.2f} ms a call")
        if judged:
            yield Row("judging", f"{name}: an element", multiples[-1] * seconds / judged * 1e9, f"ns, of {judged}")
        else:
            reason = next((finding.reason for finding in findings if finding.reason), "no number")
            yield Row("judging", f"{name}: not read", 0, reason[:60])
        yield Row("judging", f"{name}: the first time", first, "CPU s")
    yield Row("judging", "median of all operations", statistics.median(multiples), "x")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    for name, default in (("layers", 12), ("width", 512), ("tokens", 512), ("rounds", 7), ("every", 50)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    options = parser.parse_args()
    if {"steps", "every", "judging"} & set(options.only):
        training = Training(options.layers, options.width, options.tokens)
        if "steps" in options.only:
            for row in step_rows(training, options.rounds):
                print(line(row), flush=True)
        if "every" in options.only:
            for row in every_rows(training, options.every, max(1, options.rounds // 3)):
                print(line(row), flush=True)
        if "judging" in options.only:
            for row in judging_rows(training):
                print(line(row), flush=True)
    if "calls" in options.only:
        for row in call_rows(options.elements, options.rounds):
            print(line(row), flush=True)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
