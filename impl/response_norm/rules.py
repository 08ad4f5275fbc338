"""Local response normalisation as torch sees it: schemas, fake and vmap rules, derivatives.

Letters, as in the kernels: a the input, g the cotangent of the output, t or v a direction, W the sum over each
channel's window, W' its adjoint, c = alpha / size, kappa = 2 beta c, s = k + c W a^2, pn = s^(-beta - n).

`forward_keeping` also returns s and s^beta, for its backward; `forward` is for calls that keep nothing, and its
backward computes both again. All ops take the channels as the third dim from the end and any number of dims before it:
a vmapped batch is one more.

    out          = a p0
    J t          = t p0 - kappa a p1 W(a t)
    J' g         = g p0 - kappa a W'(g a p1)
    d(J' g) . v  = H v, H the Hessian of <g, out> in a, which is symmetric:
      H v        = -kappa [a W'(g v p1 - 2 c (beta + 1) g a W(a v) p2) + g p1 W(a v) + v W'(g a p1)]
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ..operator import positional as dispatch
from ..operator.precision import compute_dtype
from . import kernels_cpu as kernel

Needs = tuple[bool, ...]

_library = torch.library.Library("opassay", "FRAGMENT")


class _Base(NamedTuple):
    """What the derivatives need at a, in a's compute dtype."""

    a: Tensor
    p0: Tensor
    p1: Tensor
    p2: Tensor | None
    before: int
    after: int
    c: float
    beta: float

    @property
    def kappa(self) -> float:
        return 2.0 * self.beta * self.c

    def window(self, t: Tensor) -> Tensor:
        return _window(t, self.before, self.after)

    def mirrored(self, t: Tensor) -> Tensor:
        return _window(t, self.after, self.before)


def _window(t: Tensor, before: int, after: int) -> Tensor:
    return window_sum(t, before, after) if before or after else t


def _base(x: Tensor, size: int, alpha: float, beta: float, k: float) -> _Base:
    a = x.to(compute_dtype(x.dtype))
    before, after = kernel.reach(size, x.shape[-3])
    s = _window(a * a, before, after) * (alpha / size) + k
    p0 = s.pow(-beta)
    p2: Tensor | None
    if beta > 0:
        p1 = p0 / s
        p2 = p1 / s
    else:  # where s = 0, higher powers than p0 may be finite, and their product with a zero factor is zero
        p1, p2 = s.pow(-beta - 1), None if beta == -1 else s.pow(-beta - 2)
    return _Base(a, p0, p1, p2, before, after, alpha / size, beta)


def _up(t: Tensor) -> Tensor:
    return t.to(compute_dtype(t.dtype))


def _push(at: _Base, t: Tensor) -> Tensor:
    """J t."""
    return t * at.p0 - at.kappa * (at.a * at.p1 * at.window(at.a * t))


def _curve(at: _Base, g: Tensor, v: Tensor, tg: Tensor | None = None) -> Tensor:
    """H v, and J' tg with it: the directional derivative of J' g along (tg, v)."""
    along = at.window(at.a * v)
    inner = at.p1 * (g * v if tg is None else g * v + at.a * tg)
    if at.p2 is not None:
        inner = inner - (2.0 * at.c * (at.beta + 1.0)) * (g * at.a * along * at.p2)
    total = at.a * at.mirrored(inner) + g * at.p1 * along + v * at.mirrored(g * at.a * at.p1)
    out = -at.kappa * total
    return out if tg is None else tg * at.p0 + out


# ------------------------------------------------------------------------------------------- the window sum


def _window_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    return (), args[1:]


def _window_backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    before, after = extras
    return window_sum(cotangents[0], after, before), None, None


def _window_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return (window_sum(tangents[0], *args[1:]),)


# ---------------------------------------------------------------------------------------------- the op itself


def _save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """The input, and the base and its power where the op returns them."""
    return (args[0], *(outputs[1:] or (None, None))), args[1:]


