"""Judging a candidate by a spec: what is asked of it, of which inputs, and in which process it runs."""
