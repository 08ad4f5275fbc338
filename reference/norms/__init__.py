"""The formulas of the norms: what they share, and a module per op with its native and its backward ops."""
