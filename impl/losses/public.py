"""Losses of classification: negative log likelihood and cross entropy."""

from __future__ import annotations

import torch
from torch import Tensor

from ..operator.arguments import require_device, require_floating, require_int, require_parameter_dtype, require_tensor
from ..operator.precision import FLOATING, HALF, compute_dtype
from .cross_entropy import rules as cross_entropy_rules
from .nll_loss import rules as nll_rules
from .nll_loss.kernels_cpu import MEAN, NONE, SUM

_REDUCTIONS = {"none": NONE, "mean": MEAN, "sum": SUM}
# The integer types that torch's own kernels of these losses take.
_TARGETS = (torch.int64, torch.uint8)


def nll_loss(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
) -> Tensor:  # fmt: skip
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
        IndexError: a target is neither ignore_index nor a class, in every reduction; a GPU asserts it after the call,
            as with torch's own losses.
        ValueError: input has no dims, its batch is not the target's, or reduction is none of the three.
        RuntimeError: other shapes, dtypes or devices do not fit each other.
        TypeError: an operand is not a tensor, ignore_index not an int.
    """
    _check_operands("nll_loss", "input", input, target, weight, ignore_index)
    number = _reduction_number("nll_loss", reduction)
    target = _fit_target("nll_loss", "input", input, target, weight)
    return nll_rules.nll_loss(input, target, _widen_weight(weight), number, ignore_index, 0)[0]


def cross_entropy(
    input: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100, reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:  # fmt: skip
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
    _check_operands("cross_entropy", "input", input, target, weight, ignore_index)
    number = _reduction_number("cross_entropy", reduction)
    target = _fit_target("cross_entropy", "input", input, target, weight)
    if type(label_smoothing) is not float:
        label_smoothing = _float_of("cross_entropy", label_smoothing)
    if not 0.0 <= label_smoothing <= 1.0:
        raise RuntimeError(f"cross_entropy: got label_smoothing={label_smoothing}, need 0 <= label_smoothing <= 1.")
    return cross_entropy_rules.cross_entropy(
        input, target, _widen_weight(weight), number, ignore_index, label_smoothing, 0
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
    loss = _check_loss("nll_loss_forward", (1, 2), self, target, weight, reduction, ignore_index)
    return nll_rules.nll_loss_forward(*loss, 0)


def nll_loss2d_forward(
    self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int
) -> tuple[Tensor, Tensor]:
    """`nll_loss_forward` of (N, C, H, W) with targets (N, H, W)."""
    loss = _check_loss("nll_loss2d_forward", (4,), self, target, weight, reduction, ignore_index)
    return nll_rules.nll_loss_forward(*loss, 0)


def nll_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Tensor:  # fmt: skip
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
    loss = _check_loss("nll_loss_backward", (1, 2), self, target, weight, reduction, ignore_index)
    return _gradient_of_scores("nll_loss_backward", loss, grad_output, total_weight)


def nll_loss2d_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Tensor | None, reduction: int, ignore_index: int,
    total_weight: Tensor,
) -> Tensor:  # fmt: skip
    """`nll_loss_backward` of (N, C, H, W) with targets (N, H, W).

    Args:
        grad_output, ..., total_weight: as for `nll_loss_backward`, self with four dims.
    """
    loss = _check_loss("nll_loss2d_backward", (4,), self, target, weight, reduction, ignore_index)
    return _gradient_of_scores("nll_loss2d_backward", loss, grad_output, total_weight)


_Loss = tuple[Tensor, Tensor, Tensor | None, int, int]
"""Input, target, weight, reduction and ignore_index of a function in ATen's signature, as the ops take them."""


def _gradient_of_scores(name: str, loss: _Loss, grad_output: Tensor, total_weight: Tensor) -> Tensor:
    """The result of both backward functions, whose loss is checked already; messages speak of `name`."""
    x, target, weight, reduction, ignore_index = loss
    for label, value in (("grad_output", grad_output), ("total_weight", total_weight)):
        require_tensor(name, label, value)
        require_device(name, label, value, "self", x)
        require_parameter_dtype(name, label, value, x)
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
    return nll_rules.nll_loss_backward(g, target, weight, classes, ignore_index, 0, x.dtype)


def _widen_weight(weight: Tensor | None) -> Tensor | None:
    """The weight as the ops take it, in float32 for the half types.

    Its cotangents come from the loss and from the total weight. In float32 they add up before they are rounded.
    """
    return weight if weight is None or weight.dtype not in HALF else weight.float()


# Every rule below is stated once, in the order in which mistakes are reported. A test that nearly every call passes
# stands in the text where a call of a function would take as long as the test; its message is made on failure alone.


