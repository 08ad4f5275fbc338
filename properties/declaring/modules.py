"""Modules as subjects: how a module is built of the arguments of a call of its op.

What an op's arguments may be and the constructor
of a module has no parameter for, a bias without a weight, say, the module is given after it was made.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ... import impl
from ...oracles.op.declaration import Subject
from ...oracles.verdicts.verdict import Code
from ...oracles.verdicts.violation import Unsupported
from ..checks.ways.module_calls import Built, ModuleSubject

Tensor = torch.Tensor
Optional = Tensor | None


def module_subjects(op: str) -> dict[str, Subject]:
    """The modules of an op: "module", that of `torch.nn`, and "own_module", the production one; there may be none."""
    found: dict[str, Subject] = {}
    if op in _BUILDERS:
        found["module"] = ModuleSubject(_BUILDERS[op](torch.nn))
    if op in _OWN:
        found["own_module"] = ModuleSubject(_BUILDERS[op](impl))
    return found


def _remove_parameters(module: torch.nn.Module, parameters: dict[str, Optional]) -> torch.nn.Module:
    """The module without the parameters that are None."""
    for name, value in parameters.items():
        if value is None:
            module.register_parameter(name, None)
    return module


def _layer_norm(source: Any) -> Callable[..., Built]:
    def build(
        x: Tensor, shape: Sequence[int], weight: Optional = None, bias: Optional = None, eps: float = 1e-5
    ) -> Built:
        state = {"weight": weight, "bias": bias}
        return Built(_remove_parameters(source.LayerNorm(shape, eps), state), state, (x,))

    return build


def _group_norm(source: Any) -> Callable[..., Built]:
    def build(x: Tensor, groups: int, weight: Optional = None, bias: Optional = None, eps: float = 1e-5) -> Built:
        state = {"weight": weight, "bias": bias}
        return Built(_remove_parameters(source.GroupNorm(groups, x.shape[1], eps), state), state, (x,))

    return build


def _batch_norm_module(source: Any, synchronised: bool = False) -> Callable[..., Built]:
    def build(
        x: Tensor, running_mean: Optional, running_var: Optional, weight: Optional = None, bias: Optional = None,
        training: bool = False, momentum: float | None = 0.1, eps: float = 1e-5, comm: Any = None,
    ) -> Built:  # fmt: skip
        kinds = {2: "BatchNorm1d", 3: "BatchNorm1d", 4: "BatchNorm2d", 5: "BatchNorm3d"}
        if x.ndim not in kinds and not synchronised:
            raise Unsupported(Code.NOT_APPLICABLE, f"there is no module of batch norm for {x.ndim} dims")
        make = getattr(source, "SyncBatchNorm" if synchronised else kinds[x.ndim])
        module = make(x.shape[1], eps, momentum, track_running_stats=running_mean is not None)
        state = {"weight": weight, "bias": bias}
        running = {"running_mean": running_mean, "running_var": running_var}
        return Built(_remove_parameters(module.train(training), state), state | running, (x,))

    return build


def _with_dim(name: str) -> Callable[[Any], Callable[..., Built]]:
    def of(source: Any) -> Callable[..., Built]:
        def build(x: Tensor, dim: int, dtype: Any = None) -> Built:
            # The module has no dtype: its user converts the input to a wider one, and the output to a narrower one.
            wider = dtype is not None and dtype.itemsize > x.element_size()
            return Built(getattr(source, name)(dim), {}, (x.to(dtype) if wider else x,), dtype)

        return build

    return of


def _loss(name: str) -> Callable[[Any], Callable[..., Built]]:
    def of(source: Any) -> Callable[..., Built]:
        def build(x: Tensor, target: Tensor, weight: Optional = None, ignore_index: int = -100,
                  reduction: str = "mean", **more: float) -> Built:  # fmt: skip
            module = getattr(source, name)(weight, ignore_index=ignore_index, reduction=reduction, **more)
            return Built(module, {"weight": weight}, (x, target))

        if name == "NLLLoss":
            return build
        return lambda *args, label_smoothing=0.0: build(*args[:5], label_smoothing=(*args[5:], label_smoothing)[0])

    return of


def _response_norm(source: Any) -> Callable[..., Built]:
    # The window of torch.nn.CrossMapLRN2d is one channel off where the size is even; LocalResponseNorm's is not.
    make = torch.nn.LocalResponseNorm if source is torch.nn else source.CrossMapLRN2d
    return lambda x, size, alpha=1e-4, beta=0.75, k=1: Built(make(size, alpha, beta, k), {}, (x,))


_BUILDERS: dict[str, Callable[[Any], Callable[..., Built]]] = {
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm_module,
    "sync_batch_norm": lambda source: _batch_norm_module(source, synchronised=True),
    "softmax": _with_dim("Softmax"),
    "log_softmax": _with_dim("LogSoftmax"),
    "log_sigmoid": lambda source: lambda x: Built(source.LogSigmoid(), {}, (x,)),
    "nll_loss": _loss("NLLLoss"),
    "cross_entropy": _loss("CrossEntropyLoss"),
    "cross_map_lrn2d": _response_norm,
}
#: Ops that have a production module.
_OWN = frozenset({"layer_norm", "group_norm", "batch_norm", "sync_batch_norm", "cross_map_lrn2d"})
