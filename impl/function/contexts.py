"""Contexts: what `setup_context`, `backward` and `jvp` get as `ctx` under a transform.

A wrapper passes every attribute on to the context inside, but for its own, whose names start with `_pt_` and are
reserved. Source of the names and messages: torch's `torch._functorch.autograd_function`.

What this is for: an author writes `ctx.save_for_backward(x)` and later reads `ctx.saved_tensors`, once, for plain
tensors. Under vmap x is a batched tensor of a level that has ended by the time of `backward`. So a context stands in
between, which saves the tensor inside and remembers which of its dims was the batch.
"""

from __future__ import annotations

from torch import Tensor

from ..operator import torch_private as private
from .static_types import Ctx, Leaf, Leaves


class WrappedCtx:
    """A context around a context: reads and writes all but its own, reserved attributes of the one inside.

    Raises:
        RuntimeError: the context inside has an attribute of a reserved name, or somebody sets one.
    """

    _pt_reserved_attrs: tuple[str, ...] = ("_pt_reserved_attrs", "_pt_inner_ctx")

    def __init__(self, ctx: Ctx) -> None:
        # A context of ours has attributes of these names by right. An author's attribute of such a name would be hidden
        # without a message.
        if not isinstance(ctx, WrappedCtx):
            reserved = type(self)._pt_reserved_attrs
            if any(hasattr(ctx, name) for name in reserved):
                raise RuntimeError(_collision(reserved))
        self._set(_pt_inner_ctx=ctx)

    def _set(self, **own: Leaf) -> None:
        # Past `__setattr__`, which hands attributes on to the context inside and refuses the reserved names.
        self.__dict__.update(own)

    def __getattr__(self, name: str) -> Leaf:
        # Python asks here only for what the object itself lacks, so the attributes of the wrapper come first.
        return getattr(self._pt_inner_ctx, name)

    def __setattr__(self, name: str, value: Leaf) -> None:
        if name in type(self)._pt_reserved_attrs:
            raise RuntimeError(_collision(type(self)._pt_reserved_attrs))
        setattr(self._pt_inner_ctx, name, value)


def _collision(reserved: tuple[str, ...]) -> str:
    return (
        f"PyTorch reserves the {reserved} field on ctx. Please name your fields on ctx something else to avoid name"
        " collision."
    )


class CtxWithSavedTensors(WrappedCtx):
    """A context with other `saved_tensors` than the one inside: those of one slice, or of one level."""

    _pt_reserved_attrs = ("_pt_new_saved_tensors", *WrappedCtx._pt_reserved_attrs)

    def __init__(self, ctx: Ctx, new_saved_tensors: tuple[Tensor, ...]) -> None:
        super().__init__(ctx)
        self._set(_pt_new_saved_tensors=new_saved_tensors)

    @property
    def saved_tensors(self) -> tuple[Tensor, ...]:
        saved: tuple[Tensor, ...] = self._pt_new_saved_tensors
        return saved


class CtxCustomSave(WrappedCtx):
    """A context that saves batched tensors as the tensors inside, and keeps account of their batch dims.

    `save_for_backward` and `save_for_forward` may be given different tensors in different order, so each has an account
    of its own. Tensors that the author marks are marked as the tensors inside.
    """

    _pt_reserved_attrs = (
        "_pt_saved_for_backward_bdims",
        "_pt_saved_for_forward_bdims",
        "_pt_current_level",
        *WrappedCtx._pt_reserved_attrs,
    )

    def __init__(self, ctx: Ctx, current_level: int) -> None:
        super().__init__(ctx)
        self._set(_pt_saved_for_backward_bdims=(), _pt_saved_for_forward_bdims=(), _pt_current_level=current_level)

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        unwrapped, dims = private.unwrap_batched(tensors, self._pt_current_level)
        self._set(_pt_saved_for_backward_bdims=dims)
        self._pt_inner_ctx.save_for_backward(*unwrapped)

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        unwrapped, dims = private.unwrap_batched(tensors, self._pt_current_level)
        self._set(_pt_saved_for_forward_bdims=dims)
        self._pt_inner_ctx.save_for_forward(*unwrapped)

    def mark_dirty(self, *args: Tensor) -> None:
        self._pt_inner_ctx.mark_dirty(*self._unwrapped(args))

    def mark_non_differentiable(self, *args: Tensor) -> None:
        self._pt_inner_ctx.mark_non_differentiable(*self._unwrapped(args))

    def _unwrapped(self, tensors: tuple[Tensor, ...]) -> Leaves:
        # Autograd knows an output by its identity, and the outputs that it sees are the tensors inside.
        unwrapped: Leaves = private.unwrap_batched(tensors, self._pt_current_level)[0]
        return unwrapped


class ForwardCtx:
    """The context of a jvp: it holds what `setup_context` sets until `jvp` has run, and is then dropped.

    Attributes:
        saved_tensors: those of `save_for_forward`.
        needs_input_grad: per argument, whether it carries a tangent.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.saved_tensors: tuple[Tensor | None, ...] = ()
        self.materialize_grads = True
        self.dirty: tuple[Tensor, ...] = ()
        self.non_differentiable: tuple[Tensor, ...] = ()

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Does nothing: there is no backward at this level."""

    def save_for_forward(self, *tensors: Tensor | None) -> None:
        self.saved_tensors = tensors

    def mark_dirty(self, *args: Tensor) -> None:
        self.dirty = args

    def mark_non_differentiable(self, *args: Tensor) -> None:
        self.non_differentiable = args

    def set_materialize_grads(self, value: bool) -> None:
        self.materialize_grads = value
