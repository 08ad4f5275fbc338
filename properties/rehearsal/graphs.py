"""`torch.cuda.CUDAGraph` on the rehearsal device: what is done while it captures is kept, and done again by `replay`.

The device keeps torch's ops, and this module the launches of kernels, each with its place among the ops.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

_ROOM = 2048


class Graphs:
    """The captures of this process.

    Args:
        library: the device's functions.
    """

    def __init__(self, library: Any) -> None:
        self._library = library
        self.launches: list[tuple[int, Callable[[], None]]] = []

    def ask(self, name: str, *operands: Any) -> Any:
        """What a function of the device returns; RuntimeError where it refuses."""
        text = ctypes.create_string_buffer(_ROOM)
        result = getattr(self._library, name)(*operands, text, ctypes.c_int64(_ROOM))
        if text.value:
            raise RuntimeError(text.value.decode())
        return result

    def keep(self, device: int, launch: Callable[[], None]) -> None:
        """Keep a launch on the current stream of a device, if that is captured."""
        if self._library.is_capturing(device):
            self.launches.append((self._library.capture_size(), launch))


def graph_class(graphs: Graphs, library: Any) -> type:
    """The class `CUDAGraph`."""

    class RehearsalGraph:
        def __init__(self, keep_graph: bool = False) -> None:
            self._steps: Any = None
            self._launches: list[tuple[int, Callable[[], None]]] = []

        def capture_begin(self, pool: Any = None, capture_error_mode: str = "global", **_: Any) -> None:
            graphs.ask("begin_capture")
            graphs.launches.clear()

        def capture_end(self) -> None:
            steps = graphs.ask("end_capture")
            self._steps, self._launches = ctypes.c_void_p(steps), list(graphs.launches)
            graphs.launches.clear()

        def instantiate(self) -> None:
            """Nothing: a replay does each step by itself."""

        def replay(self) -> None:
            if self._steps is None:
                raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
            done = 0
            for place, launch in self._launches:
                self._do(done, place)
                launch()
                done = place
            self._do(done, library.graph_size(self._steps))

        def _do(self, first: int, last: int) -> None:
            graphs.ask("replay", self._steps, ctypes.c_int64(first), ctypes.c_int64(last))

        def reset(self) -> None:
            if self._steps is not None:
                library.delete_graph(self._steps)
            self._steps, self._launches = None, []

        def pool(self) -> tuple[int, int]:
            return (0, 0)

        def __del__(self) -> None:
            self.reset()

    return RehearsalGraph
