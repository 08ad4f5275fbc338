"""What torch.compile and torch.export make of an op: the calls, the other arguments for them, the compilers."""
