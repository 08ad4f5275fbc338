"""The modules: BatchNorm1d, BatchNorm2d, BatchNorm3d, GroupNorm, LayerNorm and RMSNorm."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .batch_norm import batch_norm
from .group_norm import group_norm
from .layer_norm import layer_norm
from .rms_norm import rms_norm
from .running import count


def normalize(
    module: torch.nn.modules.batchnorm._BatchNorm, x: Tensor, norm: Callable[..., Tensor] = batch_norm
) -> Tensor:
    """`norm` with the module's parameters; counts the batches that update its running statistics.

    With momentum None the running statistics are the mean over all batches: the weight of batch k is 1 / k.
    """
    module._check_input_dim(x)
    momentum = 0.0 if module.momentum is None else module.momentum
    updates = module.training and module.track_running_stats
    if updates and module.num_batches_tracked is not None:
        # The count comes before the momentum, so that batch 1 has the weight 1 / 1. It is an op and not `+=
        # 1`, because functorch refuses to write in place to a tensor that a transformed function has
        # captured.
        count(module.num_batches_tracked)
        if module.momentum is None:
            momentum = 1.0 / float(module.num_batches_tracked)
    mean, var = module.running_mean, module.running_var
    training = module.training or (mean is None and var is None)
    # Tracking can be switched off after construction. The buffers are still there then, and torch leaves
    # them alone while training.
    if module.training and not module.track_running_stats:
        mean = var = None
    return norm(x, mean, var, module.weight, module.bias, training, momentum, module.eps)


class BatchNorm1d(torch.nn.BatchNorm1d):
    """`torch.nn.BatchNorm1d` on `batch_norm`: the same constructor, parameters, buffers and state_dict, both ways."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `batch_norm`."""
        return normalize(self, input)


class BatchNorm2d(torch.nn.BatchNorm2d):
    """`torch.nn.BatchNorm2d` on `batch_norm`: the same constructor, parameters, buffers and state_dict, both ways."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `batch_norm`."""
        return normalize(self, input)


class BatchNorm3d(torch.nn.BatchNorm3d):
    """`torch.nn.BatchNorm3d` on `batch_norm`: the same constructor, parameters, buffers and state_dict, both ways."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `batch_norm`."""
        return normalize(self, input)


class LayerNorm(torch.nn.LayerNorm):
    """`torch.nn.LayerNorm` on `layer_norm`: the same constructor, parameters and state_dict, in both directions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `layer_norm`."""
        return layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)


class GroupNorm(torch.nn.GroupNorm):
    """`torch.nn.GroupNorm` on `group_norm`: the same constructor, parameters and state_dict, in both directions."""

    def forward(self, input: Tensor) -> Tensor:
        """Normalised input, as `group_norm`."""
        return group_norm(input, self.num_groups, self.weight, self.bias, self.eps)


class RMSNorm(torch.nn.RMSNorm):
    """`torch.nn.RMSNorm` on `rms_norm`: the same constructor, parameters and state_dict, in both directions."""

    def forward(self, x: Tensor) -> Tensor:
        """Normalised x, as `rms_norm`."""
        return rms_norm(x, self.normalized_shape, self.weight, self.eps)
