"""`SyncBatchNorm` and the conversion of modules to it."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from ...norms.modules import normalize
from .base import Comm
from .process_group import default_comm
from .sync_batch_norm import sync_batch_norm


class SyncBatchNorm(torch.nn.modules.batchnorm._BatchNorm):
    """Batch norm over all ranks, as `sync_batch_norm`; parameters, buffers and state_dict of torch.nn.SyncBatchNorm.

    Args:
        num_features, eps, momentum, affine, track_running_stats, device, dtype: as torch.nn.SyncBatchNorm.
        process_group: of torch.distributed; by default that of all processes, or none where there are no others.
        comm: a `Comm` instead of a process group.
    """

    def __init__(
        self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
        track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None,
        *, comm: Comm | None = None,
    ) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device=device, dtype=dtype)
        self.process_group, self.comm = process_group, comm

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"SyncBatchNorm: got input of shape={list(input.shape)}, need at least 2 dims.")

    def forward(self, input: Tensor) -> Tensor:
        """This rank's part of the normalised batch, as `sync_batch_norm`."""
        # Looked up anew: a process group in the module could be neither copied nor pickled.
        comm = default_comm(self.process_group) if self.comm is None else self.comm
        return normalize(self, input, functools.partial(sync_batch_norm, comm=comm))


def convert_sync_batchnorm(
    module: torch.nn.Module, process_group: Any = None, *, comm: Comm | None = None
) -> torch.nn.Module:
    """The module with every batch norm layer in it, of torch or ours, replaced by a `SyncBatchNorm`, in place.

    Parameters and buffers are the very tensors of the layers that are replaced. A module that is a batch norm layer
    itself is not changed; the new layer is returned.
    """
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        new = SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
            comm=comm,
        )  # fmt: skip
        # The very tensors, and no copies: an optimizer may have been given them before.
        new.weight, new.bias = module.weight, module.bias
        new.running_mean, new.running_var = module.running_mean, module.running_var
        new.num_batches_tracked = module.num_batches_tracked
        new.train(module.training)
        return new
    for name, child in module.named_children():
        module.add_module(name, convert_sync_batchnorm(child, process_group, comm=comm))
    return module
