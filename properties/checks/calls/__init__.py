"""CALLS: whether an op is a function of its values alone, whatever was called before, and keeps nothing of a call."""
