"""A training step whose norm has a backward that forgets a term."""

import torch
from kernels import Norm
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weight, self.linear = nn.Parameter(torch.ones(n)), nn.Linear(n, n)

    def forward(self, x):
        return x + F.gelu(self.linear(Norm.apply(x, self.weight)))


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(16, 32), Block(32), Block(32), nn.Linear(32, 8))
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
loss = F.cross_entropy(model(torch.randn(64, 16)), torch.randint(0, 8, (64,)))
loss.backward()
optimizer.step()
