"""The command that spreads work over a cluster, and the kinds of work that it knows."""
