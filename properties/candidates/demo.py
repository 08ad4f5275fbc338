"""What `opassay judge --demo` judges: a softmax that is right on ordinary inputs, and its meaning in plain PyTorch."""

import torch


def reference(x: torch.Tensor) -> torch.Tensor:
    """What it means."""
    return torch.softmax(x, -1)


def kernel(x: torch.Tensor) -> torch.Tensor:
    """What somebody wrote: without the maximum, exp overflows."""
    powers = torch.exp(x)
    return powers / powers.sum(-1, keepdim=True)


def inputs() -> tuple[torch.Tensor]:
    """The arguments of a call."""
    return (torch.randn(8, 32),)
