"""A program of PyTorch, watched: every call of its steps is held by the ball of its own operands."""
