"""Torch's own functions that move tensors, where there is what they need: GPUs, or process groups."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as distributed
from torch.nn.parallel import _functions as parallel

from ....impl.comm import TorchComm
from ....oracles.verdicts.violation import Code, Unsupported


@dataclass(frozen=True)
class OnGpus:
    """A class of torch.nn.parallel, which takes tensors of GPUs alone."""

    name: str

    def apply(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if not all(x.is_cuda for x in tensors):
            raise Unsupported(Code.NO_DEVICE, f"torch.nn.parallel's {self.name} takes tensors of GPUs alone")
        return getattr(parallel, self.name).apply(*args)


def _padded(part: Any, length: int) -> Any:
    """A part with rows of zeros up to a length: torch.distributed moves parts of one size alone."""
    missing = length - len(part)
    return torch.cat([part, part.new_zeros((missing, *part.shape[1:]))]) if missing else part


def _joined(parts: Sequence[Any], sizes: Sequence[int]) -> Any:
    return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])


class Distributed:
    """torch.distributed.nn.functional, in the form of `impl.comm.ranks.collective`."""

    def broadcast(self, x: Any, root: int, comm: Any) -> Any:
        return distributed.broadcast(x, root)

    def reduce(self, x: Any, root: int, comm: Any) -> Any:
        return distributed.reduce(x, root)

    def gather(self, x: Any, root: int, sizes: Sequence[int], comm: Any) -> Any:
        return _joined(distributed.gather(_padded(x, max(sizes)), root), sizes)

    def scatter(self, x: Any, root: int, sizes: Sequence[int], comm: Any) -> Any:
        parts = [_padded(part, max(sizes)) for part in x.split(sizes)]
        return distributed.scatter(parts, root)[: sizes[comm.rank]]


def _shares(tensor: Any, own: bool) -> Any:
    """The tensor on its home rank, zeros on others, and likewise its gradient, in which every rank takes part."""
    return torch.where(torch.tensor(own), tensor, torch.zeros_like(tensor))


class Functional:
    """torch's functional collectives, likewise. Every rank gets the whole: that of the root counts."""

    # A collective goes on in the background. Arithmetic on its result waits for it, which a view would not do.

    def gather(self, x: Any, root: int, sizes: Sequence[int], comm: Any) -> Any:
        longest = max(sizes)
        every = functional.all_gather_tensor_autograd(_padded(x, longest), 0, comm.group) * 1
        parts = every.split([longest] * len(sizes)) if longest else [every] * len(sizes)
        return _shares(_joined(parts, sizes), comm.rank == root)

    def scatter(self, x: Any, root: int, sizes: Sequence[int], comm: Any) -> Any:
        parts = [_padded(part, max(sizes)) for part in _shares(x, comm.rank == root).split(sizes)]
        own = functional.reduce_scatter_tensor_autograd(torch.cat(parts), "sum", 0, comm.group) * 1
        return own[: sizes[comm.rank]]


def peers(name: str, call: Callable[..., Any]) -> dict[str, Any]:
    """Torch's own implementations of an op on the ranks of a process group, by subject; `call` takes either of them."""
    every = {"torch": Distributed(), "functional": Functional()}
    has = {subject: over for subject, over in every.items() if hasattr(over, name.partition("_")[0])}
    return {subject: partial(_on_ranks, call, over) for subject, over in has.items()}


def nowhere(*args: Any) -> Any:
    """The functional collectives are for ranks alone."""
    raise Unsupported(Code.NO_DEVICE, "functional collectives run on ranks of process groups alone")


def _on_ranks(call: Callable[..., Any], over: Any, comm: Any, *args: Any) -> Any:
    if not isinstance(comm, TorchComm):
        raise Unsupported(Code.NO_DEVICE, "torch.distributed needs process groups: --comm gloo or nccl")
    return call(over, comm, *args)
