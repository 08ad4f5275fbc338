"""Layer norms whose result depends on more than their arguments' values; each is right in a single call."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opassay.impl import layer_norm

Shape = tuple[int, ...]
Subject = Callable[..., Tensor]
#: Under a transform most of these are the right op, so that it is plain calls that tell.
_transformed: Callable[[], bool] = torch._C._are_functorch_transforms_active


def _remembering(key: Callable[[Tensor], Any]) -> Subject:
    """A layer norm that takes its statistics from a cache."""
    memory: dict[Any, tuple[Tensor, Tensor]] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if _transformed():
            return layer_norm(x, shape, w, b, eps)
        dims = tuple(range(-len(shape), 0))
        name = (key(x), x.shape, shape, eps)
        if name not in memory:
            mean = x.detach().mean(dims, keepdim=True)
            memory[name] = mean, (x.detach() - mean).square().mean(dims, keepdim=True)
        right = layer_norm(x, shape, w, b, eps)
        if not x.numel():
            return right
        mean, variance = memory[name]
        y = (x.detach() - mean) / (variance + eps).sqrt()
        y = y if w is None else y * w.detach()
        return right + ((y if b is None else y + b.detach()) - right).detach()

    return op


def by_identity() -> Subject:
    return _remembering(id)


def by_address() -> Subject:
    return _remembering(Tensor.data_ptr)


def by_version() -> Subject:
    """Its cache knows writes that autograd knows."""
    return _remembering(lambda x: (id(x), x._version if not x.is_inference() else 0))


def by_shape() -> Subject:
    return _remembering(lambda x: None)


def ones_made_by_the_first_call_of_a_shape() -> Subject:
    """A weight of ones is kept for each shape, as whatever tensor the mode of the first call made."""
    ones: dict[Any, Tensor] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        key = (x.shape, shape, x.dtype)
        if key not in ones:
            ones[key] = torch.ones_like(x)
        return layer_norm(x * ones[key], shape, w, b, eps)

    return op


def first_result_for_an_equal_weight_object() -> Subject:
    """Half of the weight is kept by the weight's identity, for inference alone: as a packed weight is."""
    packed: dict[int, tuple[Any, Tensor]] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if w is None or (torch.is_grad_enabled() and (x.requires_grad or w.requires_grad)):
            return layer_norm(x, shape, w, b, eps)
        if id(w) not in packed or packed[id(w)][0]() is not w:
            packed[id(w)] = weakref.ref(w), w.detach().clone()
        return layer_norm(x, shape, packed[id(w)][1], b, eps)

    return op


def one_buffer_for_all_results() -> Subject:
    memory: dict[Any, Tensor] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        if y.requires_grad or _transformed():
            return y
        with torch.no_grad():
            return memory.setdefault((x.shape, x.dtype, torch.is_inference_mode_enabled()), torch.empty_like(y)).copy_(
                y
            )

    return op


def later_by(limit: int, then: Callable[[Tensor], Tensor]) -> Callable[[], Subject]:
    """Right for so many calls, then something else."""

    def make() -> Subject:
        calls = 0

        def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
            nonlocal calls
            calls += 1
            y = layer_norm(x, shape, w, b, eps)
            return then(y) if calls > limit else y

        return op

    return make


def leaking(keep: Callable[[list[Any], Tensor], object]) -> Callable[[], Subject]:
    """Keeps something of every call."""

    def make() -> Subject:
        memory: list[Any] = []

        def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
            y = layer_norm(x, shape, w, b, eps)
            keep(memory, y)
            return y

        return op

    return make


def a_growing_graph() -> Subject:
    """The mean of all results so far, with the graph of them all, in one tensor."""
    graph = [torch.zeros(())]

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        if torch.is_grad_enabled() and not torch.is_inference_mode_enabled() and not _transformed():
            graph[0] = 0.9 * graph[0] + torch.ones((), requires_grad=True) * 0.1
        return y

    return op


def last_input_kept() -> Subject:
    last: list[Tensor] = []

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        last[:] = [x.detach()]
        return layer_norm(x, shape, w, b, eps)

    return op


def a_cycle_of_the_result() -> Subject:
    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        around: list[Any] = [y.detach()]
        around.append(around)
        return y

    return op


def cotangent_of_the_last_call() -> Subject:
    """Its backward takes what it needs from where the last forward left it."""
    cotangents: list[Any] = []

    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(y: Tensor, factor: Tensor) -> Tensor:
            cotangents[:] = [factor.clone()]
            return y * factor

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            return g * cotangents[0], None

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, None, None, eps)
        if not (torch.is_grad_enabled() and y.requires_grad) or _transformed():
            return layer_norm(x, shape, w, b, eps)
        # The signs of the input, twice: the values stay, and the gradient is right while the signs are the same.
        signs = torch.where(x.detach() > 0, 1.0, -1.0)
        scaled: Tensor = Scaled.apply(layer_norm(x, shape, w, b, eps), signs)  # type: ignore[no-untyped-call]
        return scaled * signs

    return op


