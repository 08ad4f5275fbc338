"""The rules of the norms, written once over a `Layout`: fakes, what is saved, first order in both modes.

A forward op returns out, mean and rstd. Its backward rule is one call of the backward op, whose own derivatives, of
every higher order, come from an expression. What is hard here is to save no more than is read: nothing of the size of
the input where only the bias needs a gradient.

A layer or group norm without a weight has no weight gradient. Batch norm's backward op returns one all the same, so its
schema has a `weight_dtype`, and its rules say `weight_dtype` for it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple

import torch
from torch import Tensor

from ..operator.operator import Operator
from ..operator.precision import compute_dtype
from ..operator.records import Grads, Record, new
from ..operator.rules import Rules
from . import expressions
from .kernels_cpu.operands import Gradients, L, Moved
from .layout import channels_in, groups_in, rows_in


@dataclass(frozen=True, slots=True)
class Norm(Generic[L]):
    """The fakes and the expressions of a norm.

    Attributes:
        layout: the layout for the arguments of an op. centred: whether the norm takes off the mean.
    """

    layout: Callable[[Record], L]
    centred: bool = True

    def fake(self, args: Record) -> tuple[Tensor, Tensor, Tensor]:
        """Fake (out, mean, rstd)."""
        x, layout = args.input, self.layout(args)
        shape, dtype = layout.statistics_shape(x.shape), compute_dtype(x.dtype)
        return layout.empty_like(x), x.new_empty(shape, dtype=dtype), x.new_empty(shape, dtype=dtype)

    def fake_output(self, args: Record) -> Tensor:
        """Fake out."""
        return self.layout(args).empty_like(args.input)

    def fake_tangents(self, args: Record) -> Moved:
        """Fake tangents of (out, mean, rstd)."""
        if args.t_input is None or not args.statistics:
            return self.fake_output(args), None, None
        return self.fake(args)

    def fake_gradients(self, args: Record) -> Gradients:
        """Fake (d_input, d_weight, d_bias), None where the mask leaves one out."""
        x, layout, mask = args.input, self.layout(args), _read_mask(args)
        shape, weight = layout.affine_shape(x.shape), args.weight
        dtype = args.weight_dtype if hasattr(args, "weight_dtype") else None if weight is None else weight.dtype
        return (
            layout.empty_like(x) if mask[0] else None,
            x.new_empty(shape, dtype=dtype) if mask[1] else None,
            x.new_empty(shape, dtype=args.bias_dtype) if mask[2] else None,
        )

    def tangents(self, args: Record) -> Moved:
        """The tangents of (out, mean, rstd) as an expression."""
        x, layout = args.input, self.layout(args)
        t_input = None if args.t_input is None else layout.view(args.t_input)
        out, mean, rstd = expressions.moved_outputs(
            layout.view(x), args.weight, layout, args.eps, (t_input, args.t_weight, args.t_bias), _constants_in(args)
        )
        out = out.reshape(x.shape)
        if mean is None or rstd is None or not args.statistics:
            return out, None, None
        return out, layout.flat_statistics(mean), layout.flat_statistics(rstd)

    def gradients(self, args: Record) -> Gradients:
        """The backward op as an expression of grad_out, input, weight and the cotangents of the statistics."""
        layout = self.layout(args)
        statistics = (getattr(args, name, None) for name in ("rstd", "grad_mean", "grad_rstd"))
        rstd, grad_mean, grad_rstd = (None if t is None else layout.view_statistics(t) for t in statistics)
        d_input, d_weight, d_bias = expressions.gradients(
            layout,
            layout.view(args.grad_out),
            layout.view(args.input),
            args.weight,
            eps=args.eps,
            rstd=rstd,
            grad_mean=grad_mean,
            grad_rstd=grad_rstd,
            mask=_read_mask(args),
            constants=_constants_in(args),
            centred=self.centred,
        )
        return None if d_input is None else d_input.reshape(args.input.shape), d_weight, d_bias


rows, groups, channels = Norm(rows_in), Norm(groups_in), Norm(channels_in)


def _constants_in(args: Record) -> expressions.Constants | None:
    """The statistics of an op that has them as arguments, which take no gradient."""
    return (args.running_mean, args.running_var) if hasattr(args, "running_mean") else None


def _read_mask(args: Record) -> tuple[bool, bool, bool]:
    """The gradients that a call of a backward op asks for, and that it has a parameter for."""
    mask = args.output_mask
    # Batch norm's backward op has `weight_dtype` in its schema and returns d_weight without a weight, too.
    has_weight = args.weight is not None or hasattr(args, "weight_dtype")
    return mask[0], mask[1] and has_weight, len(mask) > 2 and mask[2] and args.bias_dtype is not None


class SavedNorm(NamedTuple, Generic[L]):
    """What a forward op keeps for its backward rule; the tensors are None where only the bias needs a gradient.

    Attributes:
        input, weight, mean, scale: as the op has them; the weight only where the input needs a gradient. The scale is
            rstd, or the variance of constant statistics.
        weight_dtype, bias_dtype: None where there is no such parameter.
        layout: the op's.
        eps: added to the variance.
    """

    input: Tensor | None
    weight: Tensor | None
    mean: Tensor | None
    scale: Tensor | None
    weight_dtype: torch.dtype | None
    bias_dtype: torch.dtype | None
    layout: L
    eps: float


@dataclass(frozen=True, slots=True)
class Forward(Generic[L]):
    """The rules of one norm's forward ops.

    Attributes:
        layout: the layout for the arguments of a forward op.
        backward_op: an op of (grad_out, grad_mean, grad_rstd, input, mean, rstd, ..., output_mask); without the
            cotangents of statistics where these are constants.
        operands: the arguments of that op between rstd and output_mask, from the values that the forward op has saved.
        jvp_op: an op of (input, weight, tangents of input, weight and bias, ..., eps, statistics).
        extents: the arguments of that op between the tangents and eps, from the arguments of the forward op.
    """

    layout: Callable[[Record], L]
    backward_op: Operator[*tuple[Any, ...], Any]
    operands: Callable[[SavedNorm[L]], tuple[object, ...]]
    jvp_op: Operator[*tuple[Any, ...], Any]
    extents: Callable[[Record], tuple[object, ...]]

    def forward_rules(self, *, statistics: bool, others: tuple[str, ...] = ()) -> Rules[SavedNorm[L]]:
        """The rules of a forward op.

        Args:
            statistics: whether mean and rstd are differentiable outputs, or there for the backward rule alone.
            others: outputs beside out, mean and rstd; never differentiable.
        """

        def jvp(args: Record, tangents: Record) -> tuple[Tensor | None, ...]:
            x = args.input
            out, mean, rstd = self.jvp_op(
                x, args.weight, tangents.input, tangents.weight, tangents.bias, *self.extents(args), args.eps,
                statistics,
            )  # fmt: skip
            if statistics and mean is None:  # they depend on x alone
                shape, dtype = self.layout(args).statistics_shape(x.shape), compute_dtype(x.dtype)
                mean, rstd = x.new_zeros(shape, dtype=dtype), x.new_zeros(shape, dtype=dtype)
            return out, mean, rstd, *(None for _ in others)

        apart = (*(() if statistics else ("mean", "rstd")), *others)
        return Rules(SavedNorm, self._saved, self._gradients_of_arguments, jvp, apart)

    def rules_by_constants(self) -> Rules[SavedNorm[L]]:
        """The rules of a forward op with constant statistics, which has one output."""

        def jvp(args: Record, tangents: Record) -> Tensor:
            moved = (tangents.input, tangents.weight, tangents.bias)
            out: Tensor = self.jvp_op(args.input, args.weight, *self.extents(args), *moved, args.eps)
            return out

        return Rules(SavedNorm, self._saved, self._gradients_of_arguments, jvp)

    def _saved(self, args: Record, outputs: Record, needs: Record) -> SavedNorm[L]:
        x, weight, bias, constants = args.input, args.weight, args.bias, _constants_in(args)
        mean, scale = (outputs.mean, outputs.rstd) if constants is None else constants
        weight_dtype = None if weight is None else weight.dtype
        bias_dtype = None if bias is None else bias.dtype
        # d_weight = sum(dy xh) does not read the weight, and d_bias = sum(dy) reads neither input nor
        # statistics. A tensor that is not read is not saved, so partly frozen layers take less memory.
        if not needs.input:
            weight = None
            if not needs.weight:
                x = mean = scale = None
        if constants is not None and mean is not None:  # a later call in training mode writes to the originals
            mean, scale = mean.detach().clone(), scale.detach().clone()
        saved: SavedNorm[L] = new(
            SavedNorm, (x, weight, mean, scale, weight_dtype, bias_dtype, self.layout(args), args.eps)
        )
        return saved

    def _gradients_of_arguments(self, saved: SavedNorm[L], needs: Record, cotangents: Record) -> Grads:
        """One call of the backward op; a bias gradient alone is a sum."""
        grad_out = cotangents.out
        if saved.input is None:
            if grad_out is None or not needs.bias:
                return {}
            return {"bias": saved.layout.collect(saved.layout.view(grad_out)).to(saved.bias_dtype)}
        if grad_out is None:  # only the statistics have cotangents
            grad_out = torch.zeros_like(saved.input, memory_format=torch.contiguous_format)
        through = (cotangents.mean, cotangents.rstd) if hasattr(cotangents, "mean") else ()
        d_input, d_weight, d_bias = self.backward_op(
            grad_out, *through, saved.input, saved.mean, saved.scale, *self.operands(saved),
            (needs.input, needs.weight, needs.bias),
        )  # fmt: skip
        return {"input": d_input, "weight": d_weight, "bias": d_bias}


def weight_or_zeros(saved: SavedNorm[Any]) -> Tensor | None:
    """The weight for a call of the backward op: for d_weight alone, which needs no more than shape and dtype, zeros."""
    if saved.weight is not None or saved.weight_dtype is None or saved.input is None:
        return saved.weight
    return saved.input.new_zeros(saved.layout.affine_shape(saved.input.shape), dtype=saved.weight_dtype)


def constants_tangent(args: Record) -> Tensor:
    """The tangent of batch norm by running statistics, as an expression."""
    return channels.tangents(args)[0].contiguous()
