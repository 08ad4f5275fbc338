"""The calls of a compiled graph's text: run once more, operation by operation, from the operands that it had."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

from .call import DispatcherCall, Origin, Tensor
from .compiled import GraphRegion, GraphRunner, module_of
from .recorder import Recorder
from .writers import Source, Sources

#: The number of what stands before the calls, and gives the operands.
BEFORE = -1


class Unfolded(NamedTuple):
    """The calls of a graph, what wrote their operands, and its results with what wrote them."""

    calls: list[DispatcherCall]
    sources: Mapping[int, Sources]
    results: list[tuple[Tensor, Source]]


class _Unfolding(GraphRunner):
    """Runs a graph, and says of each call to which node it belongs."""

    def __init__(self, graph: torch.fx.GraphModule, recorder: Recorder, node: str) -> None:
        super().__init__(graph)
        self.origins: list[Origin] = []
        self._recorder, self._node = recorder, node

    def run_node(self, n: torch.fx.Node) -> Any:
        value = super().run_node(n)
        lines = re.findall(r'File "([^"]+)", line (\d+)', n.meta.get("stack_trace") or "")
        line = f"{'/'.join(lines[-1][0].split('/')[-2:])}:{lines[-1][1]}" if lines else ""
        origin = Origin(module_of(n), line, self._node)
        self.origins += [origin] * (len(self._recorder.store.order) - len(self.origins))
        return value


def unfold(call: DispatcherCall) -> Unfolded:
    """The calls of the graph of a region."""
    region: GraphRegion = call.op
    recorder = Recorder()
    run, writers = _Unfolding(region.graph, recorder, call.origin.node), recorder.store.writers
    leaves = [x.clone() if isinstance(x, Tensor) else x for x in call.leaves]
    writers.note_results(BEFORE, 0, [x for x in leaves if isinstance(x, Tensor)])
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        if call.generator is not None:
            torch.set_rng_state(call.generator)
        recorder.start()
        try:
            results = region.results_of(run.run(*leaves), leaves)
        finally:
            recorder.stop()
    calls = recorder.store.calls
    for each in calls:
        each.origin, each.switches = run.origins[each.number], call.switches
    return Unfolded(calls, writers.sources, [(y, writers.source_of(y)) for y in results])
