"""Torch's own functions that move tensors, where there is what they need: GPUs, or process groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed._functional_collectives as functional
import torch.distributed.nn.functional as distributed
from torch.nn.parallel import _functions as parallel

from ....impl.comm import TorchComm
from ....oracles.verdicts.verdict import Code
from ....oracles.verdicts.violation import Unsupported


@dataclass(frozen=True)
class OnGpus:
    """A class of torch.nn.parallel, which takes tensors of GPUs alone."""

    name: str

    def apply(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, torch.Tensor)]
        if not all(x.is_cuda for x in tensors):
            raise Unsupported(Code.NO_DEVICE, f"torch.nn.parallel's {self.name} takes tensors of GPUs alone")
        return getattr(parallel, self.name).apply(*args)


def parts_of_own(own: Any, comm: Any, chunk_sizes: Sequence[int], dim: int, input: Any) -> tuple[Any, ...]:
    """Every part of a scattered input, of which this rank has its own; zeros for those of others.

    Args:
        own: the part of this rank. comm: this rank's. chunk_sizes, dim, input: of the op.
    """
    axis = dim % input.dim()
    shapes = [(*input.shape[:axis], size, *input.shape[axis + 1 :]) for size in chunk_sizes]
    return tuple(own if p == comm.rank else input.new_zeros(shape) for p, shape in enumerate(shapes))


def _padded(part: Any, length: int) -> Any:
    """A part with rows of zeros up to a length: torch.distributed moves parts of one size alone."""
    missing = length - len(part)
    return torch.cat([part, part.new_zeros((missing, *part.shape[1:]))]) if missing else part


def _broadcast_by_torch(comm: Any, places: int, *args: Any) -> Any:
    own = [distributed.broadcast(x, 0) for x in args]
    return tuple(y if p == comm.rank else torch.zeros_like(y) for p in range(places) for y in own)


def _reduce(comm: Any, num_inputs: int, *args: Any) -> Any:
    return tuple(distributed.reduce(x, 0) for x in args[comm.rank * num_inputs : (comm.rank + 1) * num_inputs])


def _gather(comm: Any, dim: int, *args: Any) -> Any:
    """Parts of one size alone are gathered: shorter ones are filled up, and cut again."""
    rows = [x.reshape(1) if x.dim() == 0 else x.movedim(dim, 0) for x in args]
    lengths, own = [len(x) for x in rows], rows[comm.rank]
    parts = distributed.gather(_padded(own, max(lengths)), 0)
    whole = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    return whole if args[0].dim() == 0 else whole.movedim(0, dim)


def _scatter(comm: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    parts = [_padded(part, max(chunk_sizes)) for part in input.movedim(dim, 0).split(chunk_sizes)]
    own = distributed.scatter(parts, 0)[: chunk_sizes[comm.rank]].movedim(0, dim)
    return parts_of_own(own, comm, chunk_sizes, dim, input)


_CALLS: dict[str, Any] = {
    "broadcast": _broadcast_by_torch, "reduce_add_coalesced": _reduce, "gather": _gather,
    "scatter": _scatter,
}  # fmt: skip


def _shares(tensor: Any, own: bool) -> Any:
    """The tensor on its home rank, zeros on others, and likewise its gradient, in which every rank takes part."""
    return torch.where(torch.tensor(own), tensor, torch.zeros_like(tensor))


def _functional_gather(comm: Any, dim: int, *args: Any) -> Any:
    rows = [x.reshape(1) if x.dim() == 0 else x.movedim(dim, 0) for x in args]
    longest, own = max(len(x) for x in rows), rows[comm.rank]
    every = functional.all_gather_tensor_autograd(_padded(own, longest), 0, comm.group)
    # The collective goes on in the background. Arithmetic on its result waits for it, which a view would not do.
    every = every * 1
    parts = every.split([longest] * len(rows)) if longest else [every] * len(rows)
    whole = torch.cat([part[: len(x)] for part, x in zip(parts, rows, strict=True)])
    # Every rank has the whole; that of the root counts, and so does its cotangent.
    whole = _shares(whole, comm.rank == 0)
    return whole if args[0].dim() == 0 else whole.movedim(0, dim)


def _functional_scatter(comm: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    rows, longest = _shares(input.movedim(dim, 0), comm.rank == 0), max(chunk_sizes)
    parts = [_padded(part, longest) for part in rows.split(chunk_sizes)]
    own = functional.reduce_scatter_tensor_autograd(torch.cat(parts), "sum", 0, comm.group)
    # As in the gather: arithmetic waits for the result, which a view would not do.
    own = (own * 1)[: chunk_sizes[comm.rank]].movedim(0, dim)
    return parts_of_own(own, comm, chunk_sizes, dim, input)


_FUNCTIONAL: dict[str, Any] = {"gather": _functional_gather, "scatter": _functional_scatter}


def peers(name: str) -> dict[str, Any]:
    """Torch's own implementations of an op on the ranks of a process group, by subject."""
    calls = {"torch": _CALLS[name]} | ({"functional": _FUNCTIONAL[name]} if name in _FUNCTIONAL else {})
    return {subject: partial(_on_ranks, call) for subject, call in calls.items()}


def nowhere(*args: Any) -> Any:
    """The functional collectives are for ranks alone."""
    raise Unsupported(Code.NO_DEVICE, "functional collectives run on ranks of process groups alone")


def _on_ranks(call: Any, comm: Any, *args: Any) -> Any:
    if not isinstance(comm, TorchComm):
        raise Unsupported(Code.NO_DEVICE, "torch.distributed needs process groups: --comm gloo or nccl")
    return call(comm, *args)
