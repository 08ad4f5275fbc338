"""A custom function on the ordinary tape, where no transform is active: torch's own `apply`, called sooner.

torch binds the arguments to the signature of `forward` anew in every call; here that is done once per class. Outputs in
a container other than a flat tuple reach torch as flat leaves with their structure behind them, for torch would pass a
list or a dict on as a value that no gradient flows through.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ..operator import torch_private as private
from ..operator.torch_private import pytree
from .static_types import Ctx, FunctionClass, Leaf, Leaves, Method, Pytree, Structure

_PLAN = "_opassay_plan"
_STRUCTURED = "_pt_structured"  # set on a context whose outputs end in a `_Structure`
_ZEROS = "_opassay_zeros"  # set on a context under forward AD: functions that make tangents of zero


class _Structure:
    """The last output of a function whose outputs are in a container: how to rebuild the container."""

    __slots__ = ("spec",)

    def __init__(self, spec: Structure) -> None:
        self.spec = spec


class Plan(NamedTuple):
    """What a class alone says of its calls, before there are arguments.

    Attributes:
        forward: the static method that the plan was made for.
        separate: whether the class has a `setup_context`.
        least: the number of positional arguments from which on no parameter needs its default.
        apply: torch's own apply of the class that runs.
    """

    forward: Method
    separate: bool
    least: float
    apply: Method


def plan_of(cls: FunctionClass) -> Plan:
    """The plan of a class, made once."""
    # Only the class's own plan counts: a subclass would inherit that of its parent, and may have another `forward`. A
    # `forward` that was assigned after the first call makes the plan void, too.
    plan: Plan | None = cls.__dict__.get(_PLAN)
    if plan is None or plan.forward is not cls.forward:
        plan = _make_plan(cls)
        setattr(cls, _PLAN, plan)
    return plan


def bind_arguments(cls: FunctionClass, plan: Plan, args: Leaves, kwargs: dict[str, Leaf]) -> Leaves:
    """The arguments by position, defaults filled in. TypeError where they do not go with `forward`."""
    if not kwargs and len(args) >= plan.least:
        return args
    if not plan.separate:
        if kwargs:
            raise TypeError(f"{cls.__name__}.apply: got {', '.join(kwargs)} by name, need positional arguments.")
        return args
    bound = inspect.signature(cls.forward).bind(*args, **kwargs)
    bound.apply_defaults()
    if bound.kwargs:
        names = ", ".join(bound.kwargs)
        raise TypeError(f"{cls.__name__}.forward: got keyword-only {names}, need positional parameters.")
    return bound.args


def apply_eagerly(plan: Plan, args: Leaves) -> Pytree:
    """The outputs on the ordinary tape."""
    # A tensor that has outlived its transform is still wrapped; the tape must see the tensor inside.
    result = plan.apply(*[private.unwrap_if_dead(arg) if isinstance(arg, Tensor) else arg for arg in args])
    if type(result) is tuple and result and type(result[-1]) is _Structure:
        return pytree.tree_unflatten(result[:-1], result[-1].spec)
    return result


def backward_of(cls: FunctionClass) -> Method:
    """The static method (ctx, *cotangents) that a class defines under one of torch's names for it.

    Raises:
        RuntimeError: the class defines both.
    """
    if cls.vjp is torch.autograd.Function.vjp:
        method: Method = cls.backward
    elif cls.backward is torch.autograd.Function.backward:
        method = cls.vjp
    else:
        raise RuntimeError(
            "Implementing both 'backward' and 'vjp' for a custom Function is not allowed. You should only implement one"
            " of them."
        )
    if getattr(cls, "boxed_grads_call", False):
        return lambda ctx, *grads: method(ctx, list(grads))
    return method


def flatten_tangents(cls: FunctionClass, moved: Pytree, count: int) -> Leaves:
    """The tangents that a `jvp` returned, one per leaf of the outputs.

    Raises:
        RuntimeError: their number is not `count`.
    """
    flat = tuple(pytree.tree_leaves(moved))
    if len(flat) != count:
        raise RuntimeError(f"{cls.__name__}.jvp: got {len(flat)} tangents, need one per output, {count}.")
    return flat


class OwnMeta(torch.autograd.function.FunctionMeta):
    """The metaclass of our functions.

    Where a class has torch's own metaclass, torch.compile traces its static methods, and under a transform it
    differentiates `forward` and ignores `backward`. Where a class has another metaclass, it calls `apply`.
    """


class EagerFunction(torch.autograd.Function, metaclass=OwnMeta):
    """A custom function whose outputs may be any pytree; to be applied where no transform is active."""

    @classmethod
    def apply(cls, *args: Leaf, **kwargs: Leaf) -> Pytree:
        """The outputs on the ordinary tape."""
        plan = plan_of(cls)
        return apply_eagerly(plan, bind_arguments(cls, plan, args, kwargs))


def _make_plan(cls: FunctionClass) -> Plan:
    separate = cls.setup_context is not torch.autograd.Function.setup_context
    kinds = [p.kind for p in inspect.signature(cls.forward).parameters.values()]
    least = sum(kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD) for kind in kinds)
    # `apply` passes arguments by position, so a keyword-only parameter never gets a value. Then no number of arguments
    # is enough, and `bind_arguments` raises an error that names the parameter.
    enough = math.inf if inspect.Parameter.KEYWORD_ONLY in kinds else least
    running = _with_containers(cls) if separate else cls
    # This is the apply of torch's base class in C++. That of torch.autograd.Function would bind the arguments again and
    # ask again whether a transform is active.
    return Plan(cls.forward, separate, enough, super(torch.autograd.Function, running).apply)


def _with_containers(cls: FunctionClass) -> FunctionClass:
    """A subclass of the same name whose outputs torch understands."""

    def forward(*args: Leaf) -> Pytree:
        output = cls.forward(*args) if forward_ad._current_level < 0 else _detach_constants(cls.forward, args)
        if _is_flat(output):
            return output
        leaves, spec = pytree.tree_flatten(output)
        return (*leaves, _Structure(spec))

    def setup_context(ctx: Ctx, inputs: Leaves, output: Pytree) -> None:
        if type(output) is tuple and output and type(output[-1]) is _Structure:
            setattr(ctx, _STRUCTURED, True)
            output = pytree.tree_unflatten(output[:-1], output[-1].spec)
        cls.setup_context(ctx, inputs, output)
        if forward_ad._current_level >= 0:
            setattr(ctx, _ZEROS, _zeros_of(ctx, output))

    # The structure at the end is an output as well: torch passes `backward` a cotangent for it and wants a tangent of
    # it, and both are None.
    def backward(ctx: Ctx, *grads: Leaf) -> Pytree:
        return user_backward(ctx, *(grads[:-1] if hasattr(ctx, _STRUCTURED) else grads))

    def jvp(ctx: Ctx, *tangents: Leaf) -> Pytree:
        moved = cls.jvp(ctx, *tangents)
        if hasattr(ctx, _ZEROS):
            moved = _with_zeros(moved, getattr(ctx, _ZEROS))
        return (*pytree.tree_leaves(moved), None) if hasattr(ctx, _STRUCTURED) else moved

    # `backward` here calls the author's method under either of torch's two names, and with a list of cotangents where
    # the author asked for one. So the other name and the flag for a list are reset, lest torch apply them once more.
    user_backward = backward_of(cls)
    members = {"forward": forward, "setup_context": setup_context, "backward": backward, "jvp": jvp}
    plain = {"vjp": torch.autograd.Function.vjp, "boxed_grads_call": False, "__module__": cls.__module__}
    return type(cls)(cls.__name__, (cls,), {name: staticmethod(f) for name, f in members.items()} | plain)


def _detach_constants(forward: Method, args: Leaves) -> Pytree:
    """The outputs, where inputs without a tangent that are returned unchanged are replaced by new objects.

    At an output that is such an input, or a view of it, torch's forward AD stops and sets no tangents of the outputs
    behind it (`_process_forward_mode_AD` in torch/csrc/autograd/custom_function.cpp returns where it has to go on).
    """
    constant = {
        id(x): x._version
        for x in args
        if isinstance(x, Tensor) and not x.is_inference() and forward_ad.unpack_dual(x).tangent is None
    }

    def apart(leaf: Tensor) -> Tensor:
        # An input that `forward` has written must be returned as the very object that the caller passed.
        return leaf.detach() if id(leaf) in constant and constant[id(leaf)] == leaf._version else leaf

    return pytree.tree_map_only(Tensor, apart, forward(*args))


def _zeros_of(ctx: Ctx, output: Pytree) -> dict[int, Callable[[], Tensor]]:
    """For each leaf of the outputs that may have a tangent, a call that makes one of zero."""
    constant = {id(t) for t in ctx.non_differentiable or ()}
    return {
        i: functools.partial(torch.zeros, leaf.shape, dtype=leaf.dtype, device=leaf.device)
        for i, leaf in enumerate(pytree.tree_leaves(output))
        if isinstance(leaf, Tensor) and (leaf.is_floating_point() or leaf.is_complex()) and id(leaf) not in constant
    }


def _with_zeros(moved: Pytree, zeros: dict[int, Callable[[], Tensor]]) -> Pytree:
    """Tangents with zeros in place of None: torch's forward AD asserts a tangent of every output that may have one."""
    leaves, spec = pytree.tree_flatten(moved)
    filled = [zeros[i]() if leaf is None and i in zeros else leaf for i, leaf in enumerate(leaves)]
    return pytree.tree_unflatten(filled, spec)


def _is_flat(output: Pytree) -> bool:
    """Whether torch takes an output as it is: one leaf, or a tuple of leaves, and no subclass of tuple."""
    # A tensor is a leaf, too. Both tests for one are for speed, because this runs in every call.
    if isinstance(output, Tensor):
        return True
    items = output if type(output) is tuple else (output,)
    return all(isinstance(item, Tensor) or pytree.tree_is_leaf(item) for item in items)
