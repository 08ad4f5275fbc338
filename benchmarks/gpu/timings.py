"""Times of the ops' kernels, forward and backward, against others: `timings.py SUBJECT... SECONDS`.

Every shape class of `workshop/kernels/classes.py`, each op's first dense one first, in bfloat16 and then in float32.
A fraction is that of the copy bandwidth, which is measured at the beginning.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the workshop is not installed

import torch
from subjects import SUBJECTS, Call
from telling import DEVICE, Time, copy_bandwidth, flushing, guarded, microseconds, require_gpu, tell
from torch import Tensor

from opassay import impl
from opassay.impl.gpu import launching
from workshop.kernels.classes import CLASSES, ShapeClass, first_of_each
from workshop.kernels.source import Source, outputs_of

MODULES = {"liger": "liger_kernel", "quack": "quack"}
DTYPES = (torch.bfloat16, torch.float32)


def in_order() -> list[ShapeClass]:
    """All classes, the most telling first."""
    first = first_of_each(CLASSES)
    return [*first, *(kind for kind in CLASSES if kind not in first)]


Direction = tuple[str, Callable[[], Any]]


def directions(call: Call, arguments: tuple[Any, ...], named: dict[str, Any]) -> Iterator[Direction]:
    """What is timed of a call: it without a graph, and its gradient alone."""

    def forward() -> Any:
        with torch.no_grad():
            return call(*arguments, **named)

    yield "forward", forward
    outputs = [out for out in outputs_of(call(*arguments, **named)) if out.requires_grad]
    wanted = [value for value in arguments if isinstance(value, Tensor) and value.requires_grad]
    cotangents = [torch.ones_like(out) for out in outputs]
    yield "backward", lambda: torch.autograd.grad(outputs, wanted, cotangents, retain_graph=True)


def measure(kind: ShapeClass, dtype: torch.dtype, others: list[str], bandwidth: float, flush: Tensor) -> None:
    """A row for each direction: times of our op and of the others.

    Args:
        kind, dtype: what is called. others: names of subjects.
        bandwidth: bytes in a second of a copy. flush: as for `microseconds`.
    """
    source = Source(dtype, torch.device(DEVICE), torch.Generator(DEVICE).manual_seed(0))
    arguments = kind.arguments(source, kind.shape)
    ours: Call = getattr(impl, kind.op)
    launching.fallbacks.clear()
    times: dict[str, dict[str, tuple[float, float]]] = {}
    failures = []
    for name in ("opassay", *others):
        try:
            call = ours if name == "opassay" else SUBJECTS[name](kind.op, kind.label)
            for direction, timed in directions(call, arguments, kind.keywords):
                times.setdefault(direction, {})[name] = microseconds(timed, flush)
        except Exception as err:  # of others' code, which may not take this shape
            failures.append(f"{name}: {type(err).__name__}: {str(err)[:150]}")
    fallen = ", ".join(f"{op}: {reason}" for op, reason in launching.fallbacks)
    for direction, result in times.items():
        must = getattr(kind.must(kind.shape, dtype.itemsize), direction)
        row: dict[str, object] = {
            "class": kind.name, "direction": direction, "dtype": str(dtype).removeprefix("torch."), "MB": must / 1e6
        }  # fmt: skip
        for name in ("opassay", *others):
            median, least = result.get(name, (float("nan"), float("nan")))
            row |= {f"{name} µs": _or_none(median), f"{name} least µs": _or_none(least)}
            row[f"{name} fraction"] = _or_none(must / median * 1e6 / bandwidth)
        tell(**row, notes="; ".join([*failures, *([f"fell back: {fallen}"] if fallen else [])]))


def _or_none(value: float) -> float | None:
    return value if value == value else None


def main() -> None:
    """Times what the command line names, as long as there is time."""
    require_gpu()
    clock = Time()
    others = [name for name in sys.argv[1:-1] if name not in MODULES or importlib.util.find_spec(MODULES[name])]
    for name in set(sys.argv[1:-1]) - set(others):
        tell(what=name, failed="not installed")
    flush = flushing()
    bandwidth = copy_bandwidth(flush)
    tell(**{"copy GB/s": bandwidth / 1e9})
    for dtype in DTYPES:
        for kind in in_order():
            if clock.left() < 0:
                tell(what=f"from {kind.name} in {dtype} on", failed="no time was left")
                return
            with guarded(f"{kind.name} {dtype}"):
                measure(kind, dtype, others, bandwidth, flush)
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