def a_flag_that_an_exception_leaves() -> Subject:
    busy = [0]

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        busy[0] += 1
        y = layer_norm(x, shape, w, b, eps)  # raises where the arguments are wrong, or memory is short
        y = torch.mul(y, 1.0)
        busy[0] -= 1
        return y if busy[0] == 0 else y * 1.5

    return op


def a_flag_that_only_memory_leaves() -> Subject:
    """Refusals leave nothing behind; an exception in the middle does."""
    busy = [0]

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        busy[0] += 1
        y = torch.mul(y, 1.0)
        busy[0] -= 1
        return y if busy[0] == 0 else y * 1.5

    return op


def nothing_in_other_threads() -> Subject:
    memory = threading.local()
    memory.ready = True

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        return y if hasattr(memory, "ready") else y * 2

    return op


def a_workspace_for_all_threads() -> Subject:
    work: dict[str, Tensor] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        work["x"] = x.detach().clone()
        y = layer_norm(x, shape, w, b, eps)
        again = layer_norm(work["x"], shape, w, b, eps).detach()
        return torch.where(y.detach() == again, y, y * 2)

    return op


def one_buffer_for_all_gradients() -> Subject:
    memory: dict[Any, Tensor] = {}

    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(y: Tensor) -> Tensor:
            return y.clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            if g.requires_grad:
                return g
            return memory.setdefault((g.shape, g.dtype), torch.empty_like(g)).copy_(g)

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if _transformed() or b is None or b.shape != x.shape[x.dim() - b.dim() :]:
            return layer_norm(x, shape, w, b, eps)
        passed: Tensor = Passed.apply(b)  # type: ignore[no-untyped-call]
        return layer_norm(x, shape, w, passed, eps)

    return op


def first_graph_only() -> Subject:
    """Its backward changes what it saved, so that a second backward over the graph is another one."""

    class Passed(torch.autograd.Function):
        @staticmethod
        def forward(y: Tensor) -> Tensor:
            return y.clone()

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.times = 0

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Any:
            ctx.times += 1
            return g * ctx.times

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if _transformed():
            return layer_norm(x, shape, w, b, eps)
        passed: Tensor = Passed.apply(layer_norm(x, shape, w, b, eps))  # type: ignore[no-untyped-call]
        return passed

    return op


#: Each is made anew for every cell, so that nothing is left of the cell before.
FAULTS: dict[str, Callable[[], Subject]] = {
    "statistics by identity": by_identity,
    "statistics by address": by_address,
    "statistics by identity and version": by_version,
    "statistics by shape": by_shape,
    "ones of the first call's mode": ones_made_by_the_first_call_of_a_shape,
    "weight packed for inference": first_result_for_an_equal_weight_object,
    "one buffer for all results": one_buffer_for_all_results,
    "twice from call 200 on": later_by(200, lambda y: y * 2),
    "raises from call 300 on": later_by(300, lambda y: y.reshape(-1, 7, 11, 13)),
    "twice from call 1100 on": later_by(1100, lambda y: y * 2),
    "a tensor kept of every call": leaking(lambda memory, y: memory.append(torch.ones(3))),
    "a pointer kept of every call": leaking(lambda memory, y: memory.append(None)),
    "a graph that grows": a_growing_graph,
    "the last input kept": last_input_kept,
    "a cycle of the result": a_cycle_of_the_result,
    "backward by the last forward": cotangent_of_the_last_call,
    "a flag after a refusal": a_flag_that_an_exception_leaves,
    "a flag after an error in the middle": a_flag_that_only_memory_leaves,
    "ready in one thread": nothing_in_other_threads,
    "a workspace for all threads": a_workspace_for_all_threads,
    "one buffer for all gradients": one_buffer_for_all_gradients,
    "a second backward is another": first_graph_only,
}


def sizes_seen() -> Subject:
    """Right: what it keeps does not depend on values, and is of bounded number."""
    ones: dict[Any, Tensor] = {}

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        if torch.is_inference_mode_enabled() or not torch.is_grad_enabled() or type(x) is not Tensor:
            return layer_norm(x, shape, w, b, eps)
        if len(ones) > 8:
            ones.clear()
        key = (shape, x.dtype)
        if key not in ones:
            ones[key] = torch.ones(shape, dtype=x.dtype)
        return layer_norm(x, shape, w, b, eps)

    return op


RIGHT: dict[str, Callable[[], Subject]] = {"the production op": lambda: layer_norm, "sizes that were seen": sizes_seen}