def _backward(tensors: Any, extras: dispatch.Args, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    return backward(cotangents[0], *tensors, *extras), None, None, None, None


def _jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    x, *numbers = args
    if args[3] == 0:
        return (tangents[0].clone(memory_format=torch.contiguous_format),)
    return (_push(_base(x, *numbers), _up(tangents[0])).to(x.dtype),)


def _jvp_keeping(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    return *_jvp(args, tangents), None, None


# -------------------------------------------------------------------------------------------- its backward op


def _backward_save(args: dispatch.Args, outputs: dispatch.Args, needs: Needs) -> Any:
    """grad_out only where the input needs a gradient; nothing where beta = 0, which makes the op the identity."""
    grad_out, x, _, _, *numbers = args
    if numbers[2] == 0:
        return (None, None), numbers
    return (grad_out if needs[1] else None, x), numbers


def _backward_backward(tensors: Any, numbers: Any, needs: Needs, cotangents: dispatch.Args) -> dispatch.Grads:
    grad_out, x = tensors
    (v,) = cotangents
    d_grad_out = d_input = None
    if x is None:
        d_grad_out = v.clone(memory_format=torch.contiguous_format)
    else:
        at, up = _base(x, *numbers), _up(v)
        d_grad_out = _push(at, up).to(x.dtype) if needs[0] else None
        d_input = _curve(at, _up(grad_out), up).to(x.dtype) if needs[1] else None
    return d_grad_out, d_input, *(None,) * 6


def _backward_jvp(args: dispatch.Args, tangents: dispatch.Args) -> dispatch.Grads:
    grad_out, x, base, root, *numbers = args
    tg, tx = tangents[:2]
    if tx is None or numbers[2] == 0:
        return (torch.zeros_like(x) if tg is None else backward(tg, x, base, root, *numbers),)
    return (_curve(_base(x, *numbers), _up(grad_out), _up(tx), None if tg is None else _up(tg)).to(x.dtype),)


# ---------------------------------------------------------------------------------------------------- rules


def _fake(x: Tensor, *numbers: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_keeping(x: Tensor, *numbers: Any) -> tuple[Tensor, Tensor, Tensor]:
    base, root = (x.new_empty(x.shape, dtype=compute_dtype(x.dtype)) for _ in range(2))
    return x.new_empty(x.shape), base, root


def _backward_fake(grad_out: Tensor, x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


def _vmap(op: Callable[..., Any], out_dims: Any = 0) -> dispatch.VmapRule:
    """The rule of an op of one tensor: one more dim in front."""

    def rule(info: Any, in_dims: Any, x: Tensor, *numbers: Any) -> tuple[Any, Any]:
        return op(x.movedim(in_dims[0], 0), *numbers), out_dims

    return rule


def _backward_vmap(info: Any, in_dims: Any, *args: Any) -> tuple[Any, Any]:
    """One more dim in front. An operand that is not batched is expanded, and then all are taken to float32 for the
    half types, so that the sum over the batch, which is the derivative of expanding, adds no half-precision
    contributions."""
    tensors, numbers = args[:4], args[4:]
    dtype = args[1].dtype
    whole = None not in in_dims[:2]

    def batched(t: Tensor | None, dim: int | None) -> Tensor | None:
        if t is None:
            return None
        t = t if whole else _up(t)
        return t.expand(info.batch_size, *t.shape) if dim is None else t.movedim(dim, 0)

    out = backward(*map(batched, tensors, in_dims[:4]), *numbers)
    return out if whole else out.to(dtype), 0


_AUTOCAST = (("cpu", torch.float32), ("cuda", torch.float32))  # as F.local_response_norm on both

window_sum: Callable[..., Any] = dispatch.define(
    _library,
    "channel_window_sum(Tensor input, int before, int after) -> Tensor",
    dispatch.Kernels(kernel.window_sum, kernel.window_sum, _fake),
    _vmap(lambda *args: window_sum(*args)),
    dispatch.Derivatives(_window_save, _window_backward, _window_jvp),
)
backward: Callable[..., Any] = dispatch.define(
    _library,
    "cross_map_lrn2d_backward(Tensor grad_out, Tensor input, Tensor? base, Tensor? root, int size, float alpha,"
    " float beta, float k) -> Tensor",
    dispatch.Kernels(kernel.backward, kernel.backward, _backward_fake),
    _backward_vmap,
    dispatch.Derivatives(_backward_save, _backward_backward, _backward_jvp),
)
forward: Callable[..., Any] = dispatch.define(
    _library,
    "cross_map_lrn2d(Tensor input, int size, float alpha, float beta, float k) -> Tensor",
    dispatch.Kernels(kernel.forward, kernel.forward, _fake, _AUTOCAST),
    _vmap(lambda *args: forward(*args)),
    dispatch.Derivatives(_save, _backward, _jvp),
)
forward_keeping: Callable[..., Any] = dispatch.define(
    _library,
    "cross_map_lrn2d_keeping(Tensor input, int size, float alpha, float beta, float k) -> (Tensor, Tensor, Tensor)",
    dispatch.Kernels(kernel.forward_keeping, kernel.forward_keeping, _fake_keeping, _AUTOCAST),
    _vmap(lambda *args: forward_keeping(*args), (0, 0, 0)),
    dispatch.Derivatives(_save, _backward, _jvp_keeping, (1, 2)),
)
