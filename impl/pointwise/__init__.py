"""Ops of one element at a time."""
