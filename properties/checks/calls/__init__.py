"""CALLS: whether an op is a function of its arguments' values alone, and keeps no memory of a call."""
