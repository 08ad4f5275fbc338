"""Mistakes in the machinery of custom functions: each is one change of its source, loaded as a package of its own."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import opassay.impl.function
from opassay import Code
from workshop.functions import FUNCTION, build

from ..changed_source import changed
from .fault import WRONG, Fault

ORDER = ("static_types", "contexts", "wrapping", "eager", "vmapify", "rules", "function")


def _subject(module: str, old: str, new: str) -> Callable[..., Any]:
    return functools.partial(build.call, changed(opassay.impl.function, ORDER, module, old, new).function.Function)


def _fault(name: str, change: tuple[str, str, str], code: str, raises: bool = False) -> Fault:
    codes = (Code.RAISED, Code.ATTRIBUTE, *WRONG) if raises else WRONG
    return Fault(FUNCTION, name, _subject(*change), code, "float64", codes)


FAULTS = (
    _fault(
        "one account for both saves",
        ("contexts", "self._set(_pt_saved_for_forward_bdims=dims)", "self._set(_pt_saved_for_backward_bdims=dims)"),
        "WORD", raises=True,
    ),
    _fault(
        "gradient of a shared argument not summed over slices",
        ("vmapify", "return grad_input.sum(grad_input_bdim)", "return grad_input.select(grad_input_bdim, 0)"),
        "NEST",
    ),
    _fault(
        "wrong batch dim of saved tensors",
        ("vmapify", "(books.backward_dims, cotangent_dims)",
         "(tuple(-1 for _ in books.backward_dims), cotangent_dims)"),
        "WORD", raises=True,
    ),
    _fault(
        "setup_context run outside vmap",
        ("vmapify", "self.vmapped(inner, (self.in_dims, self.out_dims))(inputs, outputs)", "inner(inputs, outputs)"),
        "WORD", raises=True,
    ),
    _fault(
        "identity of written arguments lost",
        ("wrapping", "originals[id(leaf)] if id(leaf) in originals else wrap_fn", "wrap_fn"),
        "WORD", raises=True,
    ),
    Fault(
        FUNCTION, "a list taken for what a vmap rule returns",
        _subject("rules", "if not isinstance(result, tuple):", "if not result:"), "ERROR", codes=(Code.NOT_RAISED,),
    ),
    _fault(
        "marks lost under vmap",
        ("contexts", "self._pt_inner_ctx.mark_non_differentiable(*self._unwrapped(args))", "pass"),
        "WORD",
    ),
    _fault("defaults left out", ("eager", "bound.apply_defaults()", "pass"), "FWD", raises=True),
    _fault("batch of a reduced gradient first", ("vmapify", ", out_dims=input_bdim)", ")"), "VJP", raises=True),
    _fault(
        "a cotangent that all slices share given to each",
        ("vmapify", "cotangent.new_zeros((batch_size, *cotangent.shape))",
         "cotangent.expand(batch_size, *cotangent.shape)"),
        "VJP",
    ),
    _fault(
        "a gradient that is no tuple taken apart",
        ("vmapify", "(v if isinstance(v, tuple) else (v,) for v in", "(tuple(v) for v in"),
        "VJP", raises=True,
    ),
    _fault(
        "tangents of zero for integers",
        ("rules", "and (primal.is_floating_point() or primal.is_complex())", ""),
        "JVP", raises=True,
    ),
    _fault(
        "forward AD off while jvp runs",
        ("rules", "with torch.enable_grad(), private.forward_ad_enabled(True), interpreter.lower():\n"
         "        autograd_function.setup_context",
         "with torch.enable_grad(), private.forward_ad_enabled(False), interpreter.lower():\n"
         "        autograd_function.setup_context"),
        "ORD2",
    ),
    _fault(
        "gradients off one level further down",
        ("rules", "with torch.enable_grad(), private.forward_ad_enabled(True), interpreter.lower():\n        return",
         "with torch.no_grad(), private.forward_ad_enabled(True), interpreter.lower():\n        return"),
        "ORD2", raises=True,
    ),
    _fault(
        "undefined cotangents get a batch dim",
        ("vmapify", "dim if isinstance(t, Tensor) else None", "dim"), "WORD", raises=True,
    ),
    _fault(
        "written arguments marked by their wrapping",
        ("contexts", "self._pt_inner_ctx.mark_dirty(*self._unwrapped(args))", "self._pt_inner_ctx.mark_dirty(*args)"),
        "WORD", raises=True,
    ),
    _fault(
        "gradients left in broadcast shape under vmap",
        ("vmapify", "if target_shape_without_bdim_to_reduce_to is not None:", "if False:"), "WORD", raises=True,
    ),
    _fault(
        "nested vmaps share one account",
        ("vmapify", 'f"_pt_vmapified_{next(_serial)}"', '"_pt_vmapified"'), "WORD", raises=True,
    ),
    _fault(
        "lists and dicts passed on as values",
        ("eager", "if isinstance(output, Tensor):", "if True:"), "VJP", raises=True,
    ),
    _fault(
        "a cotangent too many for a container",
        ("eager", "*(grads[:-1] if hasattr(ctx, _STRUCTURED) else grads)", "*grads"), "VJP", raises=True,
    ),
    _fault(
        "tangent of a written argument not updated",
        ("rules", "        previous.copy_(private.wrap_for_grad(tangent, level))\n", ""), "JVP",
    ),
    _fault(
        "out_dims counted from the end taken as they are",
        ("rules", "dim if dim >= 0 else dim + leaf.dim()", "max(dim, 0)"), "VMAP", raises=True,
    ),
    _fault(
        "tangents of the first output for all",
        ("rules", "for leaf, tangent in zip(leaves, moved, strict=True)]\n",
         "for leaf, tangent in zip(leaves, moved[:1] * len(leaves), strict=True)]\n"),
        "JVP", raises=True,
    ),
)  # fmt: skip
