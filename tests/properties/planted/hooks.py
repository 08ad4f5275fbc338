"""Faults of the identity for module hooks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opassay import Code
from opassay.impl import backward_hook_identity

from .fault import Fault

Tensor = torch.Tensor
Identity = Callable[..., tuple[Tensor, ...]]


def _with(
    backward: Callable[[Tensor], Tensor] = lambda g: g, jvp: Callable[[Tensor], Tensor] = lambda t: t
) -> Identity:
    """The identity with changed derivatives, per argument."""

    class Changed(torch.autograd.Function):
        generate_vmap_rule = True

        @staticmethod
        def forward(x: Tensor) -> Tensor:
            return x.view_as(x)

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return backward(g)

        @staticmethod
        def jvp(ctx: Any, t: Tensor) -> Tensor:
            return jvp(t).view_as(t)

    return lambda *args: tuple(Changed.apply(x) for x in args)  # type: ignore[no-untyped-call]


def _copies(*args: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.clone() for x in args)


def _first_twice(*args: Tensor) -> tuple[Tensor, ...]:
    """The second output shares the first's memory where their shapes allow it."""
    outputs = list(backward_hook_identity(*args))
    if len(args) > 1 and args[0].shape == args[1].shape and args[0].dtype == args[1].dtype:
        outputs[1] = args[0].view_as(args[0])
    return tuple(outputs)


def _sorted_by_size(*args: Tensor) -> tuple[Tensor, ...]:
    return tuple(sorted(backward_hook_identity(*args), key=lambda t: t.numel()))


def _by_way_of_bfloat16(*args: Tensor) -> tuple[Tensor, ...]:
    return tuple(x.bfloat16().to(x.dtype) for x in args)


def _views(*args: Any) -> tuple[Any, ...]:
    return tuple(x.view_as(x) if isinstance(x, Tensor) else x for x in args)


def _needs_lost(*args: Any) -> tuple[Any, ...]:
    """Where one argument needs a gradient, all floating outputs do."""
    if torch.is_grad_enabled() and any(isinstance(x, Tensor) and x.requires_grad for x in args):
        args = tuple(x + x.new_zeros((), requires_grad=True) if isinstance(x, Tensor) and x.is_floating_point() else x
                     for x in args)  # fmt: skip
    return backward_hook_identity(*args)


FAULTS = (
    Fault("backward_hook_identity", "gradient doubled", _with(backward=lambda g: 2 * g), "VJP"),
    Fault("backward_hook_identity", "tangent dropped", _with(jvp=torch.zeros_like), "JVP"),
    Fault(
        "backward_hook_identity", "outputs sorted by size", _sorted_by_size, "FWD",
        codes=(Code.VALUE, Code.ATTRIBUTE),
    ),
    Fault("backward_hook_identity", "second output is the first", _first_twice, "FWD"),
    Fault("backward_hook_identity", "copies, not views", _copies, "PURE", codes=(Code.ALIASED,)),
    Fault("backward_hook_identity", "the arguments themselves", lambda *args: args, "PURE", codes=(Code.ALIASED,)),
    Fault("backward_hook_identity", "by way of bfloat16", _by_way_of_bfloat16, "FWD"),
    Fault("backward_hook_identity", "a node for each argument", _views, "WAYS", codes=(Code.ATTRIBUTE,)),
    Fault(
        "backward_hook_identity", "gradients for arguments that need none", _needs_lost, "WAYS",
        codes=(Code.ATTRIBUTE,),
    ),
    Fault(
        "backward_hook_identity", "torch's own under transforms",
        torch.nn.modules._functions.BackwardHookFunction.apply, "VMAP", codes=(Code.RAISED,),
    ),
)  # fmt: skip
