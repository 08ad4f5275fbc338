"""`SyncBatchNorm` and the conversion of modules to it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..normalization.batch_norm_update import count
from .base import Comm
from .sync_batch_norm import sync_batch_norm
from .torch_comm import default_comm


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
        """This rank's part of the normalised batch."""
        self._check_input_dim(input)
        momentum = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            count(self.num_batches_tracked)
            if self.momentum is None:
                momentum = 1.0 / float(self.num_batches_tracked)
        mean, var = self.running_mean, self.running_var
        training = self.training or (mean is None and var is None)
        if self.training and not self.track_running_stats:
            mean = var = None
        return sync_batch_norm(
            input, mean, var, self.weight, self.bias, training, momentum, self.eps, comm=self._ranks()
        )

    def _ranks(self) -> Comm:
        if self.comm is None:
            self.comm = default_comm(self.process_group)
        return self.comm


def convert_sync_batchnorm(
    module: torch.nn.Module, process_group: Any = None, *, comm: Comm | None = None
) -> torch.nn.Module:
    """The module with every batch norm layer in it, of torch or ours, replaced by a `SyncBatchNorm`.

    Parameters and buffers are the very tensors of the layers that are replaced.
    """
    if isinstance(module, torch.nn.modules.batchnorm._BatchNorm):
        new = SyncBatchNorm(
            module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats, process_group,
            comm=comm,
        )  # fmt: skip
        new.weight, new.bias = module.weight, module.bias
        new.running_mean, new.running_var = module.running_mean, module.running_var
        new.num_batches_tracked = module.num_batches_tracked
        new.train(module.training)
        return new
    for name, child in module.named_children():
        module.add_module(name, convert_sync_batchnorm(child, process_group, comm=comm))
    return module
