"""Functions of torch that cannot be traced as they stand, and what is traced in their place.

Some read a number off a tensor in order to check it, or write into a tensor by an operation that torch cannot turn into
one with a result of its own. What stands here computes the same by operations that can be traced.
"""

from __future__ import annotations

import contextlib
import inspect
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import _SingleLevelFunction
from torch.utils import _pytree as pytree

from .associations import SCANS, scan_in_every_order
from .block_scales import PRODUCTS
from .calls import UntraceableError


def _gaussian_nll_loss(
    input: Tensor, target: Tensor, var: Tensor | float, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """torch's function without its test for negative variances, for which the loss has no meaning."""
    if not isinstance(var, Tensor):
        var = var * torch.ones_like(input)
    if var.shape != input.shape and input.shape[:-1] == var.shape:
        var = var.unsqueeze(-1)
    var = var.clone()
    with torch.no_grad():
        var.clamp_(min=eps)
    loss = 0.5 * (torch.log(var) + (input - target) ** 2 / var)
    if full:
        loss = loss + 0.5 * math.log(2 * math.pi)
    return loss if reduction == "none" else loss.mean() if reduction == "mean" else loss.sum()


def _write_result(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, *args, **kwargs: x.copy_(function(x, *args, **kwargs))


def _rrelu(
    input: Tensor, lower: float = 0.125, upper: float = 1.0 / 3.0, training: bool = False, inplace: bool = False
) -> Tensor:
    result = torch.rrelu(input, lower, upper, training)
    return input.copy_(result) if inplace else result


def _embedding(
    input: Tensor, weight: Tensor, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Tensor:  # fmt: skip
    """torch's function; rows that are too long are made shorter in the table itself, which keeps its derivatives."""
    if max_norm is not None:
        with torch.no_grad():
            weight.copy_(torch.ops.aten.embedding_renorm(weight, input, max_norm, norm_type))
    return F.embedding(input, weight, padding_idx, None, norm_type, scale_grad_by_freq, sparse)


def _affine_grid(theta: Tensor, size: list[int], align_corners: bool | None = None) -> Any:
    """Under autocast torch multiplies matrices in the narrow format, inside of an operation that is not cast itself."""
    kind = theta.device.type
    theta = theta.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else theta
    return F.affine_grid(theta, size, align_corners)


def _bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Any:
    """Under autocast torch multiplies matrices in the narrow format, inside of an operation that is not cast itself."""
    kind = input1.device.type
    if not torch.is_autocast_enabled(kind):
        return F.bilinear(input1, input2, weight, bias)
    narrow, own = torch.get_autocast_dtype(kind), input1.dtype
    product = F.bilinear(*(x.to(narrow).to(own) for x in (input1, input2, weight))).to(narrow).to(own)
    return product if bias is None else product + bias


def _bce_with_logits(
    input: Tensor, target: Tensor, weight: Tensor | None = None, size_average: bool | None = None,
    reduce: bool | None = None, reduction: str = "mean", pos_weight: Tensor | None = None,
) -> Any:  # fmt: skip
    """The whole loss as one operation (`rules/losses.py`), with the dtypes that torch gives it under autocast."""
    tensors = [input, target, weight, pos_weight]
    if torch.is_autocast_enabled(input.device.type):
        tensors = [t.float() if t is not None and t.dtype.itemsize == 2 else t for t in tensors]
    if size_average is not None or reduce is not None or target.size() != input.size():  # torch warns or raises.
        return F.binary_cross_entropy_with_logits(input, target, weight, size_average, reduce, reduction, pos_weight)
    return torch.ops.opassay_specs.binary_cross_entropy_with_logits(*tensors, ["none", "mean", "sum"].index(reduction))


def _one_hot(tensor: Tensor, num_classes: int = -1) -> Any:
    """torch's function without its test that no class is too large; tracing needs the number of classes."""
    if num_classes < 0:
        return F.one_hot(tensor, num_classes)
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()


def _quantile(
    input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *, interpolation: str = "linear"
) -> Any:
    """torch's function for a number q, with every element that is right: torch makes an index of a rounded product."""
    if isinstance(q, Tensor):
        return torch.quantile(input, q, dim, keepdim, interpolation=interpolation)
    rows = input.reshape(-1) if dim is None else input.movedim(dim, -1)
    quantiles = _at_place(rows.sort(-1).values, q, interpolation)
    quantiles = torch.where(rows.isnan().any(-1), rows.amax(-1), quantiles)  # NaN, of which no slope is known
    if not keepdim:
        return quantiles
    return quantiles.reshape((1,) * input.dim()) if dim is None else quantiles.unsqueeze(dim)


def _at_place(ordered: Tensor, q: float, interpolation: str) -> Tensor:
    """What stands at place q (n - 1) of sorted rows of n, on either side of a whole number that rounding may reach."""
    last = ordered.shape[-1] - 1
    place = torch.full((), q, dtype=ordered.dtype, device=ordered.device) * last
    reached = _reach_of(q, last, ordered.dtype)
    first, *further = range(math.floor(reached[0]), math.floor(reached[1]) + 1)

    def one_of(index: Callable[[Any], int], edge: float) -> Tensor:
        start, end = map(index, reached)
        element = ordered[..., start]
        for k in range(start + 1, end + 1):
            element = torch.where(place < k + edge, element, ordered[..., k])
        return element

    def between(k: int) -> Tensor:
        low, high = ordered[..., k], ordered[..., min(k + 1, last)]
        return low + (high - low) * (place - k)

    if interpolation == "linear":
        quantile = between(first)
        for k in further:
            quantile = torch.where(place < k, quantile, between(k))
        return quantile
    if interpolation == "nearest":
        return one_of(round, -0.5)
    low, high = one_of(math.floor, 0.0), one_of(math.ceil, -1.0)
    return {"lower": low, "higher": high, "midpoint": low + (high - low) * 0.5}[interpolation]


def _reach_of(q: float, last: int, dtype: torch.dtype) -> tuple[Fraction, Fraction]:
    """The least and the greatest value of q · last, where q and the product may each be rounded to a dtype or not.

    One version of torch rounds both to the dtype of the input, and another multiplies the rounded q in float64.
    """
    place, part = Fraction(q) * last, Fraction(torch.finfo(dtype).eps) / 2
    rounded = sum(torch.tensor(x, dtype=dtype).item() != x for x in (q, place))
    return max(place * (1 - part) ** rounded, Fraction(0)), min(place * (1 + part) ** rounded, Fraction(last))


def _attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
    is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
) -> Any:  # fmt: skip
    """torch's function with the scores as an operation of our own; a row that is masked as a whole is zero."""
    kind = query.device.type
    unusual = dropout_p > 0.0 or (is_causal and attn_mask is not None) or min(t.dim() for t in (query, key, value)) < 2
    if unusual:  # torch draws, or says what is wrong
        return F.scaled_dot_product_attention(
            query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if torch.is_autocast_enabled(kind):
        query, key, value = (t.to(torch.get_autocast_dtype(kind)) for t in (query, key, value))
    if enable_gqa:
        key, value = (t.repeat_interleave(query.shape[-3] // t.shape[-3], -3) for t in (key, value))
    factor = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = torch.ops.opassay_specs.attention_scores(query, key, factor)
    if is_causal:
        attn_mask = torch.ones(scores.shape[-2:], dtype=torch.bool, device=query.device).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros(attn_mask.shape, device=query.device).masked_fill(~attn_mask, -math.inf)
    if attn_mask is not None:
        scores = scores + attn_mask.to(scores.dtype)
    return torch.matmul(torch.ops.aten._safe_softmax(scores, -1), value)


def _logdet(input: Tensor) -> Any:
    """torch's function as one operation (`rules/equations.py`), and not as arithmetic with a determinant's sign."""
    sign, logarithm = torch.linalg.slogdet(input)
    return torch.where(sign < 0, torch.nan, logarithm)


class _WithoutRule:
    """A result of a function of torch that is not read: a spec may leave it, and not give it."""


def _refuse(result: _WithoutRule) -> Any:
    raise UntraceableError("gives results of which some are not read; give the others by name, as `.solution`")


pytree.register_pytree_node(_WithoutRule, _refuse, lambda leaves, context: _WithoutRule())


def _lstsq(input: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> Any:
    """The solution alone; the other results of torch's function are read off numbers."""
    tolerance = torch.finfo(input.dtype).eps * max(input.shape[-2:]) if rcond is None else rcond
    solution = torch.ops.opassay_specs.least_squares(input, b, 0.0 if driver == "gels" else tolerance, driver)
    results: Any = torch.return_types
    return results.linalg_lstsq((solution, *[_WithoutRule()] * 3))


def _matrix_rank(input: Tensor, tol: Any = None, hermitian: bool = False, **tolerances: Any) -> Any:
    """torch's function as a count of values, which are read (`oracles/bound/laws/enclosures.py`).

    `tolerances`: `atol` and `rtol`, numbers or tensors, or None; without the second one torch has a share of its own.
    """
    if not tolerances.keys() <= {"atol", "rtol"} or (tol is not None and tolerances):  # torch raises.
        return torch.linalg.matrix_rank(input, *([] if tol is None else [tol]), hermitian=hermitian, **tolerances)
    numbers = (tolerances.get("atol"), tolerances.get("rtol")) if tol is None else (tol, 0.0)
    absolute, relative = (
        x if isinstance(x, Tensor) else torch.full((), x or 0.0, dtype=input.dtype.to_real(), device=input.device)
        for x in numbers
    )
    if numbers[1] is None:
        share = torch.finfo(input.dtype).eps * max(input.shape[-2:])
        relative = torch.where(absolute > 0, relative, share)
    values = torch.linalg.eigvalsh(input).abs() if hermitian else torch.linalg.svdvals(input)
    tolerance = torch.maximum(absolute, relative * values.amax(-1)) if values.shape[-1] else absolute
    return (values > tolerance[..., None]).sum(-1)


def _tolist(tensor: Tensor) -> Any:
    """The numbers of a tensor, each of which is read by an operation that can be traced."""
    return [_tolist(row) for row in tensor.unbind()] if tensor.ndim else tensor.item()


#: What is traced, by the function of torch that a spec calls.
STAND_INS: dict[Any, Callable[..., Any]] = {
    F.gaussian_nll_loss: _gaussian_nll_loss,
    F.affine_grid: _affine_grid,
    F.bilinear: _bilinear,
    **PRODUCTS,
    F.binary_cross_entropy_with_logits: _bce_with_logits,
    F.embedding: _embedding,
    F.one_hot: _one_hot,
    F.scaled_dot_product_attention: _attention,
    F.selu: lambda input, inplace=False: input.copy_(torch.selu(input)) if inplace else torch.selu(input),
    F.rrelu: _rrelu,
    torch.linalg.lstsq: _lstsq,
    torch.linalg.matrix_rank: _matrix_rank,
    torch.logdet: _logdet,
    Tensor.logdet: _logdet,
    torch.quantile: _quantile,
    Tensor.quantile: _quantile,
    Tensor.tolist: _tolist,
    torch.selu_: _write_result(torch.selu),
    torch.rrelu_: _write_result(torch.rrelu),
}


#: The custom functions whose forward is being traced, each within the one before it.
_IN_FORWARD: list[Any] = []


def is_in_forward() -> bool:
    """Whether a custom function's forward is being traced, where no mode says which results have derivatives."""
    return bool(_IN_FORWARD)


class _Context:
    """What the forward of a custom function may say to its backward, which is not traced."""

    materialize_grads = True

    def __init__(self, args: Sequence[Any]) -> None:
        self.needs_input_grad = tuple(isinstance(x, Tensor) and x.is_floating_point() for x in args)
        self.saved_tensors: tuple[Any, ...] = ()
        self.constant: tuple[Any, ...] = ()

    def save_for_backward(self, *saved: Any) -> None:
        self.saved_tensors = saved

    def mark_non_differentiable(self, *outputs: Any) -> None:
        self.constant = outputs

    def save_for_forward(self, *saved: Any) -> None:
        pass

    def mark_dirty(self, *tensors: Any) -> None:
        pass

    def set_materialize_grads(self, value: bool) -> None:
        pass


def _apply_function(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """The results of the forward of a custom function, in the old style or the new one."""
    context = _Context(args)
    _IN_FORWARD.append(cls)
    try:
        if cls.setup_context is _SingleLevelFunction.setup_context:
            results = cls.forward(context, *args, **kwargs)
        else:
            bound = inspect.signature(cls.forward).bind(*args, **kwargs)
            bound.apply_defaults()
            results = cls.forward(*bound.args, **bound.kwargs)
            cls.setup_context(context, bound.args, results)
    finally:
        _IN_FORWARD.pop()
    return pytree.tree_map(lambda y: y.detach() if any(y is each for each in context.constant) else y, results)


def _parameter(cls: Any, data: Any = None, requires_grad: bool = True) -> Any:
    """A parameter that a spec makes of a tensor: a tensor of its own, to which no derivative leads back."""
    parameter = torch.empty(0) if data is None else data.detach()
    parameter._is_param = True
    return parameter


class _Style:
    """The answer to torch's question whether a function is in the new style.

    The first answer is no, lest torch bind the arguments to `forward`, which in the old style takes a context before
    them. Later answers are yes, lest torch refuse the old style.
    """

    answer = False

    def __bool__(self) -> bool:
        answer, self.answer = self.answer, True
        return answer


def _omit_defaults(forward: Any, args: Any, kwargs: Any) -> Any:
    """Arguments as they are: `_apply_function` adds the defaults, by the signature, and not torch."""
    return args, kwargs or {}


def _of_either_style(context: Any, inputs: Any, output: Any) -> None:
    """In place of the `setup_context` that the old style inherits: torch from 2.14 on looks for that very function."""


#: What is replaced while a spec is traced: its owner, its name, and what stands in its place. torch up to 2.13 asks for
#: the style by `_is_setup_context_defined`, and has no `_bind_default_args`.
_OPENED: tuple[tuple[Any, str, Any], ...] = (
    (torch.nn.Parameter, "__new__", _parameter),
    (SCANS, "generic_associative_scan", scan_in_every_order),
    (torch.autograd.function, "_is_setup_context_defined", lambda setup_context: _Style()),
    (torch.autograd.function, "custom_function_call", _apply_function),
    (torch.autograd.function, "_bind_default_args", _omit_defaults),
    (_SingleLevelFunction, "setup_context", staticmethod(_of_either_style)),
)


class _First(torch.autograd.Function):
    """A function that is applied before anything is replaced, so that what torch stores at a first call is its own."""

    @staticmethod
    def forward(context: Any) -> None:
        pass


@contextlib.contextmanager
def open_custom_functions() -> Iterator[None]:
    """A context in which custom functions are traced as their forward, and parameters that a spec makes are tensors."""
    # A spec may hold bound methods of `apply`. So what `apply` calls under a transform is replaced, and not `apply`.
    _First.apply()  # type: ignore[no-untyped-call]
    before = [(owner, name, vars(owner)[name]) for owner, name, _ in _OPENED if name in vars(owner)]
    try:
        for owner, name, value in _OPENED:
            if name in vars(owner):
                setattr(owner, name, value)
        yield
    finally:
        for owner, name, value in before:
            setattr(owner, name, value)


@contextlib.contextmanager
def uncompiled(traced: bool = True) -> Iterator[None]:
    """A context in which functions that torch.compile made are called, or even `traced`, as their originals."""
    # Where nothing was compiled so far there is nothing to set, and the import of the compiler takes seconds.
    compiler = sys.modules.get("torch._dynamo")
    if compiler is None:
        yield
        return
    patch = compiler.config.patch(error_on_nested_fx_trace=False) if traced else contextlib.nullcontext()
    with torch.compiler.set_stance("force_eager"), patch:
        yield