def _check_loss(
    name: str, dims: tuple[int, ...], x: Tensor, target: Tensor, weight: Tensor | None, reduction: int,
    ignore_index: int,
) -> _Loss:  # fmt: skip
    """The arguments of a function in ATen's signature, checked.

    Args:
        name: the function that messages speak of.
        dims: the numbers of dims that x may have.
        x, ..., ignore_index: as for `nll_loss_forward`, of any type.
    """
    _check_operands(name, "self", x, target, weight, ignore_index)
    if type(reduction) is not int:
        require_int(name, "reduction", reduction)
    if reduction not in (NONE, MEAN, SUM):
        raise ValueError(f"{name}: got reduction={reduction}, need 0 (none), 1 (mean) or 2 (sum).")
    if x.dim() not in dims:
        need = " or ".join(str(d) for d in dims)
        raise RuntimeError(f"{name}: got self of shape={list(x.shape)}, need {need} dims.")
    target = _fit_target(name, "self", x, target, weight)
    return x, target, _widen_weight(weight), reduction, ignore_index


def _check_operands(name: str, label: str, x: Tensor, target: Tensor, weight: Tensor | None, ignore_index: int) -> None:
    """Raises the exception for a wrong type or dtype, or for devices that differ.

    Args:
        name, label: the function, and what it calls x, for messages.
        x, target, weight, ignore_index: as for `nll_loss`, of any type.
    """
    if not isinstance(x, Tensor):
        require_tensor(name, label, x)
    if not isinstance(target, Tensor):
        require_tensor(name, "target", target)
    if weight is not None:
        require_tensor(name, "weight", weight)
    if type(ignore_index) is not int:
        require_int(name, "ignore_index", ignore_index)
    # The ops take an int64. A greater int would fail in the dispatcher, with a message about the schema.
    if not -(2**63) <= ignore_index < 2**63:
        raise ValueError(f"{name}: got ignore_index={ignore_index}, need -2**63 <= ignore_index < 2**63.")
    if x.dtype not in FLOATING:
        require_floating(name, label, x)
    if target.dtype not in _TARGETS:
        raise RuntimeError(f"{name}: got target of dtype={target.dtype}, need int64 or uint8 class indices.")
    if target.device != x.device:
        require_device(name, "target", target, label, x)


def _reduction_number(name: str, reduction: str) -> int:
    """The reduction as ATen numbers it; ValueError where it is none of the three."""
    if not isinstance(reduction, str) or reduction not in _REDUCTIONS:
        raise ValueError(f"{name}: got reduction={reduction!r}, need 'none', 'mean' or 'sum'.")
    return _REDUCTIONS[reduction]


def _fit_target(name: str, label: str, x: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
    """The target, without dims where the input is one row; raises where shapes, or the weight, do not fit the input.

    Args:
        name, label: the function, and what it calls x, for messages.
        x, target, weight: as for `nll_loss`.
    """
    shape = x.shape
    if len(shape) < 2:
        target = _target_of_row(name, label, x, target)
    elif target.shape != shape[:1] + shape[2:]:
        same_batch = target.dim() > 0 and target.shape[0] == shape[0]
        kind = RuntimeError if same_batch else _batch_error(label)
        raise kind(f"{_describe_shapes(name, label, x, target)}, need a target of shape={list(shape[:1] + shape[2:])}.")
    if weight is not None:
        classes = shape[0 if len(shape) == 1 else 1]
        if weight.shape != (classes,):
            raise RuntimeError(
                f"{name}: got weight of shape={list(weight.shape)}, need one weight per class: [{classes}]."
            )
        require_device(name, "weight", weight, label, x)
        require_parameter_dtype(name, "weight", weight, x)
    return target


def _target_of_row(name: str, label: str, x: Tensor, target: Tensor) -> Tensor:
    if not x.dim():
        raise ValueError(f"{name}: got {label} of shape=[], need at least one dim, the classes.")
    if tuple(target.shape) not in ((), (1,)):
        raise _batch_error(label)(f"{_describe_shapes(name, label, x, target)}, need one target.")
    return target.reshape(())


def _describe_shapes(name: str, label: str, x: Tensor, target: Tensor) -> str:
    return f"{name}: got target of shape={list(target.shape)} and {label} of shape={list(x.shape)}"


def _batch_error(label: str) -> type[Exception]:
    """Where the batch does not fit, torch's functional losses raise ValueError, and its aten ops RuntimeError."""
    return RuntimeError if label == "self" else ValueError


def _float_of(name: str, smoothing: object) -> float:
    if isinstance(smoothing, bool) or not isinstance(smoothing, (int, float, torch.SymFloat, torch.SymInt)):
        raise TypeError(f"{name}: got label_smoothing={smoothing!r}, need a float.")
    # The op's schema says float, so an int or a symbolic number is made one.
    return float(smoothing)
