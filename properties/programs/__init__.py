"""What runs in a process of its own: the worker that judges cells, and the command that starts it."""
