"""The checks: what each property asks of one sample."""
