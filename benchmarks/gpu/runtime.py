"""What else CUDA asks of the ops: graphs, streams, torch.compile(fullgraph=True), the cost of a launch. Bits decide.

Results are held against those of the same op in plain calls: the same kernels run, so every bit must be the same.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))  # the workshop is not installed

import torch
from telling import DEVICE, Time, guarded, require_gpu, tell
from torch import Tensor

from opassay import impl
from workshop.kernels.classes import CLASSES, ShapeClass, first_of_each
from workshop.kernels.source import Source, gradients, outputs_of

CALLS = 200


def with_gradients(kind: ShapeClass, arguments: tuple[Any, ...]) -> Callable[[], tuple[Tensor, ...]]:
    """The op's outputs and its gradients, as a call without arguments."""
    op = getattr(impl, kind.op)

    def call() -> tuple[Tensor, ...]:
        outputs = outputs_of(op(*arguments, **kind.keywords))
        return (*(out.detach() for out in outputs), *gradients(outputs, arguments))

    return call


def same(results: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> str:
    """ "same bits", or how many outputs differ."""
    torch.cuda.synchronize()
    differ = sum(
        not torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
        for a, b in zip(results, wanted, strict=True)
    )
    return "same bits" if not differ else f"{differ} of {len(wanted)} tensors differ"


def graphed(call: Callable[[], tuple[Tensor, ...]], wanted: tuple[Tensor, ...]) -> str:
    """The call in a CUDA graph, replayed after its results were spoilt."""
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    for tensor in result:
        tensor.fill_(float("nan"))
    graph.replay()
    return same(result, wanted)


def streamed(kind: ShapeClass, arguments: tuple[Any, ...], wanted: tuple[Tensor, ...]) -> str:
    """The call on eight streams at once; each has running statistics of its own, which the call writes."""
    streams = [torch.cuda.Stream() for _ in range(8)]
    calls = [with_gradients(kind, tuple(map(_own, arguments))) for _ in streams]
    results = []
    for stream, call in zip(streams, calls, strict=True):
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            results.append(call())
    torch.cuda.synchronize()
    verdicts = {same(result, wanted) for result in results}
    return verdicts.pop() if len(verdicts) == 1 else "; ".join(sorted(verdicts))


def _own(value: Any) -> Any:
    """A copy of a tensor that needs no gradient; anything else as it is."""
    return value.clone() if isinstance(value, Tensor) and not value.requires_grad else value


def compiled(call: Callable[[], tuple[Tensor, ...]], kind: ShapeClass, arguments: tuple[Any, ...]) -> str:
    """The op within torch.compile, in one graph: its outputs alone."""
    op = getattr(impl, kind.op)
    torch._dynamo.reset()
    whole = torch.compile(lambda *operands: op(*operands, **kind.keywords), fullgraph=True)
    detached = [value.detach() if isinstance(value, Tensor) else value for value in arguments]
    return same(outputs_of(whole(*detached)), outputs_of(op(*detached, **kind.keywords)))


def launch_cost(kind: ShapeClass, arguments: tuple[Any, ...]) -> float:
    """Microseconds that a call takes of Python, without a gradient; the GPU is waited for before and after."""
    op = getattr(impl, kind.op)
    detached = [value.detach() if isinstance(value, Tensor) else value for value in arguments]
    best = float("inf")
    for _ in range(15):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(CALLS):
            op(*detached, **kind.keywords)
        best = min(best, (time.perf_counter() - start) / CALLS)
    return best * 1e6


def main() -> None:
    """All of it, for each op at one small shape; the compiled last, because it takes seconds."""
    require_gpu()
    clock = Time()
    kinds = first_of_each(CLASSES)
    results = {}
    for kind in kinds:
        with guarded(kind.name):
            source = Source(torch.float32, torch.device(DEVICE), torch.Generator(DEVICE).manual_seed(0))
            results[kind.op] = kind.arguments(source, kind.few)
    for kind in (kind for kind in kinds if kind.op in results):
        call = with_gradients(kind, results[kind.op])
        with guarded(f"{kind.op} graph"):
            tell(op=kind.op, what="graph", found=graphed(call, call()))
        with guarded(f"{kind.op} 8 streams"):
            tell(op=kind.op, what="8 streams", found=streamed(kind, results[kind.op], call()))
        with guarded(f"{kind.op} launch cost"):
            tell(op=kind.op, what="µs of a call forward", found=round(launch_cost(kind, results[kind.op]), 1))
    for kind in (kind for kind in kinds if kind.op in results):
        if clock.left() < 0:
            tell(what=f"{kind.op} compiled", failed="no time was left")
            return
        with guarded(f"{kind.op} compiled"):
            call = with_gradients(kind, results[kind.op])
            tell(op=kind.op, what="torch.compile(fullgraph=True)", found=compiled(call, kind, results[kind.op]))


if __name__ == "__main__":
    main()
