"""Steps of optimizers over lists of parameters, and the scaling of losses.

Half types are widened before a step and rounded after it, as the kernels of every device have it. What a kernel
computes of numbers alone, such as 1 − βᵗ, it computes in float64, so the text here has it in a form that loses nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from .half_types import widen

Tensors = Sequence[Tensor]


class _Descent:
    """One step: gradients as the step takes them, and writes that are left out where the gradients have overflowed."""

    def __init__(self, maximize: bool, grad_scale: Tensor | None, found_inf: Tensor | None) -> None:
        self._maximize, self._scale, self._overflow = maximize, grad_scale, found_inf

    def gradient(self, g: Tensor) -> Tensor:
        """A gradient in the direction of descent; one that the loss's scale is in is divided by it, and written."""
        wide = widen(g)
        if self._scale is not None:
            wide = wide / self._scale.to(wide.dtype)
            self.write(g, wide)
        return -wide if self._maximize else wide

    def write(self, x: Tensor, value: Tensor) -> None:
        """Write a tensor unless the gradients have overflowed."""
        value = value.to(x.dtype)
        x.copy_(value if self._overflow is None else torch.where(self._overflow == 1, x, value))


def _remainder(beta: float, count: Tensor) -> Tensor | float:
    """1 − βᵗ."""
    return 1.0 if beta == 0 else -torch.expm1(count * math.log(beta))


def _adam(decoupled: bool) -> Callable[..., None]:
    """Adam, with the decay of weights in the gradient; or with a decay of its own, decoupled from it."""

    def step(
        params: Tensors, grads: Tensors, exp_avgs: Tensors, exp_avg_sqs: Tensors, max_exp_avg_sqs: Tensors,
        state_steps: Tensors, *, lr: Any, beta1: float, beta2: float, weight_decay: float, eps: float, amsgrad: bool,
        maximize: bool, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
    ) -> None:  # fmt: skip
        this = _Descent(maximize, grad_scale, found_inf)
        for i, (param, count) in enumerate(zip(params, state_steps, strict=True)):
            g, p = this.gradient(grads[i]), widen(param)
            if weight_decay and decoupled:
                p = p - lr * weight_decay * p
            elif weight_decay:
                g = g + p * weight_decay
            mean = torch.lerp(widen(exp_avgs[i]), g, 1 - beta1)
            square = widen(exp_avg_sqs[i]) * beta2 + (1 - beta2) * g * g
            this.write(exp_avgs[i], mean)
            this.write(exp_avg_sqs[i], square)
            if amsgrad:
                square = torch.maximum(widen(max_exp_avg_sqs[i]), square)
                this.write(max_exp_avg_sqs[i], square)
            root = square.sqrt() / torch.as_tensor(_remainder(beta2, count)).sqrt().to(p.dtype) + eps
            size = lr / _remainder(beta1, count)
            this.write(param, p - torch.as_tensor(size).to(p.dtype) * mean / root)

    return step


def _sgd(
    params: Tensors, grads: Tensors, momentum_buffer_list: Tensors, *, weight_decay: float, momentum: float, lr: Any,
    dampening: float, nesterov: bool, maximize: bool, is_first_step: bool, grad_scale: Tensor | None = None,
    found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    this = _Descent(maximize, grad_scale, found_inf)
    for i, param in enumerate(params):
        g, p = this.gradient(grads[i]), widen(param)
        if weight_decay:
            g = g + p * weight_decay
        if momentum:
            buffer = momentum_buffer_list[i]
            moved = g if is_first_step else widen(buffer) * momentum + g * (1 - dampening)
            this.write(buffer, moved)
            g = g + moved * momentum if nesterov else moved
        this.write(param, p - lr * g)


def _adagrad(
    params: Tensors, grads: Tensors, state_sums: Tensors, state_steps: Tensors, *, lr: Any, lr_decay: float,
    weight_decay: float, eps: float, maximize: bool, grad_scale: Tensor | None = None, found_inf: Tensor | None = None,
) -> None:  # fmt: skip
    this = _Descent(maximize, grad_scale, found_inf)
    for i, (param, count) in enumerate(zip(params, state_steps, strict=True)):
        g, p = this.gradient(grads[i]), widen(param)
        if weight_decay:
            g = g + p * weight_decay
        total = widen(state_sums[i]) + g * g
        this.write(state_sums[i], total)
        rate = lr / (1 + (count - 1) * lr_decay)
        this.write(param, p - rate.to(p.dtype) * g / (total.sqrt() + eps))


def _check_and_unscale(grads: Tensors, found_inf: Tensor, inv_scale: Tensor) -> None:
    """Multiply gradients by a number, and say whether one of them was not finite."""
    for g in grads:
        finite = torch.isfinite(g).all()
        found_inf.copy_(torch.where(finite, found_inf, 1.0))
        g.copy_((widen(g) * inv_scale).to(g.dtype))


def _update_scale(
    scale: Tensor, growth_tracker: Tensor, found_inf: Tensor, scale_growth_factor: float,
    scale_backoff_factor: float, growth_interval: int,
) -> Tensor:  # fmt: skip
    """A smaller scale after an overflow, a larger one after so many steps without, unless that overflows."""
    overflow, steps = found_inf > 0, growth_tracker + 1
    larger = scale * scale_growth_factor
    grows = (steps == growth_interval) & torch.isfinite(larger)
    scale.copy_(torch.where(overflow, scale * scale_backoff_factor, torch.where(grows, larger, scale)))
    growth_tracker.copy_(torch.where(overflow | (steps == growth_interval), 0, steps))
    return scale


STAND_INS: dict[str, Callable[..., Any]] = {
    **{
        f"{name}{overload}": function
        for name, function in (
            ("_fused_adam_", _adam(decoupled=False)), ("_fused_adamw_", _adam(decoupled=True)),
            ("_fused_sgd_", _sgd), ("_fused_adagrad_", _adagrad),
        )
        for overload in ("", ".tensor_lr")
    },
    "_amp_foreach_non_finite_check_and_unscale_": _check_and_unscale,
    "_amp_update_scale_": _update_scale,
}  # fmt: skip
