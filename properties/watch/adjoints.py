"""The derivative of the loss by the result of every call, as the program's own backward pass computes it.

torch gives a result its autograd node after the dispatcher has returned. So what a call gave is looked at when the next
call is made: the node is asked to tell the gradient that reaches it. Nothing that the program sees is changed.

What is hard here are writes. A result that is written again later has another node by then, and a slice that is written
has its derivative within that of the whole tensor, at its elements.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch

from .call import DispatcherCall, Origin, Tensor, is_floating
from .mapped_memory import TensorCopies
from .origins import Origins

_Backward = Callable[..., None]


class _InThread(threading.local):
    """Of each thread: the call whose results it has yet to look at, and how deep it is in `backward`."""

    pending: tuple[Sequence[weakref.ref[Tensor] | None], DispatcherCall | None, Origin] | None = None
    depth = 0


class Adjoints:
    """What listens to autograd's nodes.

    Attributes:
        losses: what `backward` was called on: the value of each, weighted by the gradient that it was given.
        last: how many calls had been made when it was called last.
        functions: autograd functions of the program's own -> how many calls of them were met.
    """

    def __init__(
        self, copies: TensorCopies, count: Callable[[], int], note_root: Callable[[Tensor, Tensor], None]
    ) -> None:
        self.losses: list[Tensor] = []
        self.last = 0
        self.functions: Counter[type] = Counter()
        self._custom_nodes: weakref.WeakSet[Any] = weakref.WeakSet()
        self._count, self._note_root = count, note_root
        self._copies = copies
        self._here = _InThread()
        self._running = 0  # calls of `backward`; autograd may ask nodes from a thread of its own
        self._original: _Backward | None = None

    def start(self) -> None:
        """Listen to `backward`."""
        self._original = original = torch.autograd.backward

        @functools.wraps(original)
        def backward(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> None:
            self.settle()
            if not self._here.depth:
                self.last = self._count()
                self._note_loss(tensors, grad_tensors)
            self._enter(1)
            try:
                original(tensors, grad_tensors, *args, **kwargs)
            finally:
                self._enter(-1)

        torch.autograd.backward = backward

    def _enter(self, step: int) -> None:
        self._here.depth += step
        self._running += step

    def stop(self) -> None:
        """Listen no more."""
        if self._original is not None:
            torch.autograd.backward = self._original

    def expect(self, results: Sequence[Any], call: DispatcherCall | None, origin: Origin) -> None:
        """Look at these results of a call when this thread makes its next one; a view has no call of its own."""
        # Not held until then: autograd copies a gradient that it adds up where somebody else has it.
        self._here.pending = [weakref.ref(y) if isinstance(y, Tensor) else None for y in results], call, origin

    def settle(self) -> None:
        """Look at the results of this thread's last call."""
        if self._here.pending is None:
            return
        (results, call, origin), self._here.pending = self._here.pending, None
        for position, reference in enumerate(results):
            result = None if reference is None else reference()
            node = _node_of(result, is_written=call is not None)
            if result is None or node is None:
                continue
            Origins.mark(node, origin)
            function = getattr(node, "_forward_cls", None)
            if function is not None and node not in self._custom_nodes:
                self._custom_nodes.add(node)
                self.functions[function] += 1
            if call is not None and is_floating(result):
                call.tracked[position] = True
                self._listen(node, result, weakref.ref(call), position)

    def _listen(self, node: Any, result: Tensor, call: Callable[[], DispatcherCall | None], position: int) -> None:
        base = result._base if result._is_view() else None
        number, shape = (base if base is not None else result).output_nr, result.shape
        place = None if base is None else (result.stride(), result.storage_offset() - base.storage_offset())
        whole = base is None or (base.is_contiguous() and base.shape.numel())

        def take(gradients: Sequence[Tensor | None]) -> None:
            gradient, owner = gradients[number], call()
            if gradient is None or owner is None or not self._running or not whole:
                return
            with torch._C._DisableTorchDispatch():
                if place is not None:
                    gradient = gradient.contiguous().as_strided(shape, *place)
                earlier = owner.adjoints[position]
                own = self._copies.copy(gradient)
                owner.adjoints[position] = own if earlier is None else earlier + own

        node.register_prehook(take)

    def _note_loss(self, tensors: Any, gradients: Any) -> None:
        roots = [tensors] if isinstance(tensors, Tensor) else list(tensors)
        weights = [gradients] if gradients is None or isinstance(gradients, Tensor) else list(gradients)
        weights += [None] * (len(roots) - len(weights))
        with torch._C._DisableTorchDispatch():
            for root, weight in zip(roots, weights, strict=True):
                if isinstance(root, Tensor) and not root.dtype.is_complex:
                    whole = torch.ones_like(root.detach()) if weight is None else weight.detach()
                    self.losses.append((root.detach().double() * whole).sum())
                    self._note_root(root, whole)


def _node_of(result: Any, is_written: bool) -> Any:
    """The autograd node that gives a result; for a view that was written that of the tensor behind it."""
    if not isinstance(result, Tensor) or not result.requires_grad:
        return None
    base = result._base if is_written and result._is_view() else None
    return result.grad_fn if base is None else base.grad_fn
