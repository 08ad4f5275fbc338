"""Several runs: what has changed from one to the next, and the course of many."""
