"""A program of PyTorch, watched: every call of its steps is held by the ball of its own operands."""

from pathlib import Path

#: What `opassay watch --demo` watches.
DEMO = Path(__file__).with_name("demo.py")
