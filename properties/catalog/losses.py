"""Declarations of the negative log likelihood, its aten forms, and cross entropy."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch._refs.nn.functional as refs
from hypothesis import strategies as st

from ... import impl
from ...oracles.op.declaration import Draft, Op, Slices
from ...oracles.verdicts.violation import Code, Unsupported
from ...reference import losses as formulas
from ..checks.ways.module_calls import ModuleCall
from ..declaring import drawing, laws, refusals, strategies, torch_documents
from ..declaring.choices import choose
from ..declaring.declare import declare
from ..declaring.drawing import bytes_of, wide_dtype
from ..declaring.signature import ArgumentsByName
from ..declaring.subjects import Module, ours
from .losses_laws import (
    FEWER_POSITIONS,
    NO_CLASSES,
    OF_A_GRADIENT,
    TARGET_WITH_A_DIM,
    UNKNOWN_REDUCTION,
    Reductions,
    refusals_of,
    total_weight,
)

Tensor = torch.Tensor
BY_NAME = Reductions("none", "mean", "sum")
NUMBERED = Reductions(formulas.NONE, formulas.MEAN, formulas.SUM)
#: The least extent of `strategies.SIZE_BANDS` with more elements than cross entropy takes to float32 at a time.
PIECES = 2**20 + 1
#: Dims of the input: of rows and grids alike, of rows, and of images.
ANY, ROWS, IMAGES = (2, 2, 1, 3, 4, 5, 6), (2, 2, 1), (4,)
#: Kinds of class weights; None twice: the usual call.
WEIGHTS = (None, None, "positive", "positive", "some zero", "any sign", "all zero")


@functools.cache
@st.composite
def _class_structures(draw: st.DrawFn, dtype: str, kind: str, ranks: tuple[int, ...]) -> dict[str, Any]:
    """The structure of every sample: the input's shape (C,) or (N, C, ...), targets, weight, reduction."""
    rank = draw(choose("dims of input", ranks))
    limit = strategies.LARGEST if kind == "large" else strategies.ORDINARY
    classes, *others = draw(strategies.extents(kind, rank, limit))
    shape = (others[0], classes, *others[1:]) if others else (classes,)
    weights = (None, "integers") if kind == "integers" else (None, None, *WEIGHTS[:-1]) if kind == "large" else WEIGHTS
    weight = draw(choose("weight", weights))
    # A mean over no target, or over weights of zero, is NaN. It is judged at ordinary sizes, because a large sample of
    # nothing but NaN would say nothing about sizes.
    telling = kind == "large"
    some = telling and classes == 1
    ignores = ("outside", "below", "far") if some else ("outside", "outside", "inside", "below", "far", "above")
    structure = {
        "shape": shape,
        "classes": classes,
        "weight": weight,
        "weight dtype": draw(choose("dtype of weight", drawing.dtypes_beside(dtype))),
        "regime": draw(drawing.regime(kind)),
        # Of a large sample the last class is a target, because the gradient is zero at all classes that are none.
        "last class": telling,
        "target": draw(choose("dtype of target", ("int64", "int64", "uint8"))) if 0 < classes < 256 else "int64",
        "ignore": draw(choose("ignore_index", ignores)),
        "ignored": draw(choose("share ignored", (0.0, 0.3, 0.0, 0.9, *(() if telling else (1.0,))))),
        # One sum of many losses hides what a few of them are.
        "reduction": draw(choose("reduction", ("none",) * 2 * telling + ("mean", "mean", "sum", "none"))),
    }
    return structure | {"extents": _extents(structure, others, max(ranks) > 2)}


def _extents(structure: ArgumentsByName, others: Sequence[int], grids: bool) -> dict[str, int]:
    """`Draft.extents`. The targets that a mean counts are an axis of their own, so that there are samples of many."""
    counted = structure["reduction"] == "mean" and structure["weight"] is None and structure["ignore"] != "inside"
    if counted and structure["ignored"] < 0.5:
        return {"classes": structure["classes"], "targets of a mean": math.prod(others)}
    positions = {"positions": math.prod(others[1:])} if grids else {}
    return {"classes": structure["classes"], "batch": math.prod(others[:1]), **positions}


