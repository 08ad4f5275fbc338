"""Torch's own functions that move tensors, where there is what they need: GPUs, or process groups."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed.nn.functional as distributed
from torch.nn.parallel import _functions as parallel

from ...impl.comm import TorchComm
from ...oracles.judgement import Unsupported
from ...oracles.verdict import Code


@dataclass(frozen=True)
class OnGpus:
    """A class of torch.nn.parallel, which takes tensors of GPUs alone."""

    name: str

    def apply(self, *args: Any) -> Any:
        given = [a for a in args if isinstance(a, torch.Tensor)]
        if not all(x.is_cuda for x in given):
            raise Unsupported(Code.NO_DEVICE, f"torch.nn.parallel's {self.name} takes tensors of GPUs alone")
        return getattr(parallel, self.name).apply(*args)


def _broadcast(comm: Any, places: int, *args: Any) -> Any:
    own = [distributed.broadcast(x, 0) for x in args]
    return tuple(y if p == comm.rank else torch.zeros_like(y) for p in range(places) for y in own)


def _reduce(comm: Any, num_inputs: int, *args: Any) -> Any:
    return tuple(distributed.reduce(x, 0) for x in args[comm.rank * num_inputs : (comm.rank + 1) * num_inputs])


def _gather(comm: Any, dim: int, *args: Any) -> Any:
    """Parts of one size alone are gathered: shorter ones are filled up, and cut again."""
    rows = [x.reshape(1) if x.dim() == 0 else x.movedim(dim, 0) for x in args]
    lengths, own = [len(x) for x in rows], rows[comm.rank]
    padding = own.new_zeros((max(lengths) - len(own), *own.shape[1:]))
    parts = distributed.gather(torch.cat([own, padding]) if len(padding) else own, 0)
    whole = torch.cat([part[:length] for part, length in zip(parts, lengths, strict=True)])
    return whole if args[0].dim() == 0 else whole.movedim(0, dim)


def _scatter(comm: Any, chunk_sizes: tuple[int, ...], dim: int, input: Any) -> Any:
    rows, longest = input.movedim(dim, 0), max(chunk_sizes)
    parts = [
        torch.cat([part, part.new_zeros((longest - len(part), *part.shape[1:]))]) if len(part) < longest else part
        for part in rows.split(chunk_sizes)
    ]
    own = distributed.scatter(parts, 0)[: chunk_sizes[comm.rank]].movedim(0, dim)
    axis = dim % input.dim()
    shapes = [(*input.shape[:axis], size, *input.shape[axis + 1 :]) for size in chunk_sizes]
    return tuple(own if p == comm.rank else input.new_zeros(shape) for p, shape in enumerate(shapes))


_CALLS: dict[str, Any] = {
    "broadcast": _broadcast, "reduce_add_coalesced": _reduce, "gather": _gather,
    "scatter": _scatter,
}  # fmt: skip


def on_ranks(name: str, comm: Any, *args: Any) -> Any:
    """An op of torch.distributed.nn.functional, on the ranks of a process group."""
    if not isinstance(comm, TorchComm):
        raise Unsupported(Code.NO_DEVICE, "torch.distributed needs process groups: --comm gloo or nccl")
    return _CALLS[name](comm, *args)
