"""Losses of classification: negative log likelihood and cross entropy."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..operator.arguments import require_device, require_floating, require_tensor
from ..operator.precision import FLOATING, HALF, compute_dtype
from .cross_entropy import rules as cross_entropy_rules
from .nll_loss import rules as nll_rules
from .nll_loss.kernels_cpu import MEAN, NONE, SUM

_REDUCTIONS = {"none": NONE, "mean": MEAN, "sum": SUM}
# The integer types that torch's own kernels of these losses take.
_TARGETS = (torch.int64, torch.uint8)


def nll_loss(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
) -> Tensor:
    """Negative log likelihood: -weight[target] * input at every target, over all positions.

    The deprecated arguments size_average and reduce of torch are not here; a call that passes them raises TypeError.

    Args:
        input: log-probabilities, (C,), (N, C) or (N, C, d1, ..., dk); float64, float32, bfloat16 or float16.
        target: class indices, int64 or uint8, of the input's shape without C; for (C,) of no dims, or (1,).
        weight: (C,), in the input's dtype, or float32 with a bfloat16 or float16 input. Differentiable, as input is.
        ignore_index: positions with this target count for nothing: their loss and their gradient are 0, whatever input
            holds there. Any int64, a class or not.
        reduction: "none" (a loss per position), "sum", or "mean": the sum over the sum of the weights of the targets.

    Returns:
        A contiguous tensor of the input's dtype: of the target's shape for "none", else of no dims. Sums of
        half-precision inputs are float32 and the result is rounded once. "mean" is NaN (0 / 0) where there is no target
        or every one is ignored, and NaN or infinite where the weights of the targets sum to 0; the gradient of ignored
        positions is 0 even then.

    Raises:
        IndexError: a target is neither ignore_index nor a class, in every reduction.
        ValueError: input has no dims, its batch is not the target's, or reduction is none of the three.
        RuntimeError: other shapes, dtypes or devices do not fit each other.
        TypeError: an operand is not a tensor, ignore_index not an int.
    """
    if not _fits(input, target, weight, ignore_index, reduction):
        target = _check("nll_loss", input, target, weight, ignore_index, reduction)
    # The weight's cotangents come from the loss and from the total weight. In float32 they add up before
    # they are rounded.
    weight = _wide(weight)
    return nll_rules.nll_loss(input, target, weight, _REDUCTIONS[reduction], ignore_index, 0)[0]


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    ignore_index: int = -100,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """`nll_loss` of log_softmax(input) over the classes, with a share of the target spread over all classes.

    Per position, with z = log_softmax(input) and s = label_smoothing:
    -(1 - s) * weight[target] * z[target] - s / C * sum(weight * z).

    Args:
        input: logits, shapes and dtypes as for `nll_loss`. Log-softmax of half-precision logits is float32.
        target, weight, ignore_index, reduction: as for `nll_loss`. Class probabilities as targets are not taken.
        label_smoothing: s, from 0 to 1.

    Returns:
        As `nll_loss`; with smoothing, too, "mean" divides by the sum of the weights of the targets. A position whose
        logits are all -inf, or hold inf or NaN, is NaN.

    Raises:
        As `nll_loss`, and RuntimeError where label_smoothing is not between 0 and 1.

    Source: C. Szegedy et al., Rethinking the Inception Architecture, arXiv:1512.00567, section 7 (smoothing).
    """
    if not _fits(input, target, weight, ignore_index, reduction) or type(label_smoothing) is not float:
        target = _check("cross_entropy", input, target, weight, ignore_index, reduction)
        label_smoothing = _number("cross_entropy", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"cross_entropy: got label_smoothing={label_smoothing}, need 0 <= label_smoothing <= 1.")
    return cross_entropy_rules.cross_entropy(
        input, target, _wide(weight), _REDUCTIONS[reduction], ignore_index, label_smoothing, 0
    )[0]


def nll_loss_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """`nll_loss` of (C,) or (N, C) with the sum of the weights of the targets.

    Args:
        self: the input. target, weight, ignore_index: as for `nll_loss`.
        reduction: 0 none, 1 mean, 2 sum.

    Returns:
        output, total_weight. total_weight has no dims; float32 for bfloat16 and float16 inputs, else the input's dtype.
        It is 0 for reduction 0, and without a weight the number of targets that are not ignored. It is differentiable,
        in weight; input does not influence it.

    Raises:
        As `nll_loss`.
    """
    target = _check_native("nll_loss_forward", self, target, weight, ignore_index, reduction, (1, 2))
    return nll_rules.nll_loss_forward(self, target, _wide(weight), reduction, ignore_index, 0)


def nll_loss2d_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """`nll_loss_forward` of (N, C, H, W) with targets (N, H, W)."""
    target = _check_native("nll_loss2d_forward", self, target, weight, ignore_index, reduction, (4,))
    return nll_rules.nll_loss_forward(self, target, _wide(weight), reduction, ignore_index, 0)


def nll_loss_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """The input's gradient from that of the output of `nll_loss_forward`.

    It is -grad_output * weight[target] at every target, over total_weight for a mean, and 0 elsewhere. It is a function
    of the given total_weight and differentiable in it, in grad_output and in weight. Of self it reads shape and dtype.

    Args:
        grad_output: of the target's shape for reduction 0, else one element; the input's dtype, or float32 with a
            half-precision input.
        self, target, weight, reduction, ignore_index: as for `nll_loss_forward`.
        total_weight: one element, in the input's dtype, or float32 with a half-precision input.

    Returns:
        A contiguous tensor of the input's shape and dtype.

    Raises:
        As `nll_loss`, and RuntimeError where grad_output or total_weight do not fit.
    """
    name = "nll_loss_backward"
    target = _check_native(name, self, target, weight, ignore_index, reduction, (1, 2))
    return _backward(name, grad_output, self, target, weight, reduction, ignore_index, total_weight)


def nll_loss2d_backward(
    grad_output: Tensor,
    self: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """`nll_loss_backward` of (N, C, H, W) with targets (N, H, W).

    Args:
        grad_output, ..., total_weight: as for `nll_loss_backward`, self with four dims.
    """
    name = "nll_loss2d_backward"
    target = _check_native(name, self, target, weight, ignore_index, reduction, (4,))
    return _backward(name, grad_output, self, target, weight, reduction, ignore_index, total_weight)


def _backward(
    name: str,
    grad_output: Tensor,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    reduction: int,
    ignore_index: int,
    total_weight: Tensor,
) -> Tensor:
    """Both backward functions, after the checks that differ.

    Args:
        name: the function that messages speak of.
        grad_output, ..., total_weight: as for `nll_loss_backward`, x for its self.
    """
    for label, value in (("grad_output", grad_output), ("total_weight", total_weight)):
        require_tensor(name, label, value)
        require_device(name, label, value, "self", x)
        _require_dtype(name, label, value, x)
    single = reduction != NONE
    if tuple(grad_output.shape) not in (((), (1,)) if single else (tuple(target.shape),)):
        need = "one element" if single else f"the target's shape={list(target.shape)}"
        raise RuntimeError(f"{name}: got grad_output of shape={list(grad_output.shape)}, need {need}.")
    if tuple(total_weight.shape) not in ((), (1,)):
        raise RuntimeError(f"{name}: got total_weight of shape={list(total_weight.shape)}, need one element.")
    g = grad_output.reshape(()) if single else grad_output
    # The op takes the cotangent of every position's loss. The division stands outside of it, so torch's own
    # derivative of a quotient makes the result differentiable in total_weight.
    if reduction == MEAN:
        up = compute_dtype(x.dtype)
        g = g.to(up) / total_weight.reshape(()).to(up)
    classes = x.shape[0 if x.dim() == 1 else 1]
    return nll_rules.nll_loss_backward(g, target, _wide(weight), classes, ignore_index, 0, x.dtype)


def _wide(weight: Tensor | None) -> Tensor | None:
    """The weight as the ops take it, in float32 for the half types."""
    return weight if weight is None or weight.dtype not in HALF else weight.float()


def _fits(x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: str) -> bool:
    """Whether the arguments are right, the short way. `_check` says what is wrong.

    Args:
        x, ..., reduction: as for `nll_loss`, of any type.
    """
    if not isinstance(x, Tensor) or not isinstance(target, Tensor):
        return False
    if x.dtype not in FLOATING or target.dtype not in _TARGETS or x.device != target.device:
        return False
    shape = x.shape
    # An input of one row is right, too, but its target may have a dim too many, which `_check` takes off.
    if len(shape) < 2 or target.shape != shape[:1] + shape[2:]:
        return False
    if type(ignore_index) is not int or type(reduction) is not str or reduction not in _REDUCTIONS:
        return False
    # The ops take an int64. A greater int would fail in the dispatcher, with a message about the schema.
    if not -(2**63) <= ignore_index < 2**63:
        return False
    if weight is None:
        return True
    if not isinstance(weight, Tensor) or weight.shape != shape[1:2] or weight.device != x.device:
        return False
    return weight.dtype is x.dtype or (weight.dtype is torch.float32 and x.dtype in HALF)


def _check(
    name: str, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int, reduction: Any, label: str = "input"
) -> Tensor:
    """Raises what is wrong with the arguments; else the target, without dims where the input is one row.

    Args:
        name: the function that messages speak of.
        x, ..., reduction: as for `nll_loss`, of any type.
        label: what the function calls x.
    """
    _check_types(name, label, x, target, weight, ignore_index)
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ValueError(f"{name}: got reduction={reduction!r}, need 'none', 'mean' or 'sum'.")
    return _check_shapes(name, label, x, target, weight)


def _check_native(
    name: str,
    x: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    reduction: int,
    dims: tuple[int, ...],
) -> Tensor:
    """The checks of the ops in ATen's signatures; the target as `_check` returns it.

    Args:
        name: the function that messages speak of.
        x, ..., reduction: as for `nll_loss_forward`, of any type.
        dims: the numbers of dims that x may have.
    """
    known = type(reduction) is int and reduction in (NONE, MEAN, SUM)
    if known and _fits(x, target, weight, ignore_index, "mean") and x.dim() in dims:
        return target
    _check_types(name, "self", x, target, weight, ignore_index)
    if not isinstance(reduction, (int, torch.SymInt)) or isinstance(reduction, bool):
        raise TypeError(f"{name}: got reduction={reduction!r}, need an int.")
    if reduction not in (NONE, MEAN, SUM):
        raise ValueError(f"{name}: got reduction={reduction}, need 0 (none), 1 (mean) or 2 (sum).")
    if x.dim() not in dims:
        need = " or ".join(str(d) for d in dims)
        raise RuntimeError(f"{name}: got self of shape={list(x.shape)}, need {need} dims.")
    return _check_shapes(name, "self", x, target, weight)


def _check_types(name: str, label: str, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
    """Raises what is wrong with types and dtypes, and where devices differ.

    Args:
        name, label: the function, and what it calls x, for messages.
        x, target, weight, ignore_index: as for `nll_loss`, of any type.
    """
    require_tensor(name, label, x)
    require_tensor(name, "target", target)
    if weight is not None:
        require_tensor(name, "weight", weight)
    if not isinstance(ignore_index, (int, torch.SymInt)) or isinstance(ignore_index, bool):
        raise TypeError(f"{name}: got ignore_index={ignore_index!r}, need an int.")
    if not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"{name}: got ignore_index={ignore_index}, need -2**63 <= ignore_index < 2**63.")
    require_floating(name, label, x)
    if target.dtype not in _TARGETS:
        raise RuntimeError(f"{name}: got target of dtype={target.dtype}, need int64 or uint8 class indices.")
    require_device(name, "target", target, label, x)


def _check_shapes(name: str, label: str, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """Also returns the target, without dims where the input is one row.

    Args:
        name, label: the function, and what it calls x, for messages.
        x, target, weight: as for `nll_loss`.
    """
    got = f"{name}: got target of shape={list(target.shape)} and {label} of shape={list(x.shape)}"
    if not x.dim():
        raise ValueError(f"{name}: got {label} of shape=[], need at least one dim, the classes.")
    # torch's functional losses raise ValueError where the batch does not fit, its aten ops RuntimeError for everything.
    batch_error: type[Exception] = RuntimeError if label == "self" else ValueError
    if x.dim() == 1:
        if tuple(target.shape) not in ((), (1,)):
            raise batch_error(f"{got}, need one target.")
        target = target.reshape(())
    elif tuple(target.shape) != tuple(x.shape[:1] + x.shape[2:]):
        same_batch = target.dim() > 0 and target.shape[0] == x.shape[0]
        kind = RuntimeError if same_batch else batch_error
        raise kind(f"{got}, need a target of shape={list(x.shape[:1] + x.shape[2:])}.")
    if weight is not None:
        classes = x.shape[0 if x.dim() == 1 else 1]
        if weight.dim() != 1 or weight.shape[0] != classes:
            raise RuntimeError(
                f"{name}: got weight of shape={list(weight.shape)}, need one weight per class: [{classes}]."
            )
        require_device(name, "weight", weight, label, x)
        _require_dtype(name, "weight", weight, x)
    return target


def _require_dtype(name: str, label: str, value: Tensor, x: Tensor) -> None:
    if value.dtype is not x.dtype and not (value.dtype is torch.float32 and x.dtype in HALF):
        raise RuntimeError(
            f"{name}: got {label} of dtype={value.dtype} and input of dtype={x.dtype},"
            " need the input's dtype, or float32 with a bfloat16 or float16 input."
        )


def _number(name: str, smoothing: Any) -> float:
    if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float, torch.SymFloat, torch.SymInt)):
        raise TypeError(f"{name}: got label_smoothing={smoothing!r}, need a float.")
    # The op's schema says float, so an int or a symbolic number is made one.
    return float(smoothing)