def _ignore_index(structure: ArgumentsByName) -> int:
    """The integer that is ignored: a class or another number; one of the target's dtype if targets are to hold it."""
    classes: int = structure["classes"]
    if structure["target"] == "uint8":
        return {"inside": max(classes - 1, 0), "above": 255}.get(structure["ignore"], -100)
    choices = {"outside": -100, "inside": classes // 2, "below": -1, "far": -(2**40), "above": classes + 7}
    index: int = choices[structure["ignore"]]
    return index


def _target(rng: Any, structure: ArgumentsByName) -> torch.Tensor:
    """Class indices, some of them ignored; all of them are where there is no class."""
    shape, classes, ignored = structure["shape"], structure["classes"], structure["ignored"]
    of = shape[:1] + shape[2:] if len(shape) > 1 else ()
    index = rng.integers(0, max(classes, 1), of)
    # uint8 holds no negative number, so a negative ignore_index can be among such targets nowhere.
    can_hold = structure["target"] == "int64" or _ignore_index(structure) >= 0
    if can_hold:
        index = np.where(rng.random(of) < (ignored if classes else 1.0), _ignore_index(structure), index)
    # This comes last, so that the last class is a target even if its place was ignored.
    if structure["last class"] and index.size:
        index.flat[-1] = classes - 1
    return torch.from_numpy(np.asarray(index)).to(getattr(torch, structure["target"]))


def _scores(rng: Any, structure: ArgumentsByName, dtype: str) -> torch.Tensor:
    """The input; classes are the row that a regime fills."""
    shape, classes = structure["shape"], structure["classes"]
    table = (math.prod(shape) // max(classes, 1), classes)
    values = drawing.values(rng, structure["regime"], table, dtype)
    if len(shape) > 1:
        values = np.moveaxis(np.reshape(values, (shape[0], *shape[2:], classes)), -1, 1)
    return strategies.to_dtype(np.reshape(values, shape), dtype)


def _class_weights(rng: Any, structure: ArgumentsByName) -> torch.Tensor | None:
    """One weight per class, or None."""
    kind, classes = structure["weight"], structure["classes"]
    if kind is None:
        return None
    draws: dict[str, Callable[[], Any]] = {
        "positive": lambda: rng.uniform(0.1, 2.0, classes),
        "some zero": lambda: rng.uniform(0.1, 2.0, classes) * rng.integers(0, 2, classes),
        "any sign": lambda: rng.standard_normal(classes),
        "all zero": lambda: np.zeros(classes),
        "integers": lambda: rng.integers(-2, 4, classes).astype(np.float64),
    }
    return strategies.to_dtype(draws[kind](), structure["weight dtype"])


def _arguments(rng: Any, structure: ArgumentsByName, dtype: str, names: Reductions) -> dict[str, Any]:
    """The arguments of the losses, by name."""
    return {
        "input": _scores(rng, structure, dtype),
        "target": _target(rng, structure),
        "weight": _class_weights(rng, structure),
        "ignore_index": _ignore_index(structure),
        "reduction": getattr(names, structure["reduction"]),
    }


def _loss_samples(names: Reductions, ranks: tuple[int, ...], **numbers: tuple[float, ...]) -> Callable[..., Any]:
    """Samples of a loss: `names` of its reductions, `ranks` of its input, and values of its other arguments."""

    @st.composite
    def structures(draw: st.DrawFn, dtype: str, kind: str) -> dict[str, Any]:
        structure = draw(_class_structures(dtype, kind, ranks))
        return structure | {"numbers": {name: draw(choose(name, values)) for name, values in numbers.items()}}

    return drawing.samples_of(
        structures, lambda rng, structure, dtype: _arguments(rng, structure, dtype, names) | structure["numbers"]
    )


def _gradient_samples(ranks: tuple[int, ...]) -> Callable[..., st.SearchStrategy[Draft]]:
    """Samples of a backward op, whose total weight is an argument and may be any.

    Where it is 0, rows and columns of the jacobian differ (0 / 0 against 0): that edge is judged in the losses
    themselves.
    """

    @st.composite
    def structures(draw: st.DrawFn, dtype: str, kind: str) -> dict[str, Any]:
        structure = draw(_class_structures(dtype, kind, ranks))
        total = draw(choose("dtype of total_weight", drawing.dtypes_beside(dtype)))
        return structure | {"kind": kind, "total dtype": total}

    def fill(rng: Any, structure: ArgumentsByName, dtype: str) -> ArgumentsByName:
        arguments = _arguments(rng, structure, dtype, NUMBERED)
        target = arguments["target"]
        # Where no weight is left, a number is drawn in its place, because a total of zero is judged in the losses.
        weights = total_weight(target, arguments["weight"], arguments["ignore_index"])
        number = np.asarray(weights or rng.uniform(0.5, 2.0))
        total = strategies.to_dtype(number, structure["total dtype"]).reshape(())
        shape = target.shape if arguments["reduction"] == NUMBERED.none else ()
        grad = drawing.cotangent(rng, shape, dtype, structure["kind"])
        return arguments | {"grad_output": grad, "total_weight": total}

    return drawing.samples_of(structures, fill)


def _weight_bytes(weight: Tensor | None) -> int:
    """Bytes of a saved weight, which is float32 for the half types."""
    return 0 if weight is None else weight.numel() * wide_dtype(weight).itemsize


def _target_and_weights(input: Tensor, target: Tensor, weight: Tensor | None, wanted: set[str]) -> int:
    """Target, weight and total weight; the input only where the weight needs a gradient."""
    own = bytes_of(input) if "weight" in wanted else 0
    return bytes_of(target) + _weight_bytes(weight) + wide_dtype(input).itemsize + own


def _saved_of_logits(input: Tensor, target: Tensor, weight: Tensor | None) -> int:
    """Input, target, weight and total weight: probabilities are computed again."""
    return bytes_of(input) + bytes_of(target) + _weight_bytes(weight) + wide_dtype(input).itemsize


def _saved_backward(grad_output: Tensor, input: Tensor, target: Tensor, weight: Tensor | None, wanted: set[str]) -> int:
    """Bytes of target, weight and two numbers; of the cotangent, where the weight or their total needs a gradient."""
    own = grad_output.numel() if wanted & {"weight", "total_weight"} else 0
    return bytes_of(target) + _weight_bytes(weight) + (own + 2) * wide_dtype(input).itemsize


def _all_logits_shifted(input: Tensor, rng: Any) -> ArgumentsByName | None:
    """x -> x + k, where that is exact."""
    moved = laws.plus_exactly(input, float(rng.integers(-4, 5)) / 4)
    return None if moved is None else {"input": moved}


def _smoothed() -> tuple[ArgumentsByName, ...]:
    return {}, {"label_smoothing": 0.0}, {"label_smoothing": 1.0}


def _mixed(some: Any, none: Any, full: Any, *, label_smoothing: float) -> tuple[Any, Any]:
    return some, (none[0] * (1.0 - label_smoothing) + full[0] * label_smoothing,)


def _torch_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    """torch.nn.functional.nll_loss, whose deprecated parameters come between those that count."""
    return torch.nn.functional.nll_loss(input, target, weight, ignore_index=ignore_index, reduction=reduction)


def _refs_nll_loss(input: Any, target: Any, weight: Any, ignore_index: int, reduction: str) -> Any:
    """torch._refs.nn.functional.nll_loss, without its deprecated parameters."""
    return refs.nll_loss(input, target, weight, None, ignore_index, None, reduction)


def _torch_cross_entropy(
    input: Any, target: Any, weight: Any, ignore_index: int, reduction: str, label_smoothing: float = 0.0
) -> Any:
    """torch.nn.functional.cross_entropy, without its deprecated parameters."""
    return torch.nn.functional.cross_entropy(
        input, target, weight, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


def _losses_apart(input: Tensor) -> Slices | None:
    """Each sample has a loss of its own where nothing is summed."""
    return Slices({"input": 0, "target": 0}, (0,), required={"reduction": "none"}) if input.ndim > 1 else None


def _logits_apart(input: Tensor, device: str) -> Slices | None:
    """As `_losses_apart`, but on no CPU.

    Raises:
        Unsupported: on the CPU.
    """
    if device == "cpu":
        reason = "on the CPU, how the log-softmax of cross entropy is computed depends on the number of rows"
        raise Unsupported(Code.NOT_APPLICABLE, reason)
    return _losses_apart(input)


def _aten_op(name: str, ranks: tuple[int, ...]) -> Op:
    """The declaration of an op by aten's name."""
    theirs = getattr(torch.ops.aten, name).default
    backward = name.endswith("backward")
    of_direction: dict[str, Any] = {
        "samples": _loss_samples(NUMBERED, ranks),
        "differentiable": ("self", "weight"),
        "dtypes": lambda input: (input.dtype, wide_dtype(input)),
        "saved": _target_and_weights,
        "documented": torch_documents.aten(torch_documents.LOSS_FORWARD),
        "laws": NUMBERED.laws(True),
    }
    if backward:
        of_direction = {
            "samples": _gradient_samples(ranks),
            "differentiable": ("grad_output", "self", "weight", "total_weight"),
            "dtypes": lambda input: (input.dtype,),
            "saved": _saved_backward,
            "documented": torch_documents.aten(torch_documents.LOSS_BACKWARD),
            "order": 1,
        }
    return declare(
        getattr(formulas, name),
        {"opassay": getattr(impl, name), "torch": theirs, "decomposition": torch._decomp.decomposition_table[theirs]},
        refusals=(*refusals_of(RuntimeError), refusals.not_an_int("reduction"), *(OF_A_GRADIENT if backward else ())),
        kernels="nll_loss",
        **of_direction,
        steady=True,
    )


def _module(name: str) -> Module:
    """The class `NLLLoss` or `CrossEntropyLoss` as a subject: a module is built of the arguments of a call."""

    def of(source: Any) -> Callable[..., ModuleCall]:
        def build(x: Tensor, target: Tensor, weight: Tensor | None = None, ignore_index: int = -100,
                  reduction: str = "mean", **more: float) -> ModuleCall:  # fmt: skip
            module = getattr(source, name)(weight, ignore_index=ignore_index, reduction=reduction, **more)
            return ModuleCall(module, {"weight": weight}, (x, target))

        if name == "NLLLoss":
            return build
        # The formula also takes label_smoothing by position, as its sixth argument.
        return lambda *args, label_smoothing=0.0: build(*args[:5], label_smoothing=(*args[5:], label_smoothing)[0])

    return Module(name, of)


OPS: tuple[Op, ...] = (
    declare(
        formulas.nll_loss,
        ours(formulas.nll_loss, _module("NLLLoss"), torch=_torch_nll_loss, decomposition=_refs_nll_loss),
        samples=_loss_samples(BY_NAME, ANY),
        differentiable=("input", "weight"),
        dtypes=lambda input: (input.dtype,),
        documented=torch_documents.by(torch_documents.LOSS),
        invariant=_losses_apart,
        saved=_target_and_weights,
        laws=(*BY_NAME.laws(True), TARGET_WITH_A_DIM),
        refusals=(*refusals_of(ValueError), UNKNOWN_REDUCTION, NO_CLASSES, FEWER_POSITIONS),
        kernels=True,
        example=lambda x: impl.nll_loss(x.flatten(1), torch.arange(len(x), device=x.device)),
        steady=True,
    ),
    declare(
        formulas.cross_entropy,
        ours(formulas.cross_entropy, _module("CrossEntropyLoss"), torch=_torch_cross_entropy),
        samples=_loss_samples(BY_NAME, ANY, label_smoothing=(0.0, 0.0, 0.1, 0.5, 1.0)),
        differentiable=("input", "weight"),
        dtypes=lambda input: (input.dtype,),
        documented=torch_documents.by(torch_documents.LOSS),
        invariant=_logits_apart,
        saved=_saved_of_logits,
        laws=(
            *BY_NAME.laws(False),
            laws.pair("shift of all logits", _all_logits_shifted),
            laws.law("linear in label_smoothing", _smoothed, _mixed),
        ),
        refusals=(
            *refusals_of(ValueError),
            UNKNOWN_REDUCTION,
            NO_CLASSES,
            FEWER_POSITIONS,
            refusals.value("label_smoothing", 1.5, RuntimeError),
        ),
        kernels=True,
        example=lambda x: impl.cross_entropy(x.flatten(1), torch.arange(len(x), device=x.device)),
        steady=True,
        pieces=PIECES,
    ),
    *(
        _aten_op(f"{stem}_{direction}", ranks)
        for stem, ranks in (("nll_loss", ROWS), ("nll_loss2d", IMAGES))
        for direction in ("forward", "backward")
    ),
)
