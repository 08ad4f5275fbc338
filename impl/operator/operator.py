"""One op that is right under every transform: schema, kernels and derivatives in, something to call out.

An `Operator` registers a `torch.library` op and puts a Python kernel on its Autograd key. That kernel gives the op its
derivatives, by rules (rules.py) or by an expression (expression.py), around a call that re-enters the op *below*
autograd. So each layer of torch sees what it understands: functorch levels are peeled one at a time by the dispatcher,
Dynamo and export see one opaque op with a fake rule, vmap has its own rule, and the kernels see plain tensors.

What is hard here: a call may be inside any stack of transforms, and the fast way to the kernel is right only where no
transform, mode or tracer would miss the call. `Operator.__call__` decides that, in a few microseconds.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar, TypeVarTuple, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from . import records
from . import torch_private as private
from .records import Record, new

Ts = TypeVarTuple("Ts")
Inputs = TypeVar("Inputs")
Outputs = TypeVar("Outputs")

LIBRARY = torch.library.Library("opassay", "FRAGMENT")
"""Where all ops of this package are registered. A library that is collected would take its ops with it."""

_PLAIN = frozenset((Tensor, torch.nn.Parameter))
# These are looked up once, because a call asks all of them before it may go straight to a kernel. Dynamo knows
# `is_dynamo_compiling` under any name and takes it for True.
_is_dynamo_compiling = torch.compiler.is_dynamo_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_transforms_active = private.transforms_active
_dispatch_mode_count = private.dispatch_mode_count
_key_included = private.key_included
_VMAP_MODE = private.VMAP_MODE


@dataclass(frozen=True, slots=True)
class Kernels(Generic[*Ts, Outputs]):
    """What computes an op's values: one kernel per device, one for fake tensors.

    Attributes:
        cpu, cuda: the op's arguments in, its outputs out (a Tensor, or a tuple of Tensor and None); plain tensors only.
        fake: the record of the arguments in, outputs of the right shapes, dtypes and strides out.
        autocast: (device type, dtype) pairs: under autocast on that device, floating arguments are cast to that dtype.
    """

    cpu: Callable[[*Ts], Outputs]
    cuda: Callable[[*Ts], Outputs]
    fake: Callable[[Record], object]
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


class Derivatives(ABC):
    """The derivatives of an op: `rules.Rules`, `rules.Linear` or `expression.Expression`."""

    @abstractmethod
    def around(self, op: Shortcut[*tuple[Any, ...], Any], values: Callable[..., Any], level: str) -> Callable[..., Any]:
        """The function of the op's arguments that returns `values` of them, differentiable.

        Args:
            op: the op, for its names.
            values: the op's arguments in, its outputs out, without derivatives.
            level: "plain" for a call of plain tensors straight to a kernel, "autograd" for one by way of the
                dispatcher, "functorch" for one at a level of a torch.func transform.
        """


def taking(
    record: Callable[[*Ts], Inputs], cpu: Callable[[Inputs], Outputs], cuda: Callable[[Inputs], Outputs],
    fake: Callable[[Record], object], autocast: tuple[tuple[str, torch.dtype], ...] = (),
) -> Kernels[*Ts, Outputs]:  # fmt: skip
    """`Kernels` of an op of many arguments, which are declared once for all devices.

    Args:
        record: a NamedTuple of the arguments in the schema's order.
        cpu, cuda: one such record in, the op's outputs out.
        fake, autocast: as for `Kernels`.
    """

    def on_cpu(*args: *Ts) -> Outputs:
        return cpu(new(record, args))

    def on_cuda(*args: *Ts) -> Outputs:
        return cuda(new(record, args))

    return Kernels(on_cpu, on_cuda, fake, autocast)


VmapRule = Callable[[Any, int, Record, Record], tuple[Any, Any]]
"""(op, size of the batch, in_dims by argument name, arguments) -> (outputs, out_dims)."""


class Shortcut(Generic[*Ts, Outputs]):
    """A function of tensors whose plain calls go straight to a kernel, and whose other calls go to another function.

    An `Operator` is a shortcut past torch's dispatcher. A shortcut that is no operator has one kernel for the work of
    several ops, some of which may write to their arguments; transforms see those ops, never the shortcut.

    Attributes:
        name: for messages, and of the nodes in a graph.
        kernels, derivatives: what computes the values, and how they are differentiated.
        arguments, outputs: make a record from values in the order of the arguments.
        argument_names, output_names: the names in these records.
        tensors: the positions of arguments that are tensors.
    """

    #: All shortcuts that are not operators.
    apart: list[Shortcut[*tuple[Any, ...], Any]] = []  # noqa: RUF012

    def __init__(
        self, name: str, names: tuple[tuple[str, ...], tuple[str, ...]], tensors: tuple[int, ...],
        kernels: Kernels[*Ts, Outputs], derivatives: Derivatives, otherwise: Callable[[*Ts], Outputs],
    ) -> None:  # fmt: skip
        """A shortcut.

        Args:
            name, kernels, derivatives: see the class.
            names: of the arguments, and of the outputs.
            tensors: positions of the arguments that are tensors or None. A tensor in another argument carries no
                derivative, and may be of any type.
            otherwise: the function that serves all calls but the plain ones.
        """
        self.name, self.tensors = name, tensors
        self.argument_names, self.output_names = names
        self.kernels, self.derivatives = kernels, derivatives
        self._dispatched = self._elsewhere = otherwise
        self.argument_record = records.record_of(f"{name}_arguments", self.argument_names)
        self.output_record = records.record_of(f"{name}_outputs", self.output_names)
        self.arguments = records.maker(self.argument_record)
        self._first_tensor, *self._other_tensors = tensors
        # `derivatives.around` reads the names and positions above, so it must come after them.
        self._autocast = frozenset(device for device, _ in kernels.autocast)
        self._straight: dict[str, tuple[Callable[[*Ts], Outputs], Callable[[*Ts], Outputs]]] = {
            device: (kernel, cast(Callable[[*Ts], Outputs], derivatives.around(self, kernel, "plain")))
            for device, kernel in (("cpu", kernels.cpu), ("cuda", kernels.cuda))
        }
        if type(self) is Shortcut:
            Shortcut.apart.append(self)

    def __call__(self, *args: *Ts) -> Outputs:
        """The op's outputs: straight from the kernel where autograd alone may need to see the call, else dispatched.

        A call of plain tensors on one device, without transform, dispatch mode or tracer, is either differentiable or
        not. That is decided here, without the dispatcher's round trips through Python. Under Dynamo the first test is a
        constant, so that the graph has only the op, or the ops that a shortcut stands for.
        """
        # `torch.compiler.is_compiling` combines the first two tests, but as a call of a call it takes longer than both.
        if (
            _is_dynamo_compiling()
            or torch.compiler._is_compiling_flag
            or _transforms_active()
            or _dispatch_mode_count()
            or _key_included(_VMAP_MODE)
        ):
            return self._dispatched(*args)
        first: Any = args[self._first_tensor]
        # A subclass of Tensor may have a `__torch_function__` or `__torch_dispatch__`, which only the dispatcher calls.
        # Most tensors are of the first type, and comparing types is cheaper than a lookup in a set.
        kind = type(first)
        if kind is not Tensor and kind not in _PLAIN:
            return self._dispatched(*args)
        records_graph = _is_grad_enabled()
        differentiable = forward_ad._current_level >= 0 or (records_graph and first.requires_grad)
        # The first tensor is tested apart from the others, so that an op of one tensor runs no loop. The types of the
        # others are tested even where the first one has shown the call to be differentiable, because they decide
        # whether the kernel may be called at all.
        for i in self._other_tensors:
            tensor: Any = args[i]
            if tensor is not None:
                kind = type(tensor)
                if kind is not Tensor and kind not in _PLAIN:
                    return self._dispatched(*args)
                if records_graph and not differentiable:
                    differentiable = tensor.requires_grad
        # `first.device.type` would give the name at once, but takes ten times as long.
        if first.is_cpu:
            device = "cpu"
        elif first.is_cuda:
            device = "cuda"
        else:
            return self._elsewhere(*args)
        # Under autocast the dispatcher casts the arguments. For an op that autocast leaves alone on this device, the
        # question is not even asked.
        if device in self._autocast and _is_autocast_enabled(device):
            return self._dispatched(*args)
        kernel, differentiated = self._straight[device]
        return differentiated(*args) if differentiable else kernel(*args)

    def _serve_by_cuda_kernel(self, key: str) -> None:
        """From now on, plain calls on tensors of a dispatch key, "CPU" or "Meta", go to the CUDA kernel."""
        if key == "CPU":
            self._straight["cpu"] = self._straight["cuda"]
        else:
            _, self._elsewhere = self._straight["cuda"]


def _autocast(arg: object, device: str, dtype: torch.dtype) -> object:
    """An argument as autocast on a device casts it: floating tensors there, but for those in double precision."""
    if not isinstance(arg, Tensor) or arg.device.type != device or arg.dtype is torch.float64:
        return arg
    return arg.to(dtype) if arg.is_floating_point() else arg


class Operator(Shortcut[*Ts, Outputs]):
    """An op of `torch.library`, to be called with all its arguments by position.

    Attributes:
        name: the op's name, without the namespace.
        overload: the op as torch has it, `torch.ops.opassay.<name>.default`.
        kernels, ..., tensors: as of a `Shortcut`, whose other calls go to the op as torch dispatches it.
    """

    #: All operators, by name.
    registry: dict[str, Operator[*tuple[Any, ...], Any]] = {}  # noqa: RUF012

    def __init__(
        self, schema: str, kernels: Kernels[*Ts, Outputs], vmap: VmapRule, derivatives: Derivatives, *,
        outputs: tuple[str, ...] | None = None, renamed: dict[str, str] | None = None,
        library: torch.library.Library = LIBRARY,
    ) -> None:  # fmt: skip
        """Registers the op.

        Args:
            schema: `name(Tensor x, ...) -> ...`; functional (nothing mutated, no output aliases an input).
            kernels: what computes its values.
            vmap: the rule for a batch of calls.
            derivatives: its rules, or an expression.
            outputs: names of the outputs, where the schema names none.
            renamed: names that the rules use for an argument, where these are not the schema's.
            library: a fragment or definition of the op's namespace.
        """
        name = library.define(schema)
        self.overload = getattr(getattr(torch.ops, library.ns), name).default
        self._library = library
        own = renamed or {}
        argument_names = tuple(own.get(name, name) for name in records.argument_names(self.overload))
        names = argument_names, outputs or records.output_names(self.overload)
        super().__init__(name, names, records.tensor_positions(self.overload), kernels, derivatives, self.overload)
        self._through = derivatives.around(self, self._below_autograd, "autograd")
        self._single_level = derivatives.around(self, self._below_autograd, "functorch")
        self._register(vmap)
        Operator.registry[self.name] = self

    def _register(self, vmap: VmapRule) -> None:
        library, name = self._library, self.name
        qualified = f"{library.ns}::{name}"
        library.impl(name, self.kernels.cpu, "CPU")
        library.impl(name, self.kernels.cuda, "CUDA")
        library.impl(name, self._autograd_kernel, "Autograd")

        def fake(*args: object) -> object:
            return self.kernels.fake(self.arguments(args))

        def batched(info: Any, in_dims: tuple[int | None, ...], *args: object) -> tuple[Any, Any]:
            return vmap(self, info.batch_size, self.arguments(in_dims), self.arguments(self._cast(args)))

        # Both rules are registered with the library that defined the op, so that they end with it. Otherwise torch
        # would refuse a second definition of the op, such as a test makes.
        torch.library.register_fake(qualified, fake, lib=library)
        torch.library.register_vmap(qualified, batched, lib=library)
        for device, dtype in self.kernels.autocast:
            torch.library.register_autocast(qualified, device, dtype, lib=library)

    def _cast(self, args: tuple[object, ...]) -> tuple[object, ...]:
        """The arguments as autocast has them: torch comes to the rule for a batch first, and to autocast below it."""
        for device, dtype in self.kernels.autocast:
            if torch.is_autocast_enabled(device):
                return tuple(_autocast(arg, device, dtype) for arg in args)
        return args

    @classmethod
    def serve_by_cuda_kernels(cls, key: str) -> None:
        """From now on, tensors of a dispatch key, "CPU" or "Meta", go to the CUDA kernels, in this process.

        So a process without a GPU can interpret Triton's kernels on CPU tensors, or record on meta tensors which
        kernels would be launched; the kernels' host code takes tensors of any device. Operators without a CUDA kernel
        of their own stay as they are.
        """
        for shortcut in (*cls.registry.values(), *Shortcut.apart):
            if shortcut.kernels.cuda is not shortcut.kernels.cpu:
                shortcut._serve_by_cuda_kernel(key)

    def _serve_by_cuda_kernel(self, key: str) -> None:
        if key == "CPU":
            super()._serve_by_cuda_kernel(key)
        # Plain calls on the device "meta" go by way of the dispatcher.
        self._library.impl(self.name, self.kernels.cuda, key, allow_override=True)

    def _below_autograd(self, *args: object) -> Any:
        """The op's outputs at this level without derivatives of this level.

        Gradients and forward AD are enabled for the call: an autograd function runs this with both off, and the outer
        levels of a stack of transforms, which are served inside the call, would lose their derivatives.
        """
        with torch.enable_grad(), private.forward_ad_enabled(True), private.below_autograd():
            return self.overload(*args)

    def _autograd_kernel(self, *args: Any) -> Any:
        if _transforms_active():
            with private.single_level_function_enabled():
                return self._single_level(*args)
        # torch calls this kernel also where nothing is differentiated. An autograd function would then save tensors
        # that nothing reads, and would take longer than a small op.
        if forward_ad._current_level < 0 and not (
            _is_grad_enabled() and any(args[i] is not None and args[i].requires_grad for i in self.tensors)
        ):
            with private.below_autograd():
                return self.overload(*args)
        return self._through(*args)
