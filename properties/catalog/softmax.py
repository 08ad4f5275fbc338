"""Declarations of softmax, log_softmax and their backward ops."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch._refs
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op, Slices
from ...reference import softmax as formulas
from ...reference.formats import Format
from ..declaring import drawing, laws, refusals, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare
from ..declaring.signature import ArgumentsByName
from ..declaring.subjects import ours, with_aten, with_dim

Tensor = torch.Tensor
#: The least extent of `strategies.SIZE_BANDS` with more elements than are taken from a half type to float32 at a time.
PIECES = 2**17 + 1
#: Values of the argument `dtype` besides None, by the dtype of the input: the input's own, wider and narrower ones.
RESULTS = {
    "float64": ("float64", "float32"),
    "float32": ("float64", "float32", "bfloat16"),
    "bfloat16": ("float32", "bfloat16", "float16"),
    "float16": ("float32", "float16", "bfloat16"),
}


def _far_apart(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Differences far beyond where exp overflows and underflows, with ties among the largest."""
    size = 10.0 ** rng.uniform(2, 4)
    return np.round(rng.standard_normal(shape) * 2) * size


def _near_underflow(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Probabilities around the smallest ones that the format of the sums, or that of the result, can hold."""
    # exp(-745) is the smallest subnormal of float64, exp(-103) that of float32, in which half types are summed, and
    # exp(-17) that of float16.
    deepest = 750.0 if fmt.bits == 64 else rng.uniform(12.0, 110.0)
    return rng.uniform(-deepest, 0.0, shape)


def _masked(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Some elements absent, and now and then every element of a row."""
    values = np.where(rng.random(shape) < 0.3, -np.inf, rng.standard_normal(shape))
    if values.size and rng.random() < 0.2:
        values[int(rng.integers(shape[0]))] = -np.inf
    return values


LOGITS: dict[str, Any] = {
    **strategies.REGIMES,
    "far apart": _far_apart,
    "near underflow": _near_underflow,
    "one huge": strategies.outlier(4),
    "masked": _masked,
}
WEIGHTED = ("benign",) * 4 + ("far apart", "near underflow", "one huge", "masked") + tuple(LOGITS)
GRADIENTS = ("benign", "benign", "constant rows", "ties", "wide")


def _logits(rng: Any, regime: str, structure: ArgumentsByName, dtype: str) -> Tensor:
    """A tensor of rows of a regime in `LOGITS`, of the structure's shape; without axes, one element is drawn."""
    shape, dim = structure["shape"], structure["dim"]
    if not shape:
        values = np.asarray(rng.standard_normal(())) if regime != "integers" else np.asarray(3.0)
        return strategies.to_dtype(values, dtype).reshape(())
    rest = [n for i, n in enumerate(shape) if i != dim % len(shape)]
    rows = drawing.values(rng, regime, (math.prod(rest), shape[dim]), dtype, LOGITS)
    values = np.moveaxis(np.reshape(rows, (*rest, shape[dim])), -1, dim)
    # `to_dtype` clips to the finite range, so infinities are put back after it.
    absent = torch.from_numpy(np.ascontiguousarray(np.isneginf(values)))
    return strategies.to_dtype(values, dtype).masked_fill(absent, -math.inf)


@functools.cache
@st.composite
def _row_structures(draw: st.DrawFn, dtype: str, kind: str) -> dict[str, Any]:
    """The structure of a sample: shape, dim, regime, dtype. Rows may have length 1 or an odd one, and lie anywhere."""
    outer_rank = draw(strategies.axes_beside("axes of rows", 1, (1, 1, 0, 2)))
    scalar = kind == "ordinary" and draw(drawing.without_axes())
    outer, inner = draw(strategies.shapes(kind, 1, outer_rank))
    shape = () if scalar else (*outer, *inner)
    ndim = max(len(shape), 1)
    dim = draw(choose("dim", (-1, *drawing.all_dims(ndim))))
    row = shape[dim] if shape else 1
    to = draw(choose("dtype", (None,) * 6 + RESULTS[dtype]))
    return {
        "shape": shape,
        "dim": dim,
        "extents": {"row": row, "rows": math.prod(shape) // max(row, 1)},
        "regime": draw(drawing.regime(kind, WEIGHTED)),
        "dtype": to and getattr(torch, to),
    }


def _row_arguments(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
    logits = _logits(rng, structure["regime"], structure, dtype)
    return {"input": logits, "dim": structure["dim"], "dtype": structure["dtype"]}


@st.composite
def _gradient_structures(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
    structure, whole = draw(_row_structures(dtype, kind)), kind == "integers"
    # The input's dtype is that of the cotangent, or a half one where that is float32.
    to = draw(choose("input_dtype", (dtype, dtype, dtype, "float16"))) if dtype == "float32" else dtype
    gradients = "integers" if whole else draw(choose("regime of gradients", GRADIENTS))
    return structure | {"whole": whole, "input dtype": getattr(torch, to), "gradients": gradients}


def _outputs_of(op: Callable[..., Tensor]) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of a backward op: outputs of `op`, correctly rounded, of rows that have one."""

    def fill(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
        x, dim = _logits(rng, structure["regime"], structure, dtype), structure["dim"]
        # A row of nothing but -inf has no softmax; zeros take the place of its NaNs.
        output = x if structure["whole"] else op(x.double(), dim).nan_to_num(nan=0.0).to(x.dtype)
        grad = _logits(rng, structure["gradients"], structure, dtype)
        return {"grad_output": grad, "output": output, "dim": dim, "input_dtype": structure["input dtype"]}

    return drawing.samples_of(_gradient_structures, fill)


def _result(input: Tensor, dtype: torch.dtype | None) -> torch.dtype:
    return dtype or input.dtype


def _output_before_rounding(input: Tensor, dtype: torch.dtype | None) -> int:
    """Bytes of the output, unrounded where `dtype` is narrower than the computation, and of a zero for its shift."""
    result, wide = _result(input, dtype), drawing.wide_dtype(input)
    narrows = result is not input.dtype and torch.promote_types(wide, result) is not result
    saved_dtype = wide if narrows else result
    return int(input.numel() * saved_dtype.itemsize + (4 if saved_dtype.itemsize == 2 else 0))


def _rows_shifted(input: Tensor, rng: Any) -> ArgumentsByName | None:
    """x -> x + c for every row alike, where that addition is exact."""
    moved = laws.plus_exactly(input, 2.0 ** int(rng.integers(-2, 6)) * rng.choice([-1.0, 1.0]))
    return None if moved is None else {"input": moved}


def _has_rows(input: Tensor) -> bool:
    return input.numel() > 0 and input.ndim > 0


def _flipped(input: Tensor, dim: int) -> ArgumentsByName | None:
    """The elements of every row in another order."""
    return {"input": input.flip(dim)} if _has_rows(input) else None


def _batch_axis(tensor: Tensor, dim: int) -> int:
    # Any axis will do along which no row extends.
    return 0 if dim % tensor.ndim else 1


def _rolled(input: Tensor, dim: int) -> ArgumentsByName | None:
    """The batch in another order."""
    if input.ndim < 2 or not input.numel():
        return None
    return {"input": input.roll(1, _batch_axis(input, dim))}


def _roll(first: Any, *, dim: int) -> Any:
    return tuple(y.roll(1, _batch_axis(y, dim)) for y in first)


def _with_absent(input: Tensor, dim: int) -> tuple[ArgumentsByName, ArgumentsByName] | None:
    """One more column, of -inf, in the middle."""
    if not _has_rows(input):
        return None
    left, right = input.tensor_split([input.shape[dim] // 2], dim)
    absent = torch.full_like(input.narrow(dim, 0, 1), -math.inf)
    return {}, {"input": torch.cat([left, absent, right], dim)}


def _without_absent(first: Any, second: Any, *, input: Tensor, dim: int) -> tuple[Any, Any]:
    middle = input.shape[dim] // 2
    left, _, right = second[0].tensor_split([middle, middle + 1], dim)
    return (torch.cat([left, right], dim),), first


def _along_dim(dim: int) -> int:
    return dim


LAWS = (
    laws.pair("shift invariance", _rows_shifted),
    laws.law("a column of -inf is absent", _with_absent, _without_absent),
    laws.sums("gradient sums to zero", 0.0, _along_dim, when=_has_rows, word=("vjp",)),
    laws.pair("permutation within the rows", _flipped, lambda first, *, dim: tuple(y.flip(dim) for y in first)),
    laws.pair("permutation of the batch", _rolled, _roll),
)
SOFTMAX_LAWS = (
    *LAWS,
    laws.sums("sums to one", 1.0, _along_dim, when=_has_rows),
    laws.sums("tangent sums to zero", 0.0, _along_dim, when=_has_rows, word=("jvp",)),
)

REFUSALS = (
    refusals.not_a_tensor("input"),
    refusals.refusal("dim too large", lambda input: {"dim": max(input.ndim, 1)}, IndexError, "dim="),
    refusals.refusal("dim too small", lambda input: {"dim": -max(input.ndim, 1) - 1}, IndexError, "dim="),
    refusals.value("dim", 0.5, TypeError, "dim=0.5"),
    refusals.value("dim", False, TypeError, "dim=False"),
    refusals.integer("input", "input", "int64", dtype=None),
    refusals.refusal("integer result", lambda: {"dtype": torch.int64}, RuntimeError, "dtype=torch.int64"),
    refusals.value("dtype", "float32", TypeError, "dtype='float32'"),
)


def _wider_than(grad_output: Tensor) -> ArgumentsByName | None:
    """An input that holds numbers which its softmax did not; nothing is wider than float64."""
    wider = {torch.float32: torch.float64, torch.bfloat16: torch.float16, torch.float16: torch.float32}
    return {"input_dtype": wider[grad_output.dtype]} if grad_output.dtype in wider else None


BACKWARD_REFUSALS = (
    refusals.not_a_tensor("grad_output"),
    refusals.not_a_tensor("output"),
    refusals.shape("output", "output", "shape"),
    refusals.another_dtype("output", "output", "dtype"),
    refusals.integer("output", "output", "int64"),
    refusals.wrong("grad_output", "integer grad_output", lambda t: t.long(), NotImplementedError, "grad_output"),
    refusals.value("dim", 9, IndexError, "dim=9"),
    refusals.value("input_dtype", torch.int64, RuntimeError, "input_dtype=torch.int64"),
    refusals.refusal("wider input_dtype", _wider_than, RuntimeError, "input_dtype"),
    refusals.elsewhere("output", "device"),
    refusals.value("input_dtype", "float32", TypeError, "input_dtype='float32'"),
    refusals.value("dim", 0.5, TypeError, "dim=0.5"),
    refusals.value("dim", False, TypeError, "dim=False"),
)


def _rows_apart(arguments: tuple[str, ...], input: Tensor, dim: int, device: str) -> Slices | None:
    """Slices along the first dim, where that is not summed over."""
    # Across rows that lie side by side ATen's kernels on the CPU compute whole vectors in one way, and what is left in
    # another; there only rows along the last dim are promised.
    if input.ndim < 2 or dim in (0, -input.ndim) or (device == "cpu" and dim not in (-1, input.ndim - 1)):
        return None
    return Slices(dict.fromkeys(arguments, 0), (0,))


def _along_rows(
    formula: Callable[..., Any], of: tuple[laws.Relation, ...], module: str, example: Callable[[Any], Any]
) -> Op:
    name = formula.__name__
    return declare(
        formula,
        ours(formula, with_dim(module), torch=getattr(torch, name), decomposition=getattr(torch._refs, name)),
        samples=drawing.inexact(drawing.samples_of(_row_structures, _row_arguments)),
        differentiable=("input",),
        dtypes=lambda input, dtype: (_result(input, dtype),),
        invariant=lambda input, dim, device: _rows_apart(("input",), input, dim, device),
        saved=_output_before_rounding,
        documented=torch_documents.by(torch_documents.ROWS),
        contiguous=True,
        laws=of,
        refusals=REFUSALS,
        kernels=True,
        example=example,
        pieces=PIECES,
        steady=True,
    )


def _along_saved_rows(formula: Callable[..., Any], samples: Callable[..., Any]) -> Op:
    return declare(
        formula,
        with_aten(formula, f"_{formula.__name__}"),
        samples=samples,
        differentiable=("grad_output", "output"),
        dtypes=lambda input_dtype: (input_dtype,),
        invariant=lambda output, dim, device: _rows_apart(("grad_output", "output"), output, dim, device),
        order=1,
        contiguous=True,
        laws=(laws.linear("grad_output"),),
        refusals=BACKWARD_REFUSALS,
        documented=torch_documents.aten(torch_documents.BACKWARD),
        kernels=formula.__name__.removesuffix("_backward_data"),
        steady=True,
    )


OPS: tuple[Op, ...] = (
    _along_rows(formulas.softmax, SOFTMAX_LAWS, "Softmax", lambda x: impl.softmax(x, -1)),
    _along_rows(formulas.log_softmax, LAWS, "LogSoftmax", lambda x: impl.log_softmax(x, 1)),
    _along_saved_rows(formulas.softmax_backward_data, _outputs_of(torch.softmax)),
    _along_saved_rows(formulas.log_softmax_backward_data, drawing.inexact(_outputs_of(torch.log_softmax))),
)
