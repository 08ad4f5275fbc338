"""Faults of what a call writes, and of where it keeps what backward needs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from opassay.impl import batch_norm, layer_norm

Shape = tuple[int, ...]
Subject = Callable[..., Tensor]


def _before(do: Callable[[Tensor, Any], object]) -> Subject:
    """A layer norm that does something to its input and its weight before it computes."""

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y = layer_norm(x, shape, w, b, eps)
        if type(x) is Tensor and x.device.type == "cpu" and not torch._C._are_functorch_transforms_active():
            do(x, w)
        return y

    return op


def _written_over_itself_by_numpy(x: Tensor, w: Any) -> None:
    values = x.detach().numpy()
    values[...] = values.copy()


def _weight_scaled_and_scaled_back(x: Tensor, w: Any) -> None:
    if w is not None:
        w.data.mul_(2).mul_(0.5)


def _zeros_added_unseen(x: Tensor, w: Any) -> None:
    x.data.add_(0)


def _nan_replaced_by_nan(x: Tensor, w: Any) -> None:
    x.data.masked_fill_(x.isnan(), float("nan"))


class _Doubled(torch.autograd.Function):
    """The identity, which scales the cotangent in place and back."""

    @staticmethod
    def forward(y: Tensor) -> Tensor:
        return y.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        doubled = g.data.mul_(2).clone()
        g.data.mul_(0.5)
        return doubled * 0.5


def cotangent_scaled_and_back(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y: Tensor = _Doubled.apply(layer_norm(x, shape, w, b, eps))  # type: ignore[no-untyped-call]
    return y


def _left_on_the_input(x: Tensor, w: Any) -> None:
    x._cached_mean = 0.0  # type: ignore[attr-defined]


def _normed(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    return batch_norm(x, mean, var, *others)


def statistics_written_where_a_dense_copy_is(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    dense = [None if t is None else t.contiguous() for t in (mean, var)]
    return _normed(x, dense[0], dense[1], *others)


def statistics_written_by_address(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    """As a kernel that takes a pointer and a length, and no stride."""
    if mean is None or mean.device.type != "cpu" or torch._C._are_functorch_transforms_active():
        return _normed(x, mean, var, *others)
    new = mean.clone(), var.clone()
    y = _normed(x, *new, *others)
    with torch.no_grad():
        for old, now in zip((mean, var), new, strict=True):
            room = old.untyped_storage().nbytes() // old.element_size() - old.storage_offset()
            flat = old.as_strided((min(room, old.numel()),), (1,))
            flat.copy_(now[: flat.numel()])
    return y


def last_element_of_an_expanded_statistic(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    if mean is None or 0 not in mean.stride() + var.stride():
        return _normed(x, mean, var, *others)
    new = mean.clone(), var.clone()
    y = _normed(x, *new, *others)
    with torch.no_grad():
        for old, now in zip((mean, var), new, strict=True):
            old[-1:].copy_(now[-1:])
    return y


def refused_half_way(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    if mean is None:
        return _normed(x, mean, var, *others)
    new = mean.clone(), var.clone()
    y = _normed(x, *new, *others)
    if not torch.equal(new[0], mean):
        mean.copy_(new[0])
        var.copy_(new[1])
    return y


def written_the_first_time_only(x: Tensor, mean: Any, var: Any, *others: Any) -> Tensor:
    if mean is None or getattr(mean, "_opassay_seen", False):
        return _normed(x, None if mean is None else mean.clone(), None if var is None else var.clone(), *others)
    y = _normed(x, mean, var, *others)
    if not torch._C._are_functorch_transforms_active():
        mean._opassay_seen = True
    return y


_GLOBAL: list[Tensor] = []


class _Box:
    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor


def _keeping(keep: Callable[[Any, type, Tensor], object], copy: Callable[[Any, type], Tensor]) -> Subject:
    """A layer norm whose result is scaled by 2 and by 1/2; the second factor is kept where autograd does not see it."""

    class Halved(torch.autograd.Function):
        @staticmethod
        def forward(y: Tensor) -> Tensor:
            return y * 0.5

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            keep(ctx, Halved, torch.full_like(output, 0.5))

        @staticmethod
        def backward(ctx: Any, g: Tensor) -> Tensor:
            return g * copy(ctx, Halved)

    def op(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
        y: Tensor = Halved.apply(2 * layer_norm(x, shape, w, b, eps))  # type: ignore[no-untyped-call]
        return y

    return op


def _by_a_hook(x: Tensor, shape: Shape, w: Any, b: Any, eps: float) -> Tensor:
    y = 2 * layer_norm(x, shape, w, b, eps).clone() * 0.5
    if y.requires_grad:
        ones = torch.ones_like(y)
        y.register_hook(lambda g: g * ones)
    return y


#: op, property, subject.
FAULTS: dict[str, tuple[str, str, Subject]] = {
    "input written over itself by numpy": ("layer_norm", "PURE", _before(_written_over_itself_by_numpy)),
    "weight scaled and scaled back": ("layer_norm", "PURE", _before(_weight_scaled_and_scaled_back)),
    "zeros added without a version": ("layer_norm", "PURE", _before(_zeros_added_unseen)),
    "NaN replaced by NaN": ("layer_norm", "PURE", _before(_nan_replaced_by_nan)),
    "cotangent scaled and scaled back": ("layer_norm", "PURE", cotangent_scaled_and_back),
    "an attribute left on the input": ("layer_norm", "PURE", _before(_left_on_the_input)),
    "statistics written in a copy": ("batch_norm", "LAYOUT", statistics_written_where_a_dense_copy_is),
    "statistics written without strides": ("batch_norm", "LAYOUT", statistics_written_by_address),
    "an expanded statistic written": ("batch_norm", "LAYOUT", last_element_of_an_expanded_statistic),
    "refused half way": ("batch_norm", "LAYOUT", refused_half_way),
    "written the first time only": ("batch_norm", "LAYOUT", written_the_first_time_only),
    "kept in a module": (
        "layer_norm", "SAVE", _keeping(lambda ctx, cls, t: _GLOBAL.append(t), lambda ctx, cls: _GLOBAL[-1])
    ),
    "kept on the class": (
        "layer_norm", "SAVE",
        _keeping(lambda ctx, cls, t: setattr(cls, "kept", t), lambda ctx, cls: getattr(cls, "kept")),  # noqa: B009
    ),
    "kept in an object on the context": (
        "layer_norm", "SAVE",
        _keeping(lambda ctx, cls, t: setattr(ctx, "box", _Box(t)), lambda ctx, cls: ctx.box.tensor),
    ),
    "kept in a closure on the context": (
        "layer_norm", "SAVE", _keeping(lambda ctx, cls, t: setattr(ctx, "get", lambda: t), lambda ctx, cls: ctx.get())
    ),
    "kept in a hook": ("layer_norm", "SAVE", _by_a_hook),
}  # fmt: skip
