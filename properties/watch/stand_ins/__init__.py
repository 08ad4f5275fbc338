"""Operations of torch that have no rule, written in plain PyTorch: what stands for them where their calls are read."""
