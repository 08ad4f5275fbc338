"""The tensors that a module keeps between calls beside its parameters."""

from __future__ import annotations

import torch


def buffers_of(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Tensors that a module keeps beside its parameters, by their paths: buffers, and those in plain attributes."""
    tensors = dict(module.named_buffers())
    ids = {id(tensor) for tensor in (*tensors.values(), *module.parameters())}
    for path, part in module.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor) and id(value) not in ids:
                ids.add(id(value))
                tensors[f"{path}.{name}" if path else name] = value
    return tensors
