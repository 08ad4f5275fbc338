"""A program that `opassay watch --demo` watches: a training step of a small network in bfloat16."""

import torch
from torch import nn

if __name__ == "__main__":
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(16, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 32), nn.GELU(), nn.LayerNorm(32), nn.Linear(32, 8)
    ).bfloat16()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    inputs, labels = torch.randn(64, 16).bfloat16(), torch.randint(0, 8, (64,))
    loss = nn.functional.cross_entropy(model(inputs), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(f"loss {loss.item():.4f}")
