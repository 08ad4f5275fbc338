"""Declarations of log_sigmoid, log_sigmoid_forward and log_sigmoid_backward."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import torch
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op, Slices
from ...reference import activations as formulas
from ...reference.formats import Format
from ..checks.ways.module_calls import ModuleCall
from ..declaring import drawing, laws, refusals, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare
from ..declaring.signature import ArgumentsByName
from ..declaring.subjects import Module, ours, with_aten

Tensor = torch.Tensor


def _both_tails(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Numbers up to where exp(−|x|) underflows in the format of the sums, and beyond."""
    return rng.uniform(-1.0, 1.0, shape) * (760.0 if fmt.bits == 64 else 110.0)


def _near_zero(rng: Any, shape: tuple[int, ...], fmt: Format) -> Any:
    """Numbers near zero, where the branches meet, and zero itself."""
    return rng.integers(-2, 3, shape) * 2.0 ** rng.uniform(-30, 1, shape)


VALUES: dict[str, Any] = {**strategies.REGIMES, "both tails": _both_tails, "near zero": _near_zero}
WEIGHTED = ("benign",) * 3 + ("both tails", "near zero") * 2 + tuple(VALUES)
GRADIENTS = ("benign", "benign", "ties", "wide")


def _of_one_shape(fill: Callable[[Callable[[str], Tensor], str, str], ArgumentsByName]) -> Callable[..., Any]:
    """Samples of one shape, of 0 to 3 dims; `fill` makes them of (tensor of a regime, regime, that of gradients)."""

    @st.composite
    def samples(draw: st.DrawFn, dtype: str, kind: str) -> Draft:
        outer, inner = draw(strategies.shapes(kind, 1, draw(strategies.axes_beside("axes of rows", 1, (1, 0, 2)))))
        shape = () if kind == "ordinary" and draw(drawing.without_axes()) else (*outer, *inner)
        regime = draw(drawing.regime(kind, WEIGHTED))
        gradients = draw(choose("regime of gradients", GRADIENTS))

        def filled(rng: Any) -> ArgumentsByName:
            return fill(lambda name: drawing.rows(rng, name, shape, dtype, known=VALUES), regime, gradients)

        return Draft(filled, regime, strategies.rows_and_row(outer, inner))

    return drawing.inexact(samples)


def _with_cotangent(tensor: Callable[[str], Tensor], regime: str, gradients: str) -> ArgumentsByName:
    """The arguments of the backward op. The buffer is that of torch's CPU op, so that torch's op can be judged, too."""
    grad, x = tensor(gradients), tensor(regime)
    return {"grad_output": grad, "input": x, "buffer": x.double().abs().neg().exp().to(x.dtype)}


def _input_and_decay(input: Tensor) -> int:
    """Bytes of the input, and of exp(−|x|) where that is not rounded to a half format."""
    return drawing.bytes_of(input) * (1 if input.dtype.itemsize == 2 else 2)


def _operands_that_gradients_read(grad_output: Tensor, input: Tensor, wanted: Collection[str]) -> int:
    """Bytes of the input; of the cotangent, too, where the input needs a gradient."""
    return drawing.bytes_of(input) + (drawing.bytes_of(grad_output) if "input" in wanted else 0)


def _difference(one: Any, other: Any, *, input: Tensor) -> tuple[Any, Any]:
    """log s(x) − log s(−x) = x."""
    return (one[0] - other[0],), (input.to(one[0].dtype),)


def _slopes(one: Any, other: Any, *, grad_output: Tensor) -> tuple[Any, Any]:
    """The slopes at x and −x, for equal cotangents g, add up to 1: s(x) g + s(−x) g = g."""
    return (one[0] + other[0],), (grad_output.to(one[0].dtype),)


def _at_both(input: Tensor) -> tuple[ArgumentsByName, ArgumentsByName]:
    return {}, {"input": -input}


def _flipped(input: Tensor) -> ArgumentsByName | None:
    return {"input": input.flip(0)} if input.ndim else None


LAWS = (
    laws.law("log_sigmoid(x) - log_sigmoid(-x) = x", _at_both, _difference),
    laws.pair("permutation", _flipped, lambda first: (first[0].flip(0), *first[1:]), exact=True),
)


def _integers(grad_output: Tensor, input: Tensor) -> ArgumentsByName:
    return {"grad_output": torch.zeros_like(grad_output, dtype=torch.int64), "input": torch.zeros_like(input).long()}


REFUSALS = (refusals.integer("input", "input", "int64"), refusals.not_a_tensor("input"))
BACKWARD_REFUSALS = (
    refusals.not_a_tensor("grad_output"),
    refusals.not_a_tensor("input"),
    refusals.not_a_tensor("buffer"),
    refusals.shape("grad_output", "grad_output", "shape"),
    refusals.integer("input", "int64"),
    # Of one dtype, so that it is the dtype alone that is wrong.
    refusals.refusal("integers", _integers, RuntimeError, "input", "int64"),
)


def _elements_apart(input: Tensor, arguments: tuple[str, ...], outputs: tuple[int | None, ...]) -> Slices | None:
    return Slices(dict.fromkeys(arguments, 0), outputs) if input.ndim else None


def _without_buffer(input: Tensor) -> tuple[Tensor, Tensor]:
    """aten's log_sigmoid_forward, and none of its buffer, of which nothing is documented: on the CPU it is full."""
    out, buffer = torch.ops.aten.log_sigmoid_forward.default(input)
    return out, buffer.reshape(-1)[:0]


def _declaration(formula: Callable[..., Any], subjects: ArgumentsByName, outputs: int, **more: Any) -> Op:
    return declare(
        formula,
        subjects,
        samples=_of_one_shape(lambda tensor, regime, gradients: {"input": tensor(regime)}),
        differentiable=("input",),
        dtypes=lambda input: (input.dtype,) * outputs,
        # The buffer of the forward op is empty, so it has no slices.
        invariant=lambda input: _elements_apart(input, ("input",), (0, None)[:outputs]),
        saved=_input_and_decay,
        documented=torch_documents.of_op(torch_documents.PLAIN, outputs > 1),
        contiguous=True,
        laws=LAWS,
        refusals=REFUSALS,
        kernels="log_sigmoid",
        **more,
    )


_MODULE = Module("LogSigmoid", lambda source: lambda x: ModuleCall(source.LogSigmoid(), {}, (x,)))

OPS: tuple[Op, ...] = (
    _declaration(
        formulas.log_sigmoid,
        ours(formulas.log_sigmoid, _MODULE, torch=torch.nn.functional.logsigmoid),
        1,
        example=impl.log_sigmoid,
    ),
    _declaration(formulas.log_sigmoid_forward, with_aten(formulas.log_sigmoid_forward) | {"torch": _without_buffer}, 2),
    declare(
        formulas.log_sigmoid_backward,
        with_aten(formulas.log_sigmoid_backward),
        samples=_of_one_shape(_with_cotangent),
        differentiable=("grad_output", "input"),
        dtypes=lambda input: (input.dtype,),
        invariant=lambda input: _elements_apart(input, ("grad_output", "input"), (0,)),
        order=1,
        saved=_operands_that_gradients_read,
        contiguous=True,
        documented=torch_documents.aten(torch_documents.BACKWARD),
        laws=(laws.law("slopes at x and -x add up to 1", _at_both, _slopes),),
        refusals=BACKWARD_REFUSALS,
        kernels="log_sigmoid",
    ),
)
