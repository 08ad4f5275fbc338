"""How one sample is judged: run the op along a path, compare each output with its bound, count, describe failures."""
