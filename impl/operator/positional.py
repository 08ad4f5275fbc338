"""One op that is right under every transform: schema, kernels and derivative rules in, a callable out.

`define` registers a `torch.library` op and puts a Python kernel on its Autograd key. That kernel applies a custom
autograd function which carries `backward` and `jvp` and whose forward re-enters the op *below* autograd. So each layer
of torch sees what it understands: functorch levels are peeled one at a time by the dispatcher, Dynamo and export see
one opaque op with a fake rule, vmap has its own rule, and the kernels see plain tensors.

Rules that look arbitrary and are not; each one broken gives a wrong derivative without an error:

1. The inner call runs with gradients *and* forward AD enabled. The function's forward runs with both off, and outer
   transform levels, which are served inside that inner call, would be lost.
2. A `jvp` rule works on primals whose innermost tangent has been taken off (`constant_at`), with forward AD back on.
   Torch switches forward AD off inside `jvp`, which would make jvp of jvp zero.
3. Rules are plain torch ops or other ops defined here. `torch.func` must not be called below the Autograd key.
4. A rule that can be differentiated again recomputes from the inputs whatever was marked non-differentiable.
5. An op used inside a rule is itself defined here, so that it has derivatives of its own.
6. An undefined cotangent or tangent is None, never zeros: zeros of the size of an output cost as much as the output.
7. Under functorch the function must be a single-level one: it acts at one level and the dispatcher does the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from . import torch_private as private

Args = tuple[Any, ...]
Grads = tuple[Tensor | None, ...]


@dataclass(frozen=True, slots=True)
class Derivatives:
    """How an op is differentiated; all rules are plain functions of plain values.

    Attributes:
        save: (args, outputs, needs) -> (tensors, extras): what the backward rule needs when only the arguments with
            `needs[i]` require gradients; tensors may hold None, extras are any non-tensors.
        backward: (tensors, extras, needs, cotangents) -> one cotangent or None per argument. `needs` may have shrunk
            since `save`. A cotangent is None for zero, but not every one of them.
        jvp: (args, tangents) -> one tangent per output, None for an output that is None or non-differentiable. A
            tangent is None where an argument carries none.
        non_differentiable: positions of the outputs that never carry a derivative.
    """

    save: Callable[[Args, Args, tuple[bool, ...]], tuple[tuple[Tensor | None, ...], Any]]
    backward: Callable[[Any, Any, tuple[bool, ...], Args], Grads]
    jvp: Callable[[Args, Args], Grads]
    non_differentiable: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernels:
    """What computes an op's values: one kernel per device, one for fake tensors.

    Attributes:
        cpu, cuda: the op's arguments in, its outputs out (a Tensor, or a tuple of Tensor and None); plain tensors only.
        fake: the same, shapes, dtypes and strides only.
        autocast: (device type, dtype) pairs: under autocast on that device, floating arguments are cast to that dtype.
    """

    cpu: Callable[..., Any]
    cuda: Callable[..., Any]
    fake: Callable[..., Any]
    autocast: tuple[tuple[str, torch.dtype], ...] = ()


VmapRule = Callable[..., tuple[Any, Any]]
"""(info, in_dims, *args) -> (outputs, out_dims), as for `torch.library.register_vmap`."""

_libraries: list[torch.library.Library] = []  # a library that is collected takes its ops with it
_PLAIN = frozenset((Tensor, torch.nn.Parameter))
_is_compiling = torch.compiler.is_compiling
_is_grad_enabled = torch.is_grad_enabled
_is_autocast_enabled = torch.is_autocast_enabled
_transforms_active = private.transforms_active
_dispatch_mode_count = private.dispatch_mode_count
_key_included = private.key_included
_VMAP_MODE = private.VMAP_MODE
_forward_ad = torch.autograd.forward_ad


def define(
    library: torch.library.Library,
    schema: str,
    kernels: Kernels,
    vmap: VmapRule,
    derivatives: Derivatives,
) -> Callable[..., Any]:
    """Registers an op and returns the function to call it by, with all arguments positional.

    Args:
        library: a fragment or definition of the op's namespace.
        schema: the op's schema, `name(Tensor x, ...) -> ...`; functional (nothing mutated, no output aliases an input).
        kernels, vmap, derivatives: see these types.
    """
    _libraries.append(library)
    name = library.define(schema)
    qualified = f"{library.ns}::{name}"
    overload = getattr(getattr(torch.ops, library.ns), name).default
    library.impl(name, kernels.cpu, "CPU")
    library.impl(name, kernels.cuda, "CUDA")
    torch.library.register_fake(qualified, kernels.fake, lib=library)
    torch.library.register_vmap(qualified, vmap, lib=library)
    for device, dtype in kernels.autocast:
        torch.library.register_autocast(qualified, device, dtype, lib=library)
    tensors = private.tensor_positions(overload)

    def inner(*args: Any) -> Any:
        with torch.enable_grad(), private.forward_ad_enabled(True), private.below_autograd():
            return overload(*args)

    through = _function(f"{name}_dispatched", Function, inner, tensors, derivatives)
    single_level = _function(f"{name}_single_level", private.SingleLevelFunction, inner, tensors, derivatives)

    def autograd_kernel(*args: Any) -> Any:
        if _transforms_active():
            with private.single_level_function_enabled():
                return single_level(*args)
        if _forward_ad._current_level < 0 and not (
            _is_grad_enabled() and any(args[i] is not None and args[i].requires_grad for i in tensors)
        ):
            with private.below_autograd():
                return overload(*args)
        return through(*args)

    library.impl(name, autograd_kernel, "Autograd")
    return _entry(name, overload, kernels, tensors, derivatives)


def _entry(
    name: str,
    overload: Any,
    kernels: Kernels,
    tensors: tuple[int, ...],
    derivatives: Derivatives,
) -> Callable[..., Any]:
    """The call path: straight to the kernel when nothing but autograd can be interested, else the dispatcher.

    Plain tensors on one device, no transform, no dispatch mode and no tracing leave exactly two cases, both decided
    here without the dispatcher's round trips through Python. Under Dynamo the first test is a constant, so only the op
    is traced.
    """
    cpu, cuda = kernels.cpu, kernels.cuda
    on_cpu = _function(name, Function, cpu, tensors, derivatives)
    on_cuda = _function(name, Function, cuda, tensors, derivatives)
    cpu_autocast, cuda_autocast = (
        any(device == wanted for device, _ in kernels.autocast) for wanted in ("cpu", "cuda")
    )
    first_tensor = tensors[0]

    def call(*args: Any) -> Any:
        if _is_compiling() or _transforms_active() or _dispatch_mode_count() or _key_included(_VMAP_MODE):
            return overload(*args)
        records = _is_grad_enabled()
        differentiable = _forward_ad._current_level >= 0
        for i in tensors:
            tensor = args[i]
            if tensor is not None:
                if type(tensor) not in _PLAIN:
                    return overload(*args)
                if records and tensor.requires_grad:
                    differentiable = True
        first = args[first_tensor]
        if first.is_cpu and not (cpu_autocast and _is_autocast_enabled("cpu")):
            return on_cpu(*args) if differentiable else cpu(*args)
        if first.is_cuda and not (cuda_autocast and _is_autocast_enabled("cuda")):
            return on_cuda(*args) if differentiable else cuda(*args)
        return overload(*args)

    return call


def _function(
    name: str,
    base: Any,
    inner: Callable[..., Any],
    tensors: tuple[int, ...],
    rules: Derivatives,
) -> Callable[..., Any]:
    """`apply` of an autograd function of class `base` with values from `inner` and derivatives from `rules`."""
    save, backward_rule, non_differentiable = (
        rules.save,
        rules.backward,
        rules.non_differentiable,
    )
    single_level = base is not Function

    def forward(ctx: Any, *args: Any) -> Any:
        ctx.set_materialize_grads(False)
        result = inner(*args)
        outputs = result if type(result) is tuple else (result,)
        saved, ctx.extras = save(args, outputs, ctx.needs_input_grad)
        ctx.save_for_backward(*saved)
        level = private.top_jvp_level() if single_level else None
        # Where no tangent can be, nothing asks for jvp: keep no argument alive for it.
        if level is not None or _forward_ad._current_level >= 0:
            ctx.jvp_level = level
            ctx.arguments = tuple(None if i in tensors else arg for i, arg in enumerate(args))
            ctx.save_for_forward(*[args[i] for i in tensors])
        if non_differentiable:
            ctx.mark_non_differentiable(*[outputs[i] for i in non_differentiable if outputs[i] is not None])
        return result

    def backward(ctx: Any, *cotangents: Any) -> Any:
        for cotangent in cotangents:
            if cotangent is not None:
                return backward_rule(ctx.saved_tensors, ctx.extras, ctx.needs_input_grad, cotangents)
        return (None,) * len(ctx.needs_input_grad)

    def jvp(ctx: Any, *tangents: Any) -> Any:
        args = list(ctx.arguments)
        for i, tensor in zip(tensors, ctx.saved_tensors, strict=True):
            args[i] = tensor
        out = _jvp(rules, ctx.jvp_level, tuple(args), tangents)
        return out if len(out) > 1 else out[0]

    members = {"forward": forward, "backward": backward, "jvp": jvp}
    cls: Any = type(name, (base,), {key: staticmethod(value) for key, value in members.items()})
    # Function.apply looks for functorch levels first; the callers here have already done so.
    apply: Callable[..., Any] = cls.apply if single_level else super(Function, cls).apply
    return apply


def _jvp(rules: Derivatives, level: int | None, args: Args, tangents: Args) -> Grads:
    """The jvp rule; under functorch with this level's tangents off the arguments, outer levels live (rule 2)."""
    if level is None:
        return rules.jvp(args, tangents)
    args = tuple(private.constant_at(v, level) if isinstance(v, Tensor) else v for v in args)
    with torch.enable_grad(), private.forward_ad_enabled(True):
        return rules.jvp(args, tangents)
