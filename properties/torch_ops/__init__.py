"""A generated catalog: torch's differentiable operations, each judged by what its own function says."""
