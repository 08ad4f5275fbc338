"""Times the way from the public call of an op to the launch of its CUDA kernels: what Python takes, without a GPU.

Run `python benchmarks/launch_cost.py [OP]...`. Tensors of the CPU go to the CUDA kernels here, and the launcher does
nothing, so a call costs what a call on a GPU costs before Triton is asked: arguments checked, the tile looked up,
results made. No gradient is wanted. Minima of many runs, because on a shared machine the minimum is what code costs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # the workshop is not installed

from measurement import Row, at_most, fastest, line

from opassay import impl
from opassay.impl.gpu import launching
from opassay.impl.operator.operator import Operator
from workshop.kernels.classes import CLASSES, ShapeClass, first_of_each
from workshop.kernels.source import Source

RUNS = 400
CALLS = 20
#: Microseconds of a call, by the plan for kernels that take ten: more, and Python decides what an op costs.
TARGET = 15.0
_SOURCE = Source(torch.float32, torch.device("cpu"), torch.Generator().manual_seed(0))


class Nowhere:
    """A launcher that does nothing, and counts.

    Attributes:
        launches: how many there were.
    """

    def __init__(self) -> None:
        self.launches = 0

    def launch(self, *launch: object) -> None:
        self.launches += 1

    def empty(self, shape: Sequence[int], dtype: torch.dtype, device: torch.device) -> Tensor:
        if dtype.is_floating_point:
            return torch.empty(shape, dtype=dtype, device=device)
        # What a kernel reports in integers, such as a class out of range, host code may read: nothing is wrong.
        return torch.zeros(shape, dtype=dtype, device=device)


def rows(ops: Sequence[str] = ()) -> Iterator[Row]:
    """A row for every op that launches kernels: microseconds of a call, forward, without a gradient."""
    Operator.serve_by_cuda_kernels("CPU")
    nowhere = Nowhere()
    with launching.on(nowhere), torch.no_grad():
        for kind in first_of_each([kind for kind in CLASSES if not ops or kind.op in ops]):
            call = _call(kind)
            before = nowhere.launches
            call()
            launched = nowhere.launches - before
            if not launched:
                yield Row("launch_cost", f"{kind.op} (launches nothing)", float("nan"), "µs")
                continue
            (seconds,) = fastest([lambda call=call: _repeat(call)], RUNS)  # type: ignore[misc]
            case = f"{kind.op}, {launched} launch{'es' * (launched > 1)}"
            yield at_most("launch_cost", case, seconds / CALLS * 1e6, "µs", TARGET)


def _call(kind: ShapeClass) -> Callable[[], object]:
    op: Callable[..., object] = getattr(impl, kind.op)
    arguments = [value.detach() if isinstance(value, Tensor) else value for value in kind.arguments(_SOURCE, kind.few)]
    return lambda: op(*arguments, **kind.keywords)


def _repeat(call: Callable[[], object]) -> None:
    for _ in range(CALLS):
        call()


if __name__ == "__main__":
    torch.set_num_threads(1)
    for row in rows(sys.argv[1:]):
        print(line(row), flush=True)
