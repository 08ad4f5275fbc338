"""Declarations of batch_norm and of its forward counterparts by aten's names, and of sync_batch_norm."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st
from torch._decomp import decompositions

from .... import impl
from ....oracles.op.declaration import Draft, Op, Slices
from ....oracles.op.placement import Ranks
from ....oracles.verdicts.violation import Code, Unsupported
from ....reference.norms import batch_norm as formulas
from ... import worlds
from ...checks.ways.module_calls import ModuleCall
from ...declaring import choices, drawing, refusals, strategies, torch_documents
from ...declaring.choices import choose
from ...declaring.declare import declare
from ...declaring.drawing import bytes_of, wide_dtype
from ...declaring.signature import ArgumentsByName, Signature
from ...declaring.subjects import Module, ours, with_aten, without_missing
from ..over_places import run_on_ranks
from . import shared
from .batch_norm_laws import laws_of
from .over_ranks import promises_of

Tensor = torch.Tensor
MOMENTA = (0.1, 0.1, 0.1, 0.3, 0.0, 1.0)
RUNNING = ("running_mean", "running_var")
#: On CUDA shorter lines of positions, of so many samples, are taken side by side (`impl/norms/kernels_cuda`).
_SHORT, _MANY = 32, 64
#: The names under which parts of the structure are chosen, where the names differ.
_CHOICE = {"running": "running statistics"}


@functools.cache
@st.composite
def structures(draw: st.DrawFn, dtype: str, kind: str, eps: tuple[float, ...] = drawing.EPS) -> dict[str, Any]:
    """The structure of a sample: shapes, dtypes of parameters and running statistics (or None), regime, numbers."""
    # Five dims in all are the most that torch has a module of batch norm for.
    rank = draw(choose("axes of positions", (1, 1, 0, 2, 3)))
    (channels,), (n, *positions) = draw(strategies.shapes(kind, 1 + rank, 1))
    beside = drawing.dtypes_beside(dtype)
    of_parameters = draw(choose("dtype of parameters", beside))
    training = draw(choose("training", (True, True, False)))
    return {
        "n": n,
        "channels": channels,
        "positions": tuple(positions),
        "weight": draw(choose("weight", (of_parameters, of_parameters, None))),
        "bias": draw(choose("bias", (of_parameters, of_parameters, None))),
        # Evaluation needs running statistics; in training a quarter of the samples go without them.
        "running": draw(choose("running statistics", (*(beside * 3), *((None,) if training else ())))),
        "regime": draw(drawing.regime(kind)),
        "eps": draw(choose("eps", eps)),
        "momentum": draw(choose("momentum", MOMENTA)),
        "training": training,
        "extents": {"n": n, "channels": channels, "positions": math.prod(positions)},
    }


def filled(rng: Any, structure: ArgumentsByName, dtype: str) -> dict[str, Any]:
    """The arguments of a forward call by name. Every channel is one row of the regime."""
    channels, n, positions = structure["channels"], structure["n"], structure["positions"]
    rows = drawing.values(rng, structure["regime"], (channels, n * math.prod(positions)), dtype)
    x = strategies.to_dtype(np.moveaxis(np.reshape(rows, (channels, n, *positions)), 0, 1), dtype)
    named = {name: structure[name] for name in ("training", "momentum", "eps")}
    for name, centre in (("weight", 1.0), ("bias", 0.0)):
        named[name] = drawing.parameter(rng, (channels,), structure[name], centre)
    mean, var = rng.standard_normal(channels), np.square(rng.standard_normal(channels)) + 0.1
    # Half of the running statistics are near those of the data, as in a model that was trained; the others are not.
    if rng.random() < 0.5 and rows.size:
        with np.errstate(over="ignore"):
            mean, var = mean * 0.1 + rows.mean(1), var * 0.1 + np.nan_to_num(np.clip(rows.var(1), 0, 1e30))
    of_running = structure["running"]
    running = {"running_mean": mean, "running_var": var}
    statistics = {
        name: None if of_running is None else strategies.to_dtype(values, of_running)
        for name, values in running.items()
    }
    return {"input": x, **named, **statistics}


def _forward_samples(
    formula: Callable[..., Any], least: int = 0, needs: tuple[str, ...] = (), **fixed: Any
) -> Callable[..., st.SearchStrategy[Draft]]:
    """Strategy of samples for the signature of a formula, some parts of the structure fixed.

    Args:
        least: elements per channel in training; above 1, eps is positive there. needs: parameters that are never None.
    """
    signature = Signature(formula)

    @st.composite
    def adjusted(draw: st.DrawFn, dtype: str, kind: str) -> ArgumentsByName:
        structure = draw(structures(dtype, kind)) | fixed
        for name, value in fixed.items():
            choices.settle(_CHOICE.get(name, name), value, always=True)
        # One element per channel is refused in training: by torch's function always, there `least` is 2, and by the
        # ops of aten where there are running statistics, into which they would write its unbiased variance, NaN.
        if structure["training"] and structure["n"] * math.prod(structure["positions"]) == 1:
            updates = structure["running"] is not None or "running" in needs
            structure["n"] = max(least, 2 if updates else 1)
        # The same functions refuse an eps of zero in training, because the deviation of a constant channel is zero.
        if structure["training"] and least > 1:
            structure["eps"] = structure["eps"] or 1e-5
            choices.settle("eps", structure["eps"])
        for name in needs:
            structure[name] = structure[name] or dtype
            choices.settle(_CHOICE.get(name, name), structure[name], always=True)
        return structure

    return drawing.samples_of(adjusted, lambda rng, structure, dtype: signature.of_these(filled(rng, structure, dtype)))


def _outputs_and_running(own: int) -> Callable[..., Any]:
    """Dtypes of the outputs: out, `own - 1` saved statistics, and the running statistics that the call has."""

    def dtypes(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None) -> Any:
        running = [t.dtype for t in (running_mean, running_var) if t is not None]
        return (input.dtype, *[wide_dtype(input)] * (own - 1), *running)

    return dtypes


def _input_and_channel_statistics(
    input: Tensor, weight: Tensor | None, training: bool, wanted: set[str], running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
) -> int:  # fmt: skip
    """Bytes that a forward call keeps; `wanted` has the names of the arguments that need a gradient."""
    of_statistics = bytes_of(running_mean) + bytes_of(running_var)
    if training:
        of_statistics = shared.bytes_of_statistics(input, input.shape[1])
    return shared.saved(input, weight, of_statistics, wanted)


def _flat(input: Tensor, training: bool) -> ArgumentsByName | None:
    return {"input": input.reshape(-1)[: input.shape[1]]} if training else None


def _one_element(input: Tensor, training: bool) -> ArgumentsByName | None:
    one = (slice(1), slice(None), *[slice(1)] * (input.dim() - 2))
    return {"input": input[one]} if training else None


def _one_to_update(input: Tensor, training: bool, running_mean: Tensor | None) -> ArgumentsByName | None:
    return None if running_mean is None else _one_element(input, training)


def _refusals(signature: Signature, strict: bool) -> tuple[refusals.Mistake, ...]:
    """Mistakes in a forward call; `strict`: those in training, too, that torch's function refuses and aten's do not."""
    running: tuple[refusals.Mistake, ...] = ()
    if "running_mean" in signature:
        running = (
            refusals.missing("running_mean", when=lambda training: training, error=ValueError),
            refusals.missing("running_mean", when=lambda training: not training),
            refusals.refusal("one element per channel to update", _one_to_update, ValueError, "input", "shape"),
        )
    in_training = (
        refusals.refusal("one element per channel", _one_element, ValueError, "input", "shape"),
        refusals.refusal(
            "eps of zero in training", lambda training: {"eps": 0.0} if training else None, ValueError, "eps"
        ),
    )
    return (
        *(refusals.shape(name) for name in ("weight", "bias", *RUNNING) if name in signature),
        refusals.integer("input"),
        refusals.not_a_tensor("input"),
        *(refusals.not_a_tensor(name) for name in ("weight", "bias") if name in signature),
        *(refusals.value(name, "0.1", TypeError, name) for name in ("momentum", "eps") if name in signature),
        *(refusals.its_type(name, name) for name in ("momentum", "eps") if name in signature),
        refusals.refusal("input of one dim", _flat, IndexError, "input"),
        *running,
        *(in_training if strict else ()),
    )


def _channels_apart(own: int, device: str, **named: Any) -> Slices | None:
    """Every channel has statistics of its own; `own` outputs stand before the running statistics.

    None on CUDA where channels lie side by side in memory: Triton deals the elements of a tile out to threads by
    whether the number of channels is a multiple of 16, and with it the order of a channel's sums changes.

    Raises:
        Unsupported: on the CPU.
    """
    # On the CPU the kernel of a batch, and with it the order of a channel's sums, depends on the number of channels.
    if device == "cpu":
        raise Unsupported(Code.NOT_APPLICABLE, "batch norm promises nothing of single channels on the CPU")
    x = named["input"]
    positions = math.prod(x.shape[2:])
    side_by_side = not x.is_contiguous() or positions == 1 or (positions < _SHORT and x.shape[0] >= _MANY)
    if device and side_by_side:
        return None
    present = [name for name in (*RUNNING, "weight", "bias") if named.get(name) is not None]
    # In evaluation the statistics of the batch are not computed; they come out empty.
    statistics = 0 if named.get("training", True) else None
    running = tuple(0 for name in RUNNING if name in present)
    return Slices({"input": 1, **dict.fromkeys(present, 0)}, (1, *(statistics,) * (own - 1), *running))


def _op(
    formula: Callable[..., Any], subjects: Mapping[str, Callable[..., Any]], own: int = 3, strict: bool = False,
    ranks: Ranks | None = None, **samples: Any,
) -> Op:  # fmt: skip
    """The declaration of a forward op, which has `own` outputs before the running statistics.

    A strict one refuses what torch's function does; `samples` as for `_forward_samples`.
    """
    signature = Signature(formula)
    mistakes = _refusals(signature, strict)
    if "running" in samples.get("needs", ()):
        mistakes = tuple(mistake for mistake in mistakes if mistake.error is not ValueError or "update" in mistake.name)
    return declare(
        formula,
        subjects,
        samples=_forward_samples(formula, **samples),
        differentiable=shared.AFFINE,
        dtypes=_outputs_and_running(own),
        invariant=functools.partial(_channels_apart, own),
        saved=_input_and_channel_statistics,
        strides=shared.channels_kept_last,
        documented=torch_documents.of_op(torch_documents.PLAIN, "native" in formula.__name__),
        laws=laws_of(signature, own),
        refusals=mistakes,
        mutates=tuple(name for name in RUNNING if name in signature),
        kernels="" if formula is formulas.sync_batch_norm else "batch_norm",
        example=_example if formula is formulas.batch_norm else None,
        ranks=ranks,
        steady=True,
        refuses_expanded=True,
    )


def _module(synchronised: bool, source: Any) -> Callable[..., ModuleCall]:
    def build(
        x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
        bias: Tensor | None = None, training: bool = False, momentum: float | None = 0.1, eps: float = 1e-5,
        comm: Any = None,
    ) -> ModuleCall:  # fmt: skip
        kinds = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}
        if x.ndim not in kinds and not synchronised:
            raise Unsupported(Code.NOT_APPLICABLE, f"there is no module of batch norm for {x.ndim} dims")
        make = getattr(source, "SyncBatchNorm" if synchronised else kinds[x.ndim])
        module = make(x.shape[1], eps, momentum, track_running_stats=running_mean is not None)
        state = {"weight": weight, "bias": bias}
        running = {"running_mean": running_mean, "running_var": running_var}
        return ModuleCall(without_missing(module.train(training), state), state | running, (x,))

    return build


def _example(x: Tensor) -> Tensor:
    statistics = x.detach().new_zeros(x.shape[1]), x.detach().new_ones(x.shape[1])
    return impl.batch_norm(x, *statistics, training=True)


_MODULE = Module("BatchNorm1d", functools.partial(_module, False))
_SYNCHRONISED = Module("SyncBatchNorm", functools.partial(_module, True))
_legit = torch.ops.aten._native_batch_norm_legit
_decomposed: Any = decompositions
_synchronised: Any = impl.sync_batch_norm


def _on_a_rank(comm: Any, *args: Any) -> Any:
    *others, _ = args
    return _synchronised(*others, comm=comm)


#: torch has cudnn_batch_norm and miopen_batch_norm on no CPU: they have no subject but the production op here.
OPS: tuple[Op, ...] = (
    _op(
        formulas.batch_norm,
        ours(formulas.batch_norm, _MODULE, torch=torch.nn.functional.batch_norm),
        1,
        strict=True,
        least=2,
    ),
    _op(formulas.native_batch_norm, with_aten(formulas.native_batch_norm)),
    _op(
        formulas.native_batch_norm_legit,
        with_aten(formulas.native_batch_norm_legit, "_native_batch_norm_legit"),
        needs=("running",),
    ),
    _op(
        formulas.native_batch_norm_legit_no_stats,
        ours(
            formulas.native_batch_norm_legit_no_stats,
            torch=_legit.no_stats,
            decomposition=_decomposed._native_batch_norm_legit_no_stats,
        ),
        training=True,
        running=None,
    ),
    _op(formulas.cudnn_batch_norm, ours(formulas.cudnn_batch_norm), needs=("weight",)),
    _op(formulas.miopen_batch_norm, ours(formulas.miopen_batch_norm), needs=("weight",)),
    _op(
        formulas.sync_batch_norm,
        ours(formulas.sync_batch_norm, _SYNCHRONISED),
        1,
        strict=True,
        ranks=Ranks(run_on_ranks, _on_a_rank, worlds.size, promises=functools.partial(promises_of, _synchronised)),
        least=2,
    ),
)
