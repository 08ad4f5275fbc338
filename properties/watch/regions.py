"""Regions of a program that are no call of torch alone, and have a spec: operators, autograd functions and modules.

A kernel that is launched inside of one is invisible to torch's dispatcher. What goes into the region and comes out of
it is not: so the region is held as one call, by its spec in plain PyTorch. Registered once for a library, by `spec`.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch.nn.utils.stateless import _reparametrize_module
from torch.utils import _pytree as pytree

from .call import Tensor, is_floating, name_of, tensors_in
from .stand_ins.lookup import stand_in_of

#: What `spec` has registered: the name of an operator, an autograd function or a class of modules -> its specs.
TABLE: dict[Any, RegionSpec] = {}


@dataclass(frozen=True)
class RegionSpec:
    """The specs of a region: of its values, and of its gradients where the derivative of the former is not meant."""

    reference: Callable[..., Any]
    backward: Callable[..., Any] | None = None


def reference_of(op: torch._ops.OpOverload) -> Callable[..., Any] | None:
    """What an operation is read by, alone or in a graph: its spec, or what stands for it; None where it is itself."""
    own = TABLE.get(name_of(op))
    return own.reference if own is not None else stand_in_of(op)


class RecordedRegion(Protocol):
    """What is recorded as one call and is no operation of torch."""

    @property
    def name(self) -> str: ...

    def results_of(self, output: Any, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """The tensors among what it gave for its operands."""


@dataclass(frozen=True)
class Region:
    """What a region of one kind computes, as a function of its operands.

    Attributes:
        name: for the report. spec: of the region. of: an autograd function's "forward" or "backward", or "module".
        wanted: of a backward, the positions of the arguments that it gives gradients for.
        module: whose region it is; its parameters and buffers come before the arguments.
    """

    name: str
    spec: RegionSpec
    of: str = "forward"
    wanted: tuple[int, ...] = ()
    module: torch.nn.Module | None = None

    def results_of(self, output: Any, args: Sequence[Any]) -> tuple[Tensor, ...]:
        """The tensors among what the region gave for its operands; a gradient that it left out is zero."""
        if self.of != "backward":
            return tuple(tensors_in(output))
        _, inputs = args
        every = output if isinstance(output, (tuple, list)) else (output,)
        return tuple(torch.zeros_like(inputs[i]) if every[i] is None else every[i] for i in self.wanted)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The results by the spec; in backward the gradients, of the arguments that are wanted."""
        if self.of == "backward":
            return self._gradients(*args)
        if self.module is None:
            return self.spec.reference(*args, **kwargs)
        state, *rest = args
        with _reparametrize_module(self.module, state):
            return self.spec.reference(self.module, *rest, **kwargs)

    def _gradients(self, cotangents: Sequence[Tensor], args: Sequence[Any]) -> Any:
        if self.spec.backward is not None:
            every = self.spec.backward(*cotangents, *args)
            every = every if isinstance(every, (tuple, list)) else (every,)
            return tuple(every[i] for i in self.wanted)

        def of_wanted(*values: Tensor) -> tuple[Tensor, ...]:
            whole = list(args)
            for position, value in zip(self.wanted, values, strict=True):
                whole[position] = value
            outputs = self.spec.reference(*whole)
            outputs = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
            return tuple(y for y in outputs if is_floating(y))

        return torch.func.vjp(of_wanted, *(args[i] for i in self.wanted))[1](tuple(cotangents))


def spec(target: Any, reference: Callable[..., Any], *, backward: Callable[..., Any] | None = None) -> None:
    """Say in plain PyTorch what a region of programs computes, so that `watch` holds it like a call of torch.

        opassay.spec("mylib::rms_norm", lambda x, w: x * x.pow(2).mean(-1, True).add(1e-6).rsqrt() * w)

    Args:
        target: the name of an operator, "mylib::rms_norm"; a subclass of `torch.autograd.Function`; or a subclass of
            `torch.nn.Module`.
        reference: takes the same arguments; of a class of modules, the module first, whose parameters it reads.
        backward: of an autograd function: takes the gradients of its results and then its arguments, and gives those of
            the arguments; by default the derivative of `reference`.

    Raises:
        TypeError: `target` is none of these, or a reference cannot be called.
        ValueError: `target` is a text without "::", or `backward` is given for what is no autograd function.
    """
    is_class = isinstance(target, type) and issubclass(target, (torch.autograd.Function, torch.nn.Module))
    if not isinstance(target, str) and not is_class:
        raise TypeError(f"target: got {target!r}, need an operator's name, an autograd function or a class of modules")
    if isinstance(target, str) and "::" not in target:
        raise ValueError(f"target: got {target!r}, need the name of an operator as NAMESPACE::NAME")
    for name, function in (("reference", reference), ("backward", backward)):
        if function is not None and not callable(function):
            raise TypeError(f"{name}: got a {type(function).__name__}, need a function")
    if backward is not None and not (is_class and issubclass(target, torch.autograd.Function)):
        raise ValueError(f"backward: got one for {target!r}, need an autograd function; other gradients are calls")
    TABLE[target] = RegionSpec(reference, backward)


