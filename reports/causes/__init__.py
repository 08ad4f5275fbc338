"""The causes of a run's failures: which failures are one, how severe each is, and a page about it."""
