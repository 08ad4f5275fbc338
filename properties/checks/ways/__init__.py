"""WAYS: the ways in which users call an op, each compared with the plain call."""
