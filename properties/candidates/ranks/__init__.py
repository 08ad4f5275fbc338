"""Ranks of torch.distributed without a network: what each posts, and where that meets."""