#: Runs a region and records it: (region, operands, the call) -> what the call gives, and what was recorded of it.
RecordRegion = Callable[[Region, Any, Any, Callable[[], Any]], tuple[Any, Any]]


class RegionHooks:
    """Stands around the regions that have a spec while a program is recorded."""

    def __init__(self, record: RecordRegion) -> None:
        self._record = record
        self._originals: list[tuple[type, str, Any]] = []
        self._here = threading.local()  # of each thread, the call of a function that has yet to set up its context

    def start(self) -> None:
        """Stand around them."""
        for target, own in TABLE.items():
            if isinstance(target, type) and issubclass(target, torch.nn.Module):
                self._replace(target, "forward", self._module_forward(target, own))
            elif isinstance(target, type):
                self._replace(target, "forward", staticmethod(self._function_forward(target, own)))
                self._replace(target, "backward", staticmethod(self._function_backward(target, own)))
                self._replace(target, "setup_context", staticmethod(self._function_context(target)))

    def stop(self) -> None:
        """Put back what was there."""
        for owner, name, original in reversed(self._originals):
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
        self._originals = []

    def _replace(self, owner: type, name: str, wrapper: Any) -> None:
        self._originals.append((owner, name, owner.__dict__.get(name)))
        setattr(owner, name, wrapper)

    def _module_forward(self, target: Any, own: RegionSpec) -> Callable[..., Any]:
        original = target.forward

        @functools.wraps(original)
        def forward(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
            # torch.compile traces this, too; a graph that it compiles is a region of its own.
            if type(module) is not target or torch.compiler.is_compiling():
                return original(module, *args, **kwargs)
            state = {**dict(module.named_parameters()), **dict(module.named_buffers())}
            region = Region(target.__name__, own, "module", module=module)
            return self._record(region, (state, *args), kwargs, lambda: original(module, *args, **kwargs))[0]

        return forward

    def _function_forward(self, target: Any, own: RegionSpec) -> Callable[..., Any]:
        original = target.forward
        has_context = target.setup_context is torch.autograd.Function.setup_context

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            values = args[1:] if has_context else args
            output, call = self._record(Region(target.__name__, own), values, {}, lambda: original(*args, **kwargs))
            if has_context:
                args[0].opassay_call = call
            else:
                self._here.call = call
            return output

        return forward

    def _function_context(self, target: Any) -> Callable[..., Any]:
        original = target.setup_context
        if original is torch.autograd.Function.setup_context:  # torch tells two forms of functions apart by it.
            return original

        @functools.wraps(original)
        def setup_context(ctx: Any, inputs: Any, output: Any) -> Any:
            ctx.opassay_call, self._here.call = self._here.call, None
            return original(ctx, inputs, output)

        return setup_context

    def _function_backward(self, target: Any, own: RegionSpec) -> Callable[..., Any]:
        original = target.backward

        @functools.wraps(original)
        def backward(ctx: Any, *cotangents: Any) -> Any:
            call = getattr(ctx, "opassay_call", None)
            if call is None:
                return original(ctx, *cotangents)
            args, _ = pytree.tree_unflatten(list(call.leaves), call.structure)
            wanted = tuple(i for i, x in enumerate(args) if is_floating(x) and ctx.needs_input_grad[i])
            region = Region(f"{target.__name__} backward", own, "backward", wanted)
            pairs = [(g, y) for g, y in zip(cotangents, call.results, strict=False) if is_floating(y)]
            gradients = [torch.zeros_like(y) if g is None else g for g, y in pairs]
            return self._record(region, (gradients, list(args)), {}, lambda: original(ctx, *cotangents))[0]

        return backward
